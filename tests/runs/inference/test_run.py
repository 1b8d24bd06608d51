from __future__ import annotations

import json
import pickle
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import qkv
from qkv.data.tokenizers.tokenizer import train as train_tokenizer
from qkv.runs.inference.run import Run, load

TEXTS = ["a b c", "d e f g h", "x"]


@pytest.fixture
def copied(trained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained, tmp_path / "copy"))


def test_a_run_saved_and_loaded_again_gives_the_same(trained: Path, tmp_path: Path) -> None:
    run = load(trained, device="cpu")
    again = load(run.save(tmp_path / "again"), device="cpu")
    assert again.generate(TEXTS) == run.generate(TEXTS)
    assert again.score(TEXTS, TEXTS) == run.score(TEXTS, TEXTS)
    for mine, theirs in zip(again.embed(TEXTS), run.embed(TEXTS), strict=True):
        assert torch.equal(mine, theirs)
    assert (again.generation, again.task, again.recipe, again.model.spec) == (
        run.generation,
        run.task,
        run.recipe,
        run.model.spec,
    )
    assert not [path.name for path in (tmp_path / "again").iterdir() if path.name.startswith(".")]
    assert not again.model.training


Break = Callable[[Path], object]


def rewrite(change: Callable[[dict[str, torch.Tensor]], object]) -> Break:
    def broken(folder: Path) -> None:
        tensors = load_file(folder / "model.safetensors")
        change(tensors)
        save_file(tensors, folder / "model.safetensors")

    return broken


def header(text: bytes, rest: bytes = b"") -> Break:
    return lambda folder: (folder / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + rest)


def cut(name: str, keep: float) -> Break:
    def broken(folder: Path) -> None:
        content = (folder / name).read_bytes()
        (folder / name).write_bytes(content[: int(len(content) * keep)])

    return broken


def config(change: Callable[[dict], object]) -> Break:
    def broken(folder: Path) -> None:
        data = json.loads((folder / "config.json").read_text())
        change(data)
        (folder / "config.json").write_text(json.dumps(data))

    return broken


FIRST = "decoder.blocks.0.attention.k.weight"

DAMAGE: dict[str, tuple[Break, str]] = {
    "pickled weights": (lambda f: torch.save({"a": torch.ones(2)}, f / "model.safetensors"), "is a pickle"),
    "bare pickle": (lambda f: (f / "model.safetensors").write_bytes(pickle.dumps({"a": 1})), "is a pickle"),
    "cut weights": (cut("model.safetensors", 0.9), "cut short"),
    "cut header": (cut("model.safetensors", 0.005), "cut short"),
    "empty weights": (cut("model.safetensors", 0), "cut short"),
    "trailing bytes": (lambda f: (f / "model.safetensors").open("ab").write(b"x") and None, "damaged"),
    "huge header": (
        lambda f: (f / "model.safetensors").write_bytes(b"\xff" * 7 + b"\x00" * 20),
        "can't hold its header",
    ),
    "header is no JSON": (header(b"{{}"), "header is damaged"),
    "header is a list": (header(b"[1]"), "header is damaged"),
    "negative shape": (header(b'{"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,0]}}'), "header is damaged"),
    "a name twice": (header(b'{"a":{},"a":{}}'), "occurs twice"),
    "size against shape": (header(b'{"a":{"dtype":"F32","shape":[9],"data_offsets":[0,4]}}', b"0000"), "size is not"),
    "missing tensor": (rewrite(lambda t: t.pop(FIRST)), f"lacks '{FIRST}'"),
    "unknown tensor": (rewrite(lambda t: t.update(extra=torch.ones(1))), "holds 'extra'"),
    "wrong shape": (rewrite(lambda t: t.update({FIRST: torch.ones(3, 3)})), "is of shape (3, 3)"),
    "integers": (rewrite(lambda t: t.update({FIRST: t[FIRST].long()})), "floating-point"),
    "config is no JSON": (cut("config.json", 0.5), "config.json is not valid JSON"),
    "config of another": (config(lambda c: c.update(model_type="bert")), "'bert'"),
    "unknown field": (config(lambda c: c["qkv"].update(d_modl=3)), "d_modl"),
    "newer schema": (config(lambda c: c["qkv"].update(schema=99)), "schema 99"),
    "wrong task": (config(lambda c: c.update(task="continue")), "the task 'continue'"),
    "cut tokenizer": (cut("tokenizer.json", 0.5), "tokenizer.json"),
    "no weights": (lambda f: (f / "model.safetensors").unlink(), "model.safetensors"),
    "no tokenizer": (lambda f: (f / "tokenizer.json").unlink(), "tokenizer.json"),
    "bad generation": (lambda f: (f / "generation_config.json").write_text('{"num_beams": 0}'), "num_beams"),
    "generation is a list": (lambda f: (f / "generation_config.json").write_text("[1]"), "generation_config.json"),
    "bad recipe": (lambda f: (f / "recipe.yaml").write_text("name: ["), "recipe.yaml"),
    "not UTF-8": (lambda f: (f / "config.json").write_bytes(b"\xff"), "config.json is not UTF-8"),
}


