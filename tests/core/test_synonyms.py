"""Each row of the table is taken, or answered with what exists: as a setting, on the command line and as a keyword."""

from __future__ import annotations

import inspect
import re
from typing import Any

import pytest
import torch
import typer
from other_options import PAGE, names_here, text

import qkv
from qkv.cli import app
from qkv.cli import train as command
from qkv.cli.errors import describe
from qkv.core.spec import Spec
from qkv.core.synonyms import elsewhere
from qkv.core.synonyms.keywords import ARGUMENTS, IN_SPECS
from qkv.core.synonyms.table import CLAUSES, DIFFERENT_OPTIONS, OPTIONS, SAME, SYNONYMS
from qkv.io.families import FAMILIES
from qkv.io.families.named import PRESETS
from qkv.io.hub.keys import Key
from qkv.nn.models.base import ModelSpec
from qkv.nn.models.initialization import Normal
from qkv.runs.recipes.keys import keys
from qkv.runs.recipes.recipe import Recipe, override, tree
from qkv.runs.recipes.sizes import sizes_of

NAMES = list(dict.fromkeys([*SYNONYMS, *OPTIONS, *DIFFERENT_OPTIONS, *CLAUSES]))
TAKEN = [(name, place) for name, places in SAME.items() for place in places]
PLACES = sorted({place for places in SYNONYMS.values() for place in places})


def exists(place: str) -> bool:
    if place.startswith("model."):
        return place in ("model.preset", "model.weights") or any(place[6:] in sizes_of(preset) for preset in PRESETS)
    *path, _ = place.split(".")
    data = tree("translate" if place in ("data.source", "data.target") else "lm")
    data["training"]["schedule"], data["adapter"] = {"kind": "cosine"}, {"kind": "lora"}
    return place in Recipe.model_fields or place in set(keys(data, path, Recipe))


@pytest.mark.parametrize("place", PLACES)
def test_every_place_that_is_named_exists(place: str) -> None:
    assert exists(place) or (place == "model.initialization" and "initialization" in qkv.Transformer.model_fields)


@pytest.mark.parametrize("option", sorted({*OPTIONS.values(), *(option for option, _ in DIFFERENT_OPTIONS.values())}))
def test_every_option_that_is_named_exists(option: str) -> None:
    assert option.removeprefix("--") in inspect.signature(command.train).parameters


def test_clauses_name_commands_names_and_options_that_exist() -> None:
    options = set()
    for name in app.COMMANDS:
        found: Any = typer.main.get_command(app.app).get_command(None, name)  # type: ignore[arg-type, attr-defined]
        options |= {option for each in found.params for option in each.opts}
    for clause in set(CLAUSES.values()):
        assert set(re.findall(r"--[a-z-]+", clause)) <= options, clause
        assert all(name in app.COMMANDS for name in re.findall(r"`qkv (\w+)", clause)), clause
        for name in re.findall(r"\bqkv\.([A-Z]\w+|load|train|record_attention)\b", clause):
            assert name in qkv.__all__, clause
        for place in re.findall(r"\b((?:training|batching)\.\w+)", clause):
            assert exists(place), clause


def test_each_row_is_answered_as_a_keyword_and_however_it_is_spelled() -> None:
    taken = {name for name, place in TAKEN if place.startswith("generation.")}
    for name in NAMES:
        clause = elsewhere(name)
        assert clause and "\n" not in clause
        assert elsewhere(f"--{name.replace('_', '-')}".upper()) == clause
        if name not in qkv.Generation.model_fields and name not in taken:
            with pytest.raises(ValueError) as error:
                qkv.Generation(**{name: 1})
            assert elsewhere(name, qkv.Generation.model_fields) in str(error.value)


