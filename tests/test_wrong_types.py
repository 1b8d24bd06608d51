"""Every public function says in one sentence what is wrong with an argument of an obviously wrong type."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from run_untrained import TINY, bert, of, vit, words

import qkv
from qkv.export import gguf, onnx, torch_export
from qkv.inference.run import Run
from qkv.layers.lora import LoRA
from qkv.look import attention_picture
from qkv.models.heads.sequence import SequenceClassifier
from qkv.recipes.guess import guess
from qkv.tokenizers.tokenizer import Tokenizer
from qkv.tokenizers.tokenizer import train as train_tokenizer

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
        "fold": (qkv.fold, {"model": gpt.model}),
        "load": (qkv.load, {"path": str(new), "device": "cpu", "dtype": "float32", "weights": "int8"}),
        "load_adapter": (qkv.load_adapter, {"model": gpt.model, "path": str(new)}),
        "save_adapter": (qkv.save_adapter, {"model": gpt.model, "path": str(new)}),
        "preset": (qkv.preset, {"name": "gpt2", "n_layers": 1}),
        "prune": (qkv.prune, {"run": str(new), "out": str(new), "device": "cpu"}),
        "quantize": (qkv.quantize, {"run": str(new), "weights": "int8", "device": "cpu"}),
        "replace": (qkv.replace, {"model": gpt.model, "changes": {}}),
        "train": (qkv.train, {"recipe": "there-is-none", "out": str(new), "changes": {}, "data": str(new)}),
        "Recipe.load": (qkv.Recipe.load, {"name": "gpt", "settings": ()}),
        "Run.settings": (gpt.settings, {"num_beams": 1}),
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
        "Run.similarity": (gpt.similarity, {"a": "ab", "b": "ba"}),
        "Run.quantize": (gpt.quantize, {"weights": "int8", "keep": "*.down"}),
        "Run.record": (lambda names: gpt.record(names).__enter__(), {"names": "*"}),
        "Run.intervene": (lambda changes: gpt.intervene(changes).__enter__(), {"changes": {}}),
        "Run.look": (gpt.look, {"inputs": "ab"}),
        "Run.explain": (gpt.explain, {"name": "attention", "text": "ab"}),
        "Run.save": (gpt.save, {"path": str(new), "to": "qkv"}),
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
        "guess": (guess, {"path": str(new)}),
    }


NAMES = sorted(calls(Path()))
TENSORS = {"attend", "merge", "masked_layout", "weights"}  # PyTorch names the type itself
PATTERNS = {
    *("axial", "blocks", "by_head", "causal", "chunks", "dilated", "documents", "fixed", "full", "global_tokens"),
    *("neighborhood", "prefix", "random_blocks", "sinks", "strided", "window"),
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


@pytest.mark.parametrize("name", sorted(PATTERNS - {"causal", "documents", "full"}))
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
