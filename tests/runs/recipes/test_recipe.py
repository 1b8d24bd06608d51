from __future__ import annotations

import shlex
import warnings
from pathlib import Path

import pytest

import qkv
from qkv.core import yamls
from qkv.data.readers.audio import Sounds
from qkv.data.readers.coco_voc import Voc
from qkv.nn.positions.bias import ALiBi
from qkv.nn.positions.rotary import Rotary
from qkv.runs.recipes.packaged import packaged
from qkv.runs.recipes.recipe import Recipe
from qkv.runs.train.tokenizer import make


@pytest.mark.parametrize("name", sorted(packaged()))
def test_the_resolved_recipe_is_read_back_equal_and_builds_the_same_model(name: str, tmp_path: Path) -> None:
    decodes = getattr(Recipe.load(name).model.spec(7), "decoder", None)
    change = "model.decoder.position=alibi" if decodes else "training.max_steps=7"
    recipe = Recipe.load(name, [change]).resolve(123)
    (tmp_path / "r.yaml").write_text(recipe.to_yaml(), encoding="utf-8")
    again = Recipe.load(tmp_path / "r.yaml")
    assert again == recipe
    assert again.model.sizes.get("vocab_size", 123) == 123  # models of pictures have no vocabulary
    assert again.model.spec(7) == Recipe.load(name, [change]).model.spec(123)


def test_settings_reach_their_place() -> None:
    recipe = Recipe.load(
        "localise",
        [
            "data.languages=[pl,nb]",
            "training.schedule.warmup=7",
            "training.max_time=10m",
            "model.decoder.position=alibi",
            "model.encoder.position={kind: rotary, base: 500}",
            "model.d_model=64",
        ],
    )
    spec = recipe.model.spec(100)
    assert recipe.data.model_dump()["languages"] == ("pl", "nb")
    assert (recipe.training.schedule.warmup, recipe.training.max_time) == (7, 600)
    assert spec.encoder is not None and spec.decoder is not None
    assert (spec.encoder.position, spec.decoder.position, spec.d_model) == (Rotary(base=500), ALiBi(), 64)


def test_another_kind_keeps_what_it_has_of_the_recipes_values() -> None:
    """`speech` has made sounds with noise, which files have not."""
    for settings in (["data.kind=sounds", "data.path=x"], ["data.path=x", "data.kind=sounds"]):
        assert Recipe.load("speech", settings).data == Sounds(path="x")
    made = Recipe.load("speech", ["training.schedule.kind=linear", "training.optimizer.kind=lion"])
    usual = Recipe.load("speech").training
    assert made.training.schedule.warmup == usual.schedule.warmup
    assert made.training.optimizer.lr == usual.optimizer.lr  # type: ignore[attr-defined]
    assert Recipe.load("detect").change(["data.kind=voc", "data.path=x"]).data == Voc(path="x")
    with pytest.raises(
        ValueError,
        match=r"data of the kind 'sounds' has no 'noise'; leave 'data\.noise' out, or .*kind to one of any-digits, calls, ",
    ):
        Recipe.load("speech", ["data.kind=sounds", "data.noise=0.3"])
    with pytest.raises(ValueError, match=r"there is no 'data\.pth'"):
        Recipe.load("speech", ["data.kind=sounds", "data.pth=x"])


def test_a_preset_that_names_a_model_takes_its_own_sizes_but_those_given_beside_it() -> None:
    given = ["model.preset=qwen2-7b", "model.n_layers=2"]
    for settings in (given, given[::-1]):
        with pytest.warns(UserWarning, match="in place of the recipe's d_model=256, n_heads=4, max_positions=256"):
            recipe = Recipe.load("lm", settings)
        assert recipe.model.spec(500) == qkv.preset("qwen2-7b", n_layers=2, vocab_size=500, dropout=0.1)
    assert Recipe.load("lm", ["model=qwen2-7b"]).model.spec(500) == qkv.preset("qwen2-7b", vocab_size=500)
    with pytest.warns(UserWarning, match=r"to keep one, give it beside the preset: model\.d_model=64\)"):
        named_again = Recipe.load("classify", ["model.preset=bert-large"]).model
    assert (named_again.spec(9).d_model, named_again.sizes["pooler"]) == (1024, False)


def test_a_preset_that_names_an_architecture_takes_the_recipes_sizes() -> None:
    with pytest.warns(UserWarning, match=r"sets d_ff=11008 beside the recipe's sizes \(give model\.d_ff=…\)"):
        recipe = Recipe.load("lm", ["model.preset=llama"])
    sizes = {"d_model": 256, "n_layers": 4, "n_heads": 4, "dropout": 0.1, "max_positions": 256, "vocab_size": 500}
    assert recipe.model.spec(500) == qkv.preset("llama", **sizes)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Recipe.load("lm", ["model.preset=llama", "model.d_ff=64"])
        Recipe.load("lm", ["model.preset=gpt"])