@pytest.mark.parametrize(
    "name", sorted(set(NAMES) - names_here() - {*SAME, *OPTIONS, *ARGUMENTS["load"], *ARGUMENTS["train"]})[::25]
)
def test_a_row_is_answered_where_it_is_typed(name: str) -> None:
    given: dict[str, Any] = {name: 1}
    for function in (qkv.train, qkv.load):
        with pytest.raises(ValueError) as error:
            function("lm", **given)
        assert str(elsewhere(name, inspect.signature(function).parameters)) in str(error.value)
    with pytest.raises(ValueError) as error:
        Recipe.load("lm", [f"{name}=1"])
    assert str(elsewhere(name)) in str(error.value)
    found: Any = typer.main.get_command(app.app).get_command(None, "train")  # type: ignore[arg-type, attr-defined]
    with pytest.raises(Exception) as wrong:
        found.make_context("train", ["lm", f"--{name}", "1"])
    status, said = describe(wrong.value)  # type: ignore[arg-type]
    assert status == 2 and said.startswith(f"there is no option --{name}; ")


def base(place: str) -> dict[str, Any]:
    """A recipe's tree in which a place exists."""
    data = tree("translate" if place.startswith("data.") else "lm")
    data["training"]["schedule"], data["adapter"] = {"kind": "cosine"}, {"kind": "lora"}
    part, _, size = place.partition(".")
    if part == "model":
        data["model"] = {"preset": next(name for name in PRESETS if size in sizes_of(name))}
    return data


def at(data: Any, path: list[str]) -> Any:
    return at(data[path[0]], path[1:]) if path else data


def spellings(name: str, place: str) -> list[str]:
    """The keys by which a name is taken: alone, if it means one thing, and in each part of the recipe above the place."""
    *parents, last = place.split(".")
    alone = [name] if len(SAME[name]) == 1 else []
    return alone + [".".join([*parents[:depth], name]) for depth in range(1, len(parents) + (name != last))]


@pytest.mark.parametrize("place", sorted({place for _, place in TAKEN}))
def test_a_name_that_means_the_same_is_taken_in_settings_and_recipes(place: str) -> None:
    data, path = base(place), place.split(".")
    for name in (name for name, other in TAKEN if other == place):
        for key in spellings(name, place):
            assert at(override(data, [f"{key}=7"]), path) == 7
            with pytest.raises(ValueError, match=rf"'{key}' is {place} here, and both are given"):
                override(data, [f"{key}=7", f"{place}=8"])
            assert override(data, [f"{key}=7"]) == override(data, [f"{place}=7"])
        if len(SAME[name]) == 1:
            assert at(override({**without(data, path), name: 7}, []), path) == 7
            with pytest.raises(ValueError, match="both are given"):
                override({**override(data, [f"{place}=8"]), name: 7}, [])


def without(data: dict[str, Any], path: list[str]) -> dict[str, Any]:
    head, *rest = path
    inside = data.get(head)
    if rest and isinstance(inside, dict):
        return {**data, head: without(inside, rest)}
    return {name: value for name, value in data.items() if name != head}


def test_a_setting_replaces_what_a_recipe_has_by_another_name() -> None:
    data = {**tree("lm"), "training": {"optimizer": {"kind": "adamw", "learning_rate": 1}, "num_train_epochs": 3}}
    assert override(data, ["training.optimizer.lr=2"])["training"] == {
        "optimizer": {"kind": "adamw", "lr": 2},
        "max_epochs": 3,
    }
    recipe = Recipe.load("lm", ["training={learning_rate: 0.5, optimizer: adamw, eval_steps: 7}"])
    assert (recipe.training.optimizer.lr, recipe.training.eval_every) == (0.5, 7)
    assert not set(SAME) & set(re.findall(r"^ *(\w+):", recipe.to_yaml(), re.M)) - {"lr", "weight_decay", *TOO}
    with pytest.raises(ValueError, match=r"'updates' and 'steps' are both training.max_steps here"):
        Recipe.load("lm", ["updates=3", "steps=4"])


TOO = ("clip_norm", "max_steps", "max_time")  # names that qkv has in another place


def test_a_name_that_a_part_from_outside_has_is_its_own() -> None:
    class Widths(ModelSpec, kind="widths-of-others"):
        hidden_size: int = 3
        initialization: Normal = Normal()

    try:
        data = {**tree("lm"), "model": {"preset": "widths-of-others"}}
        assert override(data, ["model.hidden_size=4"])["model"] == {"preset": "widths-of-others", "hidden_size": 4}
        assert qkv.preset("widths-of-others", hidden_size=5) == Widths(hidden_size=5)
    finally:
        del ModelSpec.kinds["widths-of-others"]