@pytest.mark.parametrize("name", sorted(DAMAGE))
def test_damage_is_one_sentence_that_names_the_file(name: str, copied: Path) -> None:
    damage, said = DAMAGE[name]
    damage(copied)
    with pytest.raises(ValueError) as error:
        load(copied, device="cpu")
    assert said in str(error.value) and str(copied) in str(error.value)
    assert "\n" not in str(error.value)


def test_a_tokenizer_of_another_run_is_told(copied: Path) -> None:
    train_tokenizer("char", ["abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOP 0123456789"]).save(copied)
    with pytest.raises(ValueError, match="don't belong together"):
        load(copied, device="cpu")


def test_devices_that_the_machine_lacks(trained: Path) -> None:
    with pytest.raises(ValueError, match="there is no device 'gpu'"):
        load(trained, device="gpu")
    if not torch.cuda.is_available():
        with pytest.raises(ValueError, match="no CUDA device"):
            load(trained, device="cuda")
    with pytest.raises(ValueError, match=r"device"):
        load(trained, device="cuda:99")


def test_a_run_checks_its_parts(trained: Path) -> None:
    run = load(trained, device="cpu")
    other = train_tokenizer("char", ["abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOP 0123456789"])
    with pytest.raises(ValueError, match="don't belong together"):
        Run(run.model, other, task="translate")
    with pytest.raises(ValueError, match="a list of strings"):
        run.outputs("a b")
    assert run.generate("a b") == run.generate(["a b"])[0]
    sampled = run.generate("a b", num_samples=2, do_sample=True, seed=1)
    assert [sampled] == run.generate(["a b"], num_samples=2, do_sample=True, seed=1)
    assert run.score("a b", "b a") == run.score(["a b"], ["b a"])[0]
    with pytest.raises(ValueError, match="give the texts and targets both as single texts or both as lists"):
        run.score("a b", ["b a"])
    assert torch.equal(run.embed("a b"), run.embed(["a b"])[0])
    assert run.similarity("a b", "b a") == run.similarity(["a b"], ["b a"])[0]
    with pytest.raises(ValueError, match="did you mean 'num_beams'"):
        run.generate(["a"], num_beam=2)


BUILT = {
    "gpt2": {"d_model": 16, "n_layers": 1, "n_heads": 2, "vocab_size": 20, "max_positions": 16},
    "bert-base": {"d_model": 16, "n_layers": 1, "n_heads": 2, "d_ff": 24, "vocab_size": 20, "max_positions": 16},
    "transformer": {"d_model": 16, "n_layers": 1, "n_heads": 2, "d_ff": 24, "vocab_size": 20},
    "t5-small": {"d_model": 16, "n_layers": 1, "n_heads": 2, "d_ff": 24, "vocab_size": 20, "d_head": 8},
    "rnnsearch": {"vocab_size": 20, "d_e": 8, "d_h": 8, "d_s": 8},
    "vit-base-16": {"image": (16, 16), "patch": (8, 8), "d_model": 16, "n_layers": 1, "n_heads": 2, "d_ff": 24},
}


@pytest.mark.filterwarnings("ignore:.*is saved under the model type")
@pytest.mark.parametrize("to", [None, "qkv"])
@pytest.mark.parametrize("name", BUILT)
def test_a_model_built_in_python_is_saved_and_loaded(name: str, to: Any, tmp_path: Path) -> None:
    """Whatever its stacks are for: the task is theirs, if nobody names one."""
    model = qkv.build(qkv.preset(name, **BUILT[name]), seed=7)
    run = load(model.save(tmp_path / "mine", to), device="cpu")
    assert run.model.spec == model.spec and run.task == Run(model, None).task
    mine, theirs = model.state_dict(), run.model.state_dict()
    assert mine.keys() == theirs.keys() and all(torch.equal(mine[key], theirs[key]) for key in mine)


def test_a_task_that_a_model_cannot_do_is_told_before_it_is_saved() -> None:
    model = qkv.build(qkv.preset("gpt2", **BUILT["gpt2"]))
    with pytest.raises(
        ValueError, match="the task 'translate' is not one for this model; there is answer, continue, read"
    ):
        Run(model, None, task="translate")


def test_a_run_is_read_in_one_line_and_in_a_notebook(trained: Path) -> None:
    run = load(trained, device="cpu")
    assert repr(run) == f"Run({trained}: translate, {run.model.spec!r}, {run.tokenizer.name})"
    assert "\n" not in repr(run) and len(repr(run)) < 200
    page = run._repr_html_()
    assert run.tokenizer._repr_html_() in page and run.model.spec._repr_html_() in page
    assert "<b>a&amp;b</b>" in replace(run, path=Path("a&b"))._repr_html_()