def test_another_preset_drops_what_it_has_not_of_the_recipes_sizes() -> None:
    """Longformer has no next sentences to tell apart, and so no `labels`, which `answer` leaves out of BERT by."""
    given = ["model.preset=longformer-base-4096", "model.windows=8", "model.d_model=96"]
    for settings in (given, given[::-1]):
        with pytest.warns(UserWarning, match="and has no labels, which the recipe sets"):
            model = Recipe.load("answer", settings).model
        assert model.spec(90).encoder.blocks[0].attention.kind == "global-attention"  # type: ignore[union-attr]
        assert model.sizes["d_model"] == 96 and model.sizes["windows"] == 8 and "labels" not in model.sizes
    with pytest.raises(ValueError, match="preset 'longformer-base-4096' has no size 'labels'"):
        Recipe.load("answer", [*given, "model.labels=2"]).model.spec(90)
    with pytest.raises(ValueError, match="did you mean 'longformer-base-4096'"):
        Recipe.load("answer", ["model.preset=longformer-base"]).model.spec(90)


def test_a_length_in_epochs_takes_the_place_of_the_recipes_in_steps() -> None:
    """And the other way round; a setting of one is meant, a recipe's own is a default."""
    for settings, length in (
        (["training.max_epochs=3"], (None, 3)),
        (["training.max_epochs=3", "training.max_steps=9"], (9, 3)),
        (["training.max_steps=9"], (9, None)),
    ):
        training = Recipe.load("reverse", settings).training
        assert (training.max_steps, training.max_epochs) == length
    by_epochs = Recipe.load("reverse", ["training.max_epochs=3"])
    again = by_epochs.change(["training.max_steps=9"]).training
    assert (again.max_steps, again.max_epochs) == (9, None)


def test_a_classifier_on_a_decoder_reads_the_last_token() -> None:
    """If nothing else is said: a decoder's first token has seen nothing but itself."""

    def pool(*settings: str) -> str:
        recipe = Recipe.load("classify", settings)
        return recipe.resolve_data(make(recipe)).head.pool  # type: ignore[union-attr, no-any-return]

    assert pool() == "first" and pool("head.pool=mean") == "mean"
    assert pool("model.preset=gpt2") == "last" and pool("model.preset=gpt2", "head.pool=mean") == "mean"


@pytest.mark.parametrize("name", ["classify", "tag", "answer", "similarity", "choose"])
def test_heads_of_one_stack_on_two_are_told_before_training(name: str) -> None:
    with pytest.raises(ValueError, match="needs a single encoder or decoder, and this model has both"):
        Recipe.load(name, ["model.preset=t5-small", "model.replace={}"]).resolve_data(None)


def test_next_sentences_without_a_classifier_are_told_before_training() -> None:
    recipe = Recipe.load("bert", ["model.preset=roberta-base"])
    with pytest.raises(
        ValueError, match=r"model\.labels=2\), or train without sentence pairs \(task\.next_sentence=false"
    ):
        recipe.resolve_data(None)


@pytest.mark.parametrize("name", ["tag", "vit"])
def test_a_changed_recipe_leaves_to_the_data_what_it_did_not_say(name: str) -> None:
    recipe = Recipe.load(name)
    changed = recipe.change(["seed=7"])
    assert changed == recipe.model_copy(update={"seed": 7})
    assert changed.resolve_data(None) == recipe.resolve_data(None).change(["seed=7"])
    with pytest.raises(ValueError, match=r"head\.labels is 2, but the data have"):
        recipe.change(["head.labels=2"]).resolve_data(None)