@pytest.mark.parametrize("place", sorted({place for _, place in TAKEN if place.startswith("model.")}))
def test_a_preset_takes_the_names_of_its_sizes(place: str) -> None:
    size = place.removeprefix("model.")
    preset = next(name for name in PRESETS if size in sizes_of(name))
    value = sizes_of(preset)[size] or (0.5 if "dropout" in size or size == "jitter" else 1)
    for name in (name for name, other in TAKEN if other == place):
        assert qkv.preset(preset, **{name: value}) == qkv.preset(preset, **{size: value})
        with pytest.raises(ValueError, match="both are given"):
            qkv.preset(preset, **{name: value, size: value})


def test_the_names_mean_what_the_families_of_the_hub_read() -> None:
    checked = 0
    for family in FAMILIES.values():
        for field in family.fields:
            if isinstance(field, Key) and not field.values:
                for name in field.keys:
                    meant = [place[6:] for place in SAME.get(name, ()) if place.startswith("model.")]
                    checked += bool(meant)
                    of_both = (
                        field.size == "encoder_layers" and "n_layers" in meant
                    )  # T5's decoder has as many by default
                    assert not meant or field.size in meant or of_both, (family.model_type, name)
    assert checked > 200


def test_generate_takes_the_names_of_its_options() -> None:
    values: dict[str, Any] = {"length_penalty": 2.0, "do_sample": True, "top_p": 0.5}
    for name, place in TAKEN:
        if place.startswith("generation."):
            field = place.removeprefix("generation.")
            value = values.get(field, 3)
            expected = qkv.Generation(**{field: value, **({"num_beams": 3} if field == "num_samples" else {})})
            beams: dict[str, Any] = {"num_beams": 3} if field == "num_samples" else {}
            assert qkv.Generation(**{name: value}, **beams) == expected
            replaced = qkv.Generation(**beams).replace(**{name: value})
            assert replaced == expected and field in replaced.model_fields_set
            with pytest.raises(ValueError, match="both are given"):
                qkv.Generation().replace({name: value, field: value})


def test_a_model_takes_the_names_of_tokens_that_end_and_pad() -> None:
    one, ids = model(), torch.arange(6)[None]
    expected = one.generate(ids, eos_id=3, pad_id=1, max_new_tokens=5)
    assert torch.equal(
        one.generate(ids, eos_token_id=None, pad_token_id=None, max_new_tokens=5), one.generate(ids, max_new_tokens=5)
    )
    assert torch.equal(one.generate(input_ids=ids, eos_token_id=3, pad_token_id=1, max_gen_len=5), expected)
    for theirs, name in ARGUMENTS["generate"].items():
        given: dict[str, Any] = {theirs: 1} if name == "ids" else {theirs: 1, name: 1}
        with pytest.raises(ValueError, match=f"'{theirs}' is {name} here, and both are given"):
            one.generate(ids, **given)


def test_an_encoder_decoder_starts_from_the_token_of_transformers_name() -> None:
    one = qkv.build(qkv.preset("t5-small", d_model=16, n_layers=1, n_heads=2, vocab_size=30))
    ids, given = torch.arange(6)[None], {"decoder_start_token_id": 4}
    assert torch.equal(one.generate(ids, bos_id=4, max_new_tokens=3), one.generate(ids, max_new_tokens=3, **given))


def test_load_takes_the_names_of_its_arguments(tmp_path: Any) -> None:
    model().save(tmp_path / "model")
    given: dict[str, Any] = {"pretrained_model_name_or_path": tmp_path / "model", "torch_dtype": torch.bfloat16}
    assert next(qkv.from_pretrained(**given).model.parameters()).dtype == torch.bfloat16
    given = {"model_name_or_path": tmp_path / "model", "torch_dtype": "auto"}
    assert next(qkv.load(**given).model.parameters()).dtype == torch.float32
    for theirs, name in ARGUMENTS["load"].items():
        with pytest.raises(ValueError, match=f"'{theirs}' is {name} here, and both are given"):
            qkv.load(tmp_path / "model", **{theirs: "bf16"}, **({} if name == "path" else {name: "bf16"}))


