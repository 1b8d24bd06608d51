"""Every pair of ways in which a setting can be given: both arrive, or one is refused by name."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import qkv
from qkv.cli import main
from qkv.runs.recipes import overrides
from qkv.runs.recipes.recipe import Recipe
from qkv.runs.train import from_python

TEXT = "data.path"  # a setting that several ways can give, and what each gives for it
WAYS: dict[str, tuple[Mapping[str, Any], str, Any]] = {
    # a way: the arguments of qkv.train, the setting that they give, and its value
    "recipe": ({}, "training.max_steps", 7),
    "changes": ({"changes": {"data.documents": "line"}}, "data.documents", "line"),
    "changes of data as a whole": ({"changes": {"data": {"kind": "text", "path": "b.txt"}}}, TEXT, "b.txt"),
    "changes of the path": ({"changes": {TEXT: "c.txt"}}, TEXT, "c.txt"),
    "changes of steps": ({"changes": {"training.max_steps": 5}}, "training.max_steps", 5),
    "changes of training": ({"changes": {"training": {"max_steps": 6}}}, "training.max_steps", 6),
    "changes of a preset": ({"changes": {"model.preset": "gpt2-medium"}}, "model.d_model", 1024),
    "changes of a size": ({"changes": {"model.d_model": 48}}, "model.d_model", 48),
    "data as a path": ({"data": "a.txt"}, TEXT, "a.txt"),
    "data as settings": ({"data": {"kind": "text", "path": "a.txt"}}, TEXT, "a.txt"),
    "data as some settings": ({"data": {"path": "a.txt"}}, TEXT, "a.txt"),
    "data as a source": ({"data": Recipe.load("lm", ["data.path=a.txt"]).data}, TEXT, "a.txt"),
    "rows": ({"data": [{"text": "one"}, {"text": "two"}]}, "data.kind", "memory"),
    "eval_data": ({"eval_data": "v.txt"}, "data.validation_path", "v.txt"),
    "steps": ({"steps": 3}, "training.max_steps", 3),
    "epochs": ({"epochs": 2}, "training.max_epochs", 2),
    "seed": ({"seed": 11}, "seed", 11),
    "changes of the seed": ({"changes": {"seed": 12}}, "seed", 12),
}
LATER = {"recipe"}  # what other ways are meant to change
WITHIN = {"changes of the path", "changes of steps", "changes of a size"}  # which in one dictionary change a whole


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Recipe]:
    """The recipes that would have been trained."""
    recipes: list[Recipe] = []

    def train(recipe: Recipe, *_: object, **__: object) -> None:
        recipes.append(recipe)
        raise KeyboardInterrupt

    monkeypatch.setattr(from_python, "train_recipe", train)
    return recipes


def value_of(recipe: Recipe, key: str) -> Any:
    if key == "model.d_model":
        return recipe.model.spec(100).d_model
    node: Any = recipe.to_dict()
    for part in key.split("."):
        node = node[part]
    return [node] if isinstance(node, tuple) else node


def merged(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any] | None:
    """The arguments of both; None if both give one argument, which Python refuses itself."""
    changes = {**first.get("changes", {}), **second.get("changes", {})}
    rest = [{k: v for k, v in one.items() if k != "changes"} for one in (first, second)]
    if rest[0].keys() & rest[1].keys() or first.get("changes", {}).keys() & second.get("changes", {}).keys():
        return None
    return {**rest[0], **rest[1], **({"changes": changes} if changes else {})}


@pytest.mark.filterwarnings("ignore:model.preset=")
@pytest.mark.parametrize(("first", "second"), list(itertools.permutations(WAYS, 2)))
def test_both_arrive_or_one_is_refused_by_name(first: str, second: str, asked: list[Recipe]) -> None:
    arguments = merged(WAYS[first][0], WAYS[second][0])
    if arguments is None:
        return
    recipe = Recipe.load("lm", ["data.path=own.txt", "training.max_steps=7"])
    try:
        with pytest.raises(KeyboardInterrupt):
            qkv.train(recipe, data=arguments.pop("data", None), progress=False, **arguments)
    except ValueError as error:
        words = [part for name in (first, second) for part in (WAYS[name][1], WAYS[name][1].partition(".")[0])]
        assert any(word in str(error) for word in words), error
        return
    for name, other in ((first, second), (second, first)):
        _, key, value = WAYS[name]
        narrower = all("changes" in WAYS[way][0] for way in (name, other)) and other in WITHIN
        if name not in LATER and not narrower:
            assert value_of(asked[0], key) == value, name


def test_what_is_refused_is_refused_for_a_contradiction(asked: list[Recipe]) -> None:
    """And what does not contradict is not."""
    files = {"kind": "text", "path": "a.txt"}
    with pytest.raises(KeyboardInterrupt):
        qkv.train("lm", data=files, changes={"data.documents": "line"}, steps=3, seed=1)
    assert (asked[0].data.documents, asked[0].training.max_steps) == ("line", 3)  # type: ignore[attr-defined]
    for arguments, message in (
        ({"data": files, "changes": {"data.documents": "line", "training.max_steps": 3}, "steps": 4}, "is given twice"),
        (
            {"data": files, "changes": {"data": {"path": "b"}}},
            r"path is given twice, as 'a\.txt' by data and as 'b' by",
        ),
        ({"data": files, "changes": {"data.path": "b"}}, r"data\.path is given twice"),
        (
            {"changes": {"training.max_steps": 3, "training": {"max_steps": 4}}},
            r"training replaces all of training, and with it training\.max_steps",
        ),
        ({"changes": {"training": {"max_steps": 3}}, "steps": 4}, r"training\.max_steps is given twice"),
        ({"data": "a.txt", "changes": {"data": {"path": "b"}}}, r"data\.path is given twice"),
        ({"data": "a.txt", "changes": {"data.path": "b"}}, r"data\.path is given twice"),
        ({"data": ["one", "two"], "changes": {"data.documents": "line"}}, r"data\.documents is a setting of files"),
    ):
        with pytest.raises(ValueError, match=message):
            qkv.train("lm", **arguments)
    with pytest.warns(UserWarning, match="max_steps is given twice, as 4 and as 3"), pytest.raises(KeyboardInterrupt):
        qkv.train("lm", data=files, changes={"training": {"max_steps": 4}, "training.max_steps": 3})
    source = Recipe.load("lm", ["data.path=a.txt"]).data
    with pytest.raises(ValueError, match="documnts"):
        qkv.train("lm", data=source, changes={"data.documnts": "line"})


OPTIONS = {
    "--max-steps": ("training.max_steps", 3, 4),
    "--max-epochs": ("training.max_epochs", 3, 4),
    "--max-time": ("training.max_time", "10m", "9m"),
    "--precision": ("training.precision", "fp32", "bf16"),
    "--seed": ("seed", 1, 2),
}


@pytest.mark.parametrize("option", OPTIONS)
def test_an_option_and_a_setting_that_differ_are_refused_on_the_command_line(
    option: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    key, mine, other = OPTIONS[option]
    out = ["--out", str(tmp_path / "run")]
    assert main(["train", "reverse", f"{key}={other}", option, str(mine), *out]) == 2
    error = capsys.readouterr().err
    assert f"{option} is {mine}, and the setting {key} is {other}; give one of them" in error
    assert main(["train", "reverse", f"{key}={mine}", option, str(mine), "no.key=1", *out]) == 2
    assert "give one of them" not in capsys.readouterr().err


SETTINGS = (
    *("model.preset=gpt2", "model=gpt2", "model.d_model=48", "model.replace={decoder.position: alibi}"),
    *("data.kind=jsonl", "data.path=a.jsonl", "data={kind: jsonl, path: b.jsonl}", "data.documents=line"),
    *("tokenizer=words", "tokenizer.vocab_size=500", "tokenizer={kind: chars}"),
    *("adapter=lora", "adapter={kind: lora, rank: 2}", "adapter.rank=4", "adapter=null"),
    *("training.max_steps=5", "training={max_steps: 9}", "training.optimizer=sgd", "training.optimizer.lr=0.5"),
    *("task.longest=64", "task={kind: lm, longest: 32}", "generation.temperature=0.5", "generation={top_k: 3}", "seed=5"),
)  # fmt: skip


def arrived(node: Any, path: list[str], value: Any) -> bool:
    """Whether a recipe has a value at a path, also if either is a short form such as `optimizer: sgd`."""
    for part in path:
        node = {"kind": node} if isinstance(node, str) else node
        if not isinstance(node, dict) or part not in node:
            return False
        node = node[part]
    if isinstance(value, dict):
        return all(arrived(node, [key], item) for key, item in value.items())
    short = [node.get("kind"), node.get("preset"), node.get("directory")] if isinstance(node, dict) else [node]
    return value in short


@pytest.mark.slow
@pytest.mark.parametrize("recipe", ["lm", "classify"])
def test_of_two_settings_on_the_command_line_both_arrive_or_one_is_told(recipe: str) -> None:
    accepted = 0
    for first, second in itertools.permutations(SETTINGS, 2):
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            try:
                tree = Recipe.load(
                    recipe, ["data.path=x.txt"] * ("data" not in first + second) + [first, second]
                ).to_dict()
            except ValueError:
                continue
        said = " ".join(str(one.message) for one in told)
        for key, value in map(overrides.parse, (first, second)):
            assert arrived(tree, overrides._place(key.split(".")), value) or key in said, (first, second, said)
        accepted += 1
    assert accepted > 50