def test_a_metric_that_the_data_do_not_have_is_told_before_training(tmp_path: Path) -> None:
    sentence = "1\tdog{}\td\tNOUN\n2\truns\tr\tVERB\n\n"
    (tmp_path / "x.conllu").write_text("".join(map(sentence.format, range(9))))
    given = ["data.kind=columns", f"data.path={tmp_path / 'x.conllu'}"]
    with pytest.raises(ValueError, match=r"is 'entity_f1', but the tags spell no entities \(NOUN, VERB\).*accuracy"):
        Recipe.load("tag", given).resolve_data(None)
    assert Recipe.load("tag", [*given, "training.metric=accuracy"]).resolve_data(None).head.labels == 2  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("localize", "did you mean 'localise'"),
        ("no/such.yaml", "there is no recipe file no/such.yaml"),
        ("no-such.yaml", "there is no recipe file no-such.yaml"),
    ],
)
def test_an_unknown_recipe_names_the_nearest(name: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Recipe.load(name)


def test_a_file_that_is_no_recipe_is_told_by_its_name(tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    for text, said in (
        ("[1, 2]", "is not a recipe"),
        ("name: x\nname: y", "given twice"),
        ("name: x", "data is missing"),
    ):
        path.write_text(text)
        with pytest.raises(ValueError, match=said):
            Recipe.load(path)
    path.write_bytes(b"name: \xff")
    with pytest.raises(ValueError, match=r"bad\.yaml is not UTF-8"):
        Recipe.load(path)


def commands() -> list[list[str]]:
    """The arguments of every `qkv train` in the recipes' comments and on their page."""
    page = (Path(__file__).parents[3] / "docs" / "recipes.md").read_text(encoding="utf-8")
    text = "\n".join([*packaged().values(), page]).replace("\\\n", " ").replace(" # ", " ").replace("     ", "  # ")
    lines = [line.lstrip("# ") for line in text.splitlines()]
    return [shlex.split(line, comments=True)[2:] for line in lines if line.startswith("qkv train ")]


@pytest.mark.parametrize("arguments", commands(), ids=" ".join)
def test_the_commands_that_are_shown_name_what_there_is(arguments: list[str]) -> None:
    settings = [text for text in arguments[1:] if "=" in text and not text.startswith("model=runs/")]
    recipe = Recipe.load(arguments[0], settings)
    assert recipe.model.spec(recipe.vocab_size).n_parameters


def test_yaml_of_a_recipe_keeps_norwegian() -> None:
    text = Recipe.load("localise", ["data.languages=[no]"]).to_yaml()
    assert isinstance(yamls.load(text)["data"]["languages"][0], str)


@pytest.mark.parametrize(
    ("metric", "mode"), [("wer", "max"), ("cer", "max"), ("loss", "max"), ("bleu", "min"), ("accuracy", "min")]
)
def test_a_metric_that_would_keep_the_worst_weights_is_refused(metric: str, mode: str) -> None:
    right = {"min": "max", "max": "min"}[mode]
    settings = [f"training.metric={metric}", f"training.mode={mode}"]
    with pytest.raises(
        ValueError, match=rf"training.mode is '{mode}', but \w+ {metric} is better; give training.mode={right}"
    ):
        Recipe.load("reverse", settings).resolve_data(None)
    Recipe.load("reverse", [settings[0], f"training.mode={right}"]).resolve_data(None)


@pytest.mark.parametrize("setting", ["task=regress", "task.kind=regress", "task={kind: regress, low: 0}"])
def test_another_task_brings_the_head_the_objective_and_the_metric_that_go_with_it(setting: str) -> None:
    made = Recipe.load("similarity", [setting])
    assert made.head is not None and (made.head.kind, made.objective.kind) == ("sequence-classifier", "labels")
    made = Recipe.load("classify", [setting])
    assert (made.training.metric, made.training.mode) == ("spearman", "max")
    assert made.head is not None and made.head.to_dict()["dropout"] == 0.1  # the recipe's, of the same kind
    assert made.training.max_steps == Recipe.load("classify").training.max_steps


def test_what_is_said_beside_another_task_stays() -> None:
    made = Recipe.load(
        "similarity", ["task=regress", "training.metric=pearson", "objective.kind=cosine", "head.pool=first"]
    )
    assert made.training.metric == "pearson" and made.objective.kind == "cosine"
    assert made.head is not None and made.head.kind == "sentence-vector"
    back = Recipe.load("classify", ["task=similarity"])
    assert back.head is not None and (back.head.kind, back.objective.kind) == ("sentence-vector", "cosine")


def test_a_forecaster_reads_as_many_patches_as_the_model_has() -> None:
    made = Recipe.load("forecast", ["model.patch=[1,12]"]).resolve_data(None)
    assert made.head is not None and made.head.to_dict()["patches"] == 8
    assert made.model.spec(0).head.patches == 8
    with pytest.raises(ValueError, match=r"head.patches is 12, and the model reads 8 patches; leave it out"):
        Recipe.load("forecast", ["model.patch=[1,12]", "head.patches=12"]).resolve_data(None).model.spec(0)


@pytest.mark.parametrize("preset", ["gpt2", "gpt"])
def test_a_preset_beside_the_name_of_a_trained_model_is_refused(preset: str) -> None:
    with pytest.raises(ValueError, match="give a preset, or the directory of a trained model, and not both"):
        Recipe.load("lm", ["model=small-english", f"model.preset={preset}"])