def test_train_takes_the_names_of_its_arguments_and_of_settings(tmp_path: Any) -> None:
    rows = [{"text": f"the cat {i} sat on the mat {i}"} for i in range(20)]
    sizes: dict[str, Any] = {"model.n_layers": 1, "model.d_model": 16, "model.n_heads": 2, "model.d_ff": 16}
    given: dict[str, Any] = {"train_dataset": rows, "eval_dataset": rows[:4], "output_dir": tmp_path / "run"}
    given |= {"max_steps": 2, "learning_rate": 0.25, "warmup_steps": 1, "run_name": "theirs", "random_seed": 5}
    run = qkv.train("lm", changes=sizes, overwrite_output_dir=False, progress=False, **given)
    recipe = run.recipe
    assert run.path == tmp_path / "run" and recipe is not None
    assert (recipe.training.max_steps, recipe.training.optimizer.lr, recipe.name, recipe.seed) == (2, 0.25, "theirs", 5)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"num_train_epochs": 3, "epochs": 4}, "training.max_epochs is given twice"),
        ({"num_train_epochs": 3, "n_epochs": 4}, "'num_train_epochs' and 'n_epochs' are both training.max_epochs here"),
        (
            {"num_train_epochs": 3, "changes": {"training.max_epochs": 4}},
            "'num_train_epochs' is training.max_epochs here, and both are given",
        ),
        ({"learning_rate": 1.0, "changes": {"lr": 2.0}}, "'lr' is training.optimizer.lr here, and both are given"),
        ({"output_dir": "x", "out": "y"}, "'output_dir' is out here, and both are given"),
        ({"learning_rate": 1.0, "changes": 3}, "changes are a dictionary of settings"),
        ({"block_size": 64}, "it is model.max_positions or batching.context here"),
        ({"num_key_value_heads": "two"}, "n_kv_heads"),
        ({"resid_pdrop": 0.1}, "it covers different layers"),
    ],
)
def test_an_option_of_train_by_two_names_or_none_is_one_sentence(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError) as error:
        qkv.train("lm", **given)
    assert said in str(error.value) and "\n" not in str(error.value)


def specs(cls: type[Spec]) -> list[type[Spec]]:
    return [one for each in cls.__subclasses__() for one in (each, *specs(each))]


NAMED_CLASSES = {name for name in IN_SPECS if name[0].isupper()}  # whose row holds in place of their role's


@pytest.mark.parametrize("name", IN_SPECS)
def test_specs_take_the_names_of_their_fields(name: str) -> None:
    kinds = [one for one in specs(Spec) if name in (one.__name__, one.role) and (one.kind or not one.role)]
    checked = 0
    for cls in kinds:
        for theirs, place in TAKEN:
            field = place.rpartition(".")[2]
            covered = any(f"{place}.".startswith(f"{part}.") for part in IN_SPECS[name])
            if (
                covered
                and field in cls.model_fields
                and theirs not in cls.model_fields
                and cls.__name__ not in NAMED_CLASSES - {name}
            ):
                value = {"context": 8, "eps": 0.5, "lr": 0.5}.get(field, 1)
                assert error_or_spec(cls, {theirs: value}) == error_or_spec(cls, {field: value}), (cls, theirs)
                with pytest.raises(ValueError, match=f"'{theirs}' is {field} here, and both are given"):
                    cls(**{theirs: value, field: value})
                checked += 1
    assert checked


def error_or_spec(cls: type[Spec], given: dict[str, Any]) -> Any:
    try:
        return cls(**given)
    except ValueError as error:
        return str(error)


def test_a_spec_takes_what_means_the_same_for_it_alone() -> None:
    attention: Any = qkv.Attention
    assert attention(num_attention_heads=4, num_key_value_heads=2, head_dim=8) == qkv.Attention(
        n_heads=4, n_kv_heads=2, d_head=8
    )
    assert qkv.Attention(n_heads=4).replace(num_key_value_heads=2) == qkv.Attention(n_heads=4, n_kv_heads=2)
    assert model().spec.replace({"decoder.blocks.*.attention.num_heads": 1}) == model().spec.replace(
        {"decoder.blocks.*.attention.n_heads": 1}
    )
    for wrong in ({"attention_dropout": 0.1}, {"sliding_window": 3}, {"rope_theta": 3.0}, {"lora_dropout": 0.1}):
        with pytest.raises(ValueError, match="no such field"):
            attention(n_heads=4, **wrong)
    latent: Any = qkv.LatentAttention
    with pytest.raises(ValueError, match="no such field"):
        latent(n_heads=4, head_dim=8)
    data = {"kind": "attention", "num_heads": 4}
    with pytest.raises(ValueError, match="no such field"):
        qkv.Attention.from_dict(data)  # files hold qkv's names


