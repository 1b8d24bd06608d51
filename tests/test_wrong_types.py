"""Every public function says in one sentence what is wrong with an argument of a wrong type or with a long value."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from public_parts import WRONG as WRONG_PARTS
from public_parts import parts
from run_untrained import TINY, bert, of, vit, words

import qkv
from qkv.core.spec import brief
from qkv.data.tokenizers.tokenizer import Tokenizer
from qkv.data.tokenizers.tokenizer import train as train_tokenizer
from qkv.data.vectors import word2vec_format
from qkv.data.vectors.word_vectors import Vectors
from qkv.generation import generate, score
from qkv.generation.grammar.rules import Grammar
from qkv.io.directories.save import save
from qkv.io.hub.gguf import container
from qkv.lab.ablate.ablation import Ablation
from qkv.lab.ablate.study import run_ablation
from qkv.lab.laws.points import read_points
from qkv.lab.reproduce.entry import PublishedFigure, PublishedResult
from qkv.lab.reproduce.reproduce import reproduce
from qkv.lab.scaling.scaling import scale
from qkv.lab.scaling.study import ScalingStudy
from qkv.lab.tune.study import tune
from qkv.lab.tune.tuning import Tuning
from qkv.learn.explain.registry import resolved as check_explanation
from qkv.learn.tour.pages import find
from qkv.look import attention_picture
from qkv.nn.activations import sites
from qkv.nn.cost.accelerators import accelerator
from qkv.nn.cost.flops import BatchShape
from qkv.nn.cost.roofline import roofline
from qkv.nn.layers.lora import LoRA
from qkv.nn.models.heads.sequence import SequenceClassifier
from qkv.runs.compare.compare import compare
from qkv.runs.compare.comparison import Comparison
from qkv.runs.evaluate.evaluate import evaluate_run
from qkv.runs.export import gguf, onnx, torch_export
from qkv.runs.inference.run import Run
from qkv.runs.recipes.guess import guess
from qkv.training.logging.metrics_file import read_metrics

WRONG = (None, 3, 2.5, b"ab", [None], [3], ["ab", None], {"a": 1}, {3}, object())

Call = tuple[Callable[..., Any], dict[str, Any]]


@cache
def runs() -> dict[str, Run]:
    return {
        "gpt": of("gpt2", words(), "continue"),
        "classifier": bert(SequenceClassifier(labels=2)),
        "masked": of("bert-base", words(), "read", max_positions=32),
        "vit": vit(),
    }


def calls(place: Path) -> dict[str, Call]:
    """The public functions with arguments that they take; each of these is replaced by a wrong one."""
    gpt, classifier, masked, pictures = runs().values()
    tokenizer, short = words(), gpt.settings(max_new_tokens=1)
    new = place / "new"
    assert gpt.path is None and gpt.tokenizer is not None
    return {
        "adapt": (lambda model, adapter: qkv.adapt(model, adapter), {"model": 3, "adapter": LoRA()}),
        "build": (qkv.build, {"spec": gpt.model.spec, "device": "cpu"}),
        "ensemble": (qkv.ensemble, {"runs": [gpt, gpt], "weights": [1.0, 2.0], "mode": "linear"}),
        "fold": (qkv.fold, {"model": gpt.model}),
        "load": (qkv.load, {"path": str(new), "device": "cpu", "dtype": "float32", "weights": "int8"}),
        "from_pretrained": (qkv.from_pretrained, {"path": str(new), "device": "cpu"}),
        "load_adapter": (qkv.load_adapter, {"model": gpt.model, "path": str(new)}),
        "save_adapter": (qkv.save_adapter, {"model": gpt.model, "path": str(new)}),
        "preset": (qkv.preset, {"name": "gpt2", "n_layers": 1}),
        "prune": (qkv.prune, {"run": str(new), "out": str(new), "device": "cpu"}),
        "quantize": (qkv.quantize, {"run": str(new), "weights": "int8", "device": "cpu"}),
        "with_media": (
            lambda model, medium: qkv.with_media(model, medium),
            {"model": gpt.model.spec, "medium": qkv.Medium(name="image", token=0, reads=qkv.Patches())},
        ),
        "replace": (qkv.replace, {"model": gpt.model, "changes": {}}),
        "train": (qkv.train, {"recipe": "there-is-none", "out": str(new), "changes": {}, "data": str(new)}),
        "Recipe.load": (qkv.Recipe.load, {"name": "gpt", "settings": ()}),
        "Run.settings": (gpt.settings, {"num_beams": 1}),
        "Run.constrained": (gpt.constrained, {"grammar": Grammar("")}),
        "Run.generate": (gpt.generate, {"texts": "ab", "stop": "a", "max_new_tokens": 1}),
        "Run.outputs": (lambda **given: gpt.outputs(settings=short, **given), {"texts": ["ab"], "stop": "a"}),
        "Run.stream": (lambda **given: gpt.stream(emit=str, settings=short, **given), {"prompt": "ab", "stop": "a"}),
        "Run.chat": (gpt.chat, {"messages": [{"role": "user", "content": "ab"}]}),
        "Run.score": (gpt.score, {"texts": "ab", "targets": "ab"}),
        "Run.embed": (gpt.embed, {"texts": "ab", "pooling": "mean", "prompt": None}),
        "Run.embed_array": (gpt.embed_array, {"texts": ["ab"]}),
        "Run.fill": (masked.fill, {"texts": "a<mask>", "top_k": 1}),
        "Run.classify": (classifier.classify, {"texts": "ab", "pairs": "ba"}),
        "Run.classify_files": (pictures.classify_files, {"paths": "x.png"}),
        "Run.predict": (classifier.predict, {"inputs": "ab"}),
        "Run.transcribe": (gpt.transcribe, {"sounds": "x.wav"}),
        "Run.similarity": (gpt.similarity, {"a": "ab", "b": "ba"}),
        "Run.quantize": (gpt.quantize, {"weights": "int8", "keep": "*.down"}),
        "Run.record": (lambda names: gpt.record(names).__enter__(), {"names": "*"}),
        "Run.intervene": (lambda changes: gpt.intervene(changes).__enter__(), {"changes": {}}),
        "Run.look": (gpt.look, {"inputs": "ab"}),
        "explain": (qkv.explain, {"name": "attention", "run": gpt, "text": "ab"}),
        "Run.save": (gpt.save, {"path": str(new), "to": "qkv"}),
        "Run.save_pretrained": (gpt.save_pretrained, {"path": str(new), "to": "qkv"}),
        "Run.push": (gpt.push, {"repository": "a/b", "dry_run": True}),
        "Tokenizer.save": (tokenizer.save, {"path": str(new)}),
        "Tokenizer.load": (Tokenizer.load, {"path": str(new)}),
        "Tokenizer.encode": (tokenizer.encode, {"text": "ab"}),
        "Tokenizer.encode_batch": (tokenizer.encode_batch, {"texts": ["ab"]}),
        "Tokenizer.with_template": (tokenizer.with_template, {"texts": ["ab"]}),
        "Tokenizer.decode": (tokenizer.decode, {"ids": [1]}),
        "Tokenizer.decode_batch": (tokenizer.decode_batch, {"rows": [[1]]}),
        "Tokenizer.tokens": (tokenizer.tokens, {"ids": [1]}),
        "tokenizer.train": (train_tokenizer, {"spec": "char", "texts": ["ab"]}),
        "gguf.save": (gguf.save, {"model": gpt.model, "path": str(new), "tokenizer": tokenizer}),
        "to_onnx": (lambda target: onnx.to_onnx(gpt, target), {"target": ""}),
        "to_torch_export": (lambda target: torch_export.to_torch_export(gpt, target), {"target": ""}),
        "pictures.save": (lambda path: attention_picture.save(path, []), {"path": str(new)}),
        "pictures.load": (attention_picture.load, {"path": str(new)}),
        "guess": (lambda path: guess(path), {"path": str(new)}),
        "read_points": (read_points, {"path": str(new)}),
        "read_metrics": (lambda path: list(read_metrics(path)), {"path": str(new)}),
        "container.read": (container.read, {"path": str(new)}),
        "container.read_file": (container.read_file, {"path": str(new)}),
        "save": (lambda labels: save(gpt.model, new, labels=labels), {"labels": "a"}),
        "generate": (lambda model, draft: generate(model, [[3]], draft=draft), {"model": gpt.model, "draft": None}),
        "score": (lambda model: score(model, [[3, 4]]), {"model": gpt.model}),
        "sites": (sites, {"model": gpt.model}),
        "accelerator": (accelerator, {"given": "h100"}),
        "roofline": (
            lambda precision: roofline(gpt.model.spec, BatchShape(1, 8), accelerator("h100"), precision),
            {"precision": "bf16"},
        ),
        "Vectors": (Vectors, {"words": ("a", "b"), "array": numpy.ones((2, 3), "float32")}),
        "vectors.read": (word2vec_format.read, {"path": str(new), "encoding": "utf-8"}),
        **studies(new),
    }


@cache
def recorded() -> Run:
    """A run with a recipe, whose data are generated."""
    gpt, recipe = runs()["gpt"], qkv.Recipe.load("reverse")
    return Run(gpt.model, gpt.tokenizer, task="continue", recipe=recipe)


@cache
def entry() -> PublishedResult:
    """A published result without commands; its figure stands in a file."""
    figure = PublishedFigure(name="accuracy", published=1.0, file="found.json", key="accuracy")
    about = {"name": "toy", "title": "A toy", "source": "Nobody", "link": "https://example.org", "minutes": 1.0}
    return PublishedResult(**about, steps=(), figures=(figure,), differences=("It is smaller.",))  # type: ignore[arg-type]


RATES, SIZES = "training.optimizer.lr=0.1,0.2", {"sizes": "16x1", "budgets": 1e12, "hold_out": "none"}


def studies(new: Path) -> dict[str, Call]:
    """The functions of the studies. Those that train get nothing but wrong directories."""
    ablation, tuning = Ablation.load("reverse", vary=RATES), Tuning.load("reverse", space=RATES)
    comparison, ladder = Comparison.load("bottleneck"), ScalingStudy.load("stdlib", **SIZES)
    assert comparison is not None
    flags, device = {"resume": False, "overwrite": False}, {"device": "cpu"}
    return {
        "Ablation.load": (Ablation.load, {"name": "reverse", "settings": (), "vary": RATES, "parts": "scale"}),
        "Tuning.load": (Tuning.load, {"name": "reverse", "settings": (), "space": RATES}),
        "Comparison.load": (Comparison.load, {"name": "bottleneck", "settings": ()}),
        "Study.load": (ScalingStudy.load, {"name": "stdlib", "settings": (), **SIZES}),
        "Entry.load": (PublishedResult.load, {"name": "listops"}),
        "run_ablation": (run_ablation, {"ablation": ablation, "out": 3, **flags, "jobs": 1, "limit": 1.0, **device}),
        "tune": (
            tune,
            {
                "tuning": tuning,
                "out": 3,
                **flags,
                "jobs": 1,
                "limit": 1.0,
                **device,
                "recipe": "reverse",
                "settings": (),
            },
        ),
        "compare": (compare, {"comparison": comparison, "out": 3, **flags, **device}),
        "scale": (
            scale,
            {"study": ladder, "out": 3, **flags, "jobs": 1, "seconds": 1.0, "plan": False, "bootstrap": 9, **device},
        ),
        "is_gguf": (container.is_gguf, {"path": str(new)}),
        "reproduce": (lambda data, out: reproduce(entry(), data, out), {"data": None, "out": str(new)}),
        "prune, changes": (
            lambda out, changes: qkv.prune(recorded(), out, changes=changes),
            {"out": str(new), "changes": ()},
        ),
        "evaluate_run": (
            lambda data, evaluation: evaluate_run(recorded(), "none", data, evaluation=evaluation),
            {"data": "test=8", "evaluation": "examples=1"},
        ),
    }


NAMES = sorted(calls(Path()))
TENSORS = {"attend", "merge", "masked_layout", "weights"}  # PyTorch names the type itself
PATTERNS = {
    *("axial", "blocks", "by_head", "causal", "chunks", "dilated", "documents", "fixed", "full", "global_tokens"),
    *("grid_windows", "media", "neighborhood", "prefix", "random_blocks", "sinks", "strided", "window"),
}
OTHER = {"record_attention", "Run.dequantize"}  # without an argument


def test_all_public_functions_are_walked() -> None:
    functions = {name for name in qkv.__all__ if inspect.isfunction(getattr(qkv, name))}
    methods = {f"Run.{name}" for name, one in vars(Run).items() if inspect.isfunction(one) and not name.startswith("_")}
    assert functions | methods == {name for name in NAMES if name in functions | methods} | TENSORS | PATTERNS | OTHER


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.filterwarnings("ignore")
def test_an_argument_of_a_wrong_type_is_a_value_error(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    function, given = calls(tmp_path)[name]
    refused = 0
    for argument, right in given.items():
        for wrong in WRONG:
            if wrong is None and right is None:
                continue
            try:
                function(**{**given, argument: wrong})
            except ValueError as error:
                refused += 1
                assert str(error).strip() and len(str(error)) < 1000, (argument, wrong)
    assert refused


@pytest.mark.parametrize("name", parts())
@pytest.mark.filterwarnings("ignore")
def test_a_function_of_values_says_which_argument_is_wrong(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    function, given = parts()[name]
    function(**given)
    for argument in given:
        for wrong in WRONG_PARTS:
            try:
                function(**{**given, argument: wrong})
            except ValueError as error:
                assert str(error).strip() and len(str(error)) < 1000, (argument, wrong)
            except OverflowError:
                assert name == "attend" and wrong == 10**30  # a kernel's own words


@pytest.mark.parametrize("name", sorted(PATTERNS - {"causal", "documents", "full", "media"}))
def test_a_pattern_refuses_a_wrong_size(name: str) -> None:
    function = getattr(qkv, name)
    parameters = inspect.signature(function).parameters
    for wrong in ("a", [None], object()):
        arguments = [wrong] * max(1, sum(one.default is one.empty for one in parameters.values()))
        with pytest.raises(ValueError):
            function(*arguments)


def test_texts_are_never_characters() -> None:
    gpt = runs()["gpt"]
    whole = gpt.generate("ab", max_new_tokens=30, seed=0, temperature=1.0)
    stop = whole[10:12]
    assert gpt.generate("ab", max_new_tokens=30, seed=0, temperature=1.0, stop=stop) == whole[: whole.index(stop)]
    pieces: list[str] = []
    settings = gpt.settings(max_new_tokens=30, seed=0, temperature=1.0)
    assert gpt.stream("ab", pieces.append, settings, stop=stop).text == "".join(pieces) == whole[: whole.index(stop)]
    changed = qkv.Recipe.load("gpt", "training.max_steps=7")
    assert changed.training.max_steps == 7 == qkv.Recipe.load("gpt").change("training.max_steps=7").training.max_steps


def test_one_text_is_one_setting_of_a_study(tmp_path: Path) -> None:
    assert Ablation.load("reverse", vary=RATES) == Ablation.load("reverse", vary=[RATES])
    assert Ablation.load("reverse", parts="scale") == Ablation.load("reverse", parts=["scale"])
    assert Tuning.load("reverse", space=RATES) == Tuning.load("reverse", space=[RATES])
    assert ScalingStudy.load("stdlib", **SIZES) == ScalingStudy.load(
        "stdlib", **{**SIZES, "sizes": ["16x1"], "budgets": [1e12]}
    )
    for wrong in ("data", "evaluation"):
        with pytest.raises(ValueError, match="there is no split 'none'"):
            evaluate_run(recorded(), "none", **{wrong: "test=8" if wrong == "data" else "samples=1"})
    with pytest.raises(ValueError, match="settings of the recipe are for the fine-tuning"):
        qkv.prune(recorded(), tmp_path / "new", layers=1, changes="seed=1")
    with pytest.warns(UserWarning, match="2 labels have no names: 1 name is given"):
        save(runs()["classifier"].model, tmp_path / "one", "hub", labels="ab")
    assert qkv.load(tmp_path / "one").model.spec.head == runs()["classifier"].model.spec.head


@pytest.mark.slow
def test_a_directory_of_a_study_is_a_string_or_a_path(tmp_path: Path) -> None:
    (tmp_path / "found.json").write_text('{"accuracy": 0.5}')
    comparison = Comparison.load("bottleneck")
    assert comparison is not None
    trains: tuple[Callable[[str], Any], ...] = (
        lambda out: run_ablation(Ablation.load("reverse", vary=RATES), out),
        lambda out: tune(Tuning.load("reverse", space=RATES), out),
        lambda out: compare(comparison, out),
        lambda out: scale(ScalingStudy.load("scaling"), out),
    )
    for train in trains:
        with pytest.raises(ValueError, match="holds something that is not"):
            train(str(tmp_path))
    done = reproduce(entry(), str(tmp_path), str(tmp_path))
    assert done.result is not None and done.result.figures == {"accuracy": 0.5}
    (tmp_path / "points.csv").write_text("parameters,tokens,loss\n10,200,3\n")
    (tmp_path / "metrics.jsonl").write_text('{"type": "train", "step": 1}\n')
    assert len(read_points(str(tmp_path / "points.csv"))) == 1
    assert len(list(read_metrics(str(tmp_path / "metrics.jsonl")))) == 1


@pytest.mark.parametrize(
    ("study", "given", "message"),
    [
        ("run_ablation", {"jobs": "x"}, "jobs must be a number of at least 1, not 'x', a str"),
        (
            "run_ablation",
            {"ablation": "reverse"},
            "ablation has to be of type Ablation, as Ablation.load makes one, not 'reverse'",
        ),
        ("tune", {"jobs": 1.5}, "jobs must be a whole number of at least 1, not 1.5, a float"),
        ("tune", {"limit": float("nan")}, "limit must be a number of at least 0, not nan, a float"),
        ("scale", {"jobs": 0}, "jobs must be a number of at least 1, not 0, an int"),
        ("scale", {"plan": 1}, "plan is True or False, not 1, an int"),
        ("scale", {"device": "tpu"}, "there is no device 'tpu'"),
        ("compare", {"resume": "yes"}, "resume is True or False, not 'yes', a str"),
    ],
)
def test_an_argument_of_a_study_is_checked_before_it_trains(
    study: str, given: dict[str, Any], message: str, tmp_path: Path
) -> None:
    function, right = calls(tmp_path)[study]
    with pytest.raises(ValueError, match=f"^{message}"):
        function(**{**right, "out": str(tmp_path / "new"), **given})
    assert not (tmp_path / "new").exists()


def test_nothing_gives_nothing() -> None:
    runs_ = runs()
    assert runs_["gpt"].generate([]) == runs_["gpt"].score([]) == runs_["gpt"].embed([]) == []
    assert runs_["classifier"].classify([]) == runs_["classifier"].predict([]) == runs_["masked"].fill([]) == []
    assert runs_["vit"].model.spec.d_model == TINY["d_model"]


def test_texts_come_in_any_row(tmp_path: Path) -> None:
    import numpy as np

    classifier = runs()["classifier"]
    listed = classifier.classify(["ab", "ba"])
    for rows in (("ab", "ba"), np.array(["ab", "ba"]), iter(["ab", "ba"])):
        assert classifier.classify(rows) == listed
    pairs = classifier.predict([("a", "b"), ("a\tb", "c")])
    assert [one.value for one in pairs] == classifier.classify(["a", "a\tb"], ["b", "c"])
    assert classifier.predict(["a\tb"])[0].fields == pairs[0].fields and pairs[1].input == "a\tb\tc"


# -- long values ------------------------------------------------------------------------------------------------------

LONG = "mistake " * 3 + "x" * 50_000
VALUES = (
    LONG,
    LONG + "=1",
    f"model.{LONG}=1",
    f"seed={LONG}",
    f"a/{LONG}",
    [LONG],
    {LONG: 1},
    {"a": LONG},
    (LONG, LONG),
)
LONGEST = 1000


def told(function: Callable[..., Any], *args: Any, **given: Any) -> int:
    """How many errors were raised: each is short. Errors other than ValueError come from the system and from PyTorch."""
    try:
        function(*args, **given)
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        assert len(str(error)) < LONGEST, (
            f"{type(error).__name__} of {len(str(error)):,} characters: {str(error)[:300]}"
        )
        return 1
    except OSError:
        return 1
    return 0


@pytest.mark.parametrize("name", sorted({*NAMES} - {"run_ablation", "tune", "compare", "scale"}))  # which would train
@pytest.mark.filterwarnings("ignore")
def test_an_error_about_a_long_argument_is_short(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    function, given = calls(tmp_path)[name]
    for argument in given:
        for value in VALUES:
            told(function, **{**given, argument: value})


Q = torch.zeros(1, 2, 1, 8)
OTHERS: dict[str, Callable[[str], Any]] = {
    "preset": qkv.preset,
    "preset, size": lambda long: qkv.preset("gpt2", **{long: 1}),
    "preset, value": lambda long: qkv.preset("gpt2", position=long),
    "preset, number": lambda long: qkv.preset("gpt2", n_layers=long),
    "backend": lambda long: qkv.attend(Q, Q, Q, backend=long),
    "place in a spec": lambda long: qkv.preset("gpt2").replace({long: 1}),
    "deep place in a spec": lambda long: qkv.preset("gpt2").replace({f"decoder.{long}": 1}),
    "kind of a part": lambda long: qkv.preset("gpt2").replace({"decoder.position": long}),
    "kind in a dictionary": lambda long: qkv.preset("gpt2").replace({"decoder.position": {"kind": long}}),
    "key of a part": lambda long: qkv.preset("gpt2").replace({"decoder.position": {"kind": "alibi", long: 1}}),
    "recipe": qkv.Recipe.load,
    "recipe's file": lambda long: qkv.Recipe.load(f"{long}.yaml"),
    "setting": lambda long: qkv.Recipe.load("reverse", [f"training.{long}=1"]),
    "value of a setting": lambda long: qkv.Recipe.load("reverse", [f"training.max_steps={long}"]),
    "optimizer": lambda long: qkv.Recipe.load("reverse", [f"training.optimizer={long}"]),
    "data": lambda long: qkv.Recipe.load("reverse", [f"data={long}"]),
    "model": lambda long: qkv.Recipe.load("reverse", [f"model={long}"]).spec(),
    "tokenizer": lambda long: qkv.Recipe.load("lm", [f"tokenizer={long}"]),
    "device": lambda long: qkv.load("small-english", device=long),
    "weights": lambda long: qkv.load("small-english", weights=long),
    "ablation": lambda long: Ablation.load("reverse", vary=f"{long}=1,2"),
    "explanation": check_explanation,
    "page of the tour": find,
    "file": guess,
}


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.filterwarnings("ignore")
def test_an_error_about_a_long_value_is_short(name: str) -> None:
    assert told(OTHERS[name], LONG)


def test_a_value_is_shortened_in_its_middle() -> None:
    assert brief("short") == "'short'"
    assert brief(LONG).startswith("'mistake") and brief(LONG).endswith("x'") and len(brief(LONG)) < 100
    assert len(brief([LONG] * 50)) < LONGEST and len(brief({LONG: {LONG: [LONG]}})) < LONGEST


@pytest.mark.parametrize("wrong", [None, 3, 2.5, True, [], {}, object(), b"x", ["a", 3], (1, 2)])
def test_sources_and_tokenizers_take_splits_seeds_roles_and_texts(wrong: Any) -> None:
    source, tokenizer = qkv.data.Copy(train=9, validation=2, test=2), words()
    calls: list[Callable[[], object]] = [
        lambda: source.table(wrong),
        lambda: list(source.examples(wrong)),
        lambda: list(source.texts(wrong)),
        lambda: tokenizer.id(wrong),
        lambda: tokenizer.require(wrong),
        lambda: tokenizer.with_sources(wrong),
        lambda: Tokenizer(wrong),
        lambda: Tokenizer.from_json(wrong),
        lambda: container.split_files(wrong),
    ]
    if not isinstance(wrong, int):
        calls.append(lambda: list(source.examples("train", seed=wrong)))
    for call in calls:
        with pytest.raises(ValueError, match=r"."):
            call()
    assert container.split_files("a/model.gguf") == [Path("a/model.gguf")]