def arguments(name: str, *given: str) -> dict[str, Any]:
    found: Any = typer.main.get_command(app.app).get_command(None, name)  # type: ignore[arg-type, attr-defined]
    return found.make_context(name, list(given)).params


def test_commands_take_the_names_of_their_options() -> None:
    for name, option in OPTIONS.items():
        value = [] if option == "--overwrite" else ["2"]
        key = option.lstrip("-")
        assert arguments("train", "lm", f"--{name}", *value)[key] == arguments("train", "lm", option, *value)[key]
    assert arguments("train", "lm", "--num-train-epochs=3", "--max_update", "9", "--random-seed", "4") == arguments(
        "train", "lm", "--max-epochs=3", "--max-steps", "9", "--seed", "4"
    )
    for name, place in TAKEN:
        option = f"--{place.rpartition('.')[2].replace('_', '-')}"
        if place.startswith("generation.") and place != "generation.do_sample":
            assert arguments("generate", "run", f"--{name}", "3") == arguments("generate", "run", option, "3")
    with pytest.raises(Exception) as error:
        arguments("generate", "run", "--beam", "3", "--num-beams", "4")
    status, said = describe(error.value)  # type: ignore[arg-type]
    assert status == 2 and said.startswith("'--beam' is --num-beams here, and both are given; give one of them")
    assert arguments("generate", "run", "--", "--beam")["texts"] == ["--beam"]


def test_the_page_lists_every_name() -> None:
    assert PAGE.read_text(encoding="utf-8") == text(), "run python tests/helpers/other_options.py"


def model() -> Any:
    return qkv.build(qkv.preset("gpt2", d_model=16, n_layers=1, n_heads=2, vocab_size=30))


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda m, ids: m(input_ids=ids), "a model takes ids first: model(ids) returns a tensor of logits"),
        (lambda m, ids: m(ids, return_dict=True), "returns a tensor of logits"),
        (
            lambda m, ids: m(ids, attention_maks=ids),
            "a model has no argument 'attention_maks'; did you mean 'attention_mask'?",
        ),
        (lambda m, ids: m(), "ids is missing"),
        (lambda m, ids: m.generate(ids, bos_token_id=2), "model.generate takes bos_id"),
        (lambda m, ids: m.generate(prompts=ids), "a model takes ids first"),
        (lambda m, ids: m.generate(ids, max_length=9), "it is max_new_tokens here (the prompt is not counted)"),
        (
            lambda m, ids: qkv.preset("gpt2", resid_pdrop=0.1),
            "it is dropout here (it covers different layers",
        ),
        (
            lambda m, ids: qkv.Attention(n_heads=2, multi_query=True),
            "it is n_kv_heads here (1 for multi-query attention)",
        ),
        (lambda m, ids: qkv.train("lm", max_iters=3), "changes={'training.max_steps': …}"),
        (lambda m, ids: qkv.load("x", device_map="cpu"), "it is device here"),
        (
            lambda m, ids: qkv.load("x", use_safetensors=True),
            "qkv.load reads pickled weights only with allow_pickle=True",
        ),
    ],
)
def test_keywords_of_other_libraries_are_told_ours(call: Any, said: str) -> None:
    with pytest.raises(ValueError) as error:
        call(model(), torch.arange(6)[None])
    assert said in str(error.value)


def test_underscores_in_options_are_dashes() -> None:
    found: Any = typer.main.get_command(app.app).get_command(None, "generate")  # type: ignore[arg-type, attr-defined]
    context = found.make_context("generate", ["run", "--max_new_tokens=4", "--top_k", "3", "--", "--top_p"])
    assert (context.params["max_new_tokens"], context.params["top_k"]) == (4, 3)
    assert "--top_p" in context.params["texts"]
