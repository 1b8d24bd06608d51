"""Two threads that use one run at once get what each gets alone."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations_with_replacement
from pathlib import Path
from threading import Barrier, Thread
from typing import Any

import pytest
import torch
from run_untrained import bert, of, vit, words

import qkv
from qkv import record_attention
from qkv.data.tokenizers.tokenizer import train as train_tokenizer
from qkv.generation.settings import Generation
from qkv.look.view.figure import Figure
from qkv.nn.activations import ScaleActivation, Zero
from qkv.nn.attention import tap
from qkv.nn.models.heads.sequence import SequenceClassifier
from qkv.runs.inference.run import Run

TEXT, TIMES = "a b c a b", 4
Use = Callable[[Run, Path], Any]


@pytest.fixture(scope="module")
def run() -> Run:
    made = train_tokenizer("word", ["a b c d e f"])
    sizes = {"n_layers": 2, "d_model": 32, "n_heads": 4, "d_ff": 64, "max_positions": 64}
    model = qkv.build(qkv.preset("llama", vocab_size=made.vocab_size, **sizes)).eval()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape, generator=generator))
    return Run(model, made, Generation(max_new_tokens=12))


@pytest.fixture(autouse=True)
def impatient() -> Iterator[None]:
    """Threads take turns as often as possible."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def recorded(run: Run, _: Path) -> Any:
    with run.record("decoder.layers.*.attention.weights") as activations:
        run.score(TEXT)
        return {name: activations[name].clone() for name in activations}


def requested(run: Run, _: Path) -> Any:
    with torch.no_grad(), record_attention() as requests:
        run.model(torch.arange(5)[None])
    return [(one.name, tap.weights(one)) for one in requests]


def changed(run: Run, _: Path) -> Any:
    changes = {
        "decoder.layers.0.attention.heads": Zero(heads=[1]),
        "decoder.layers.1.attention.scores": ScaleActivation(0.5),
    }
    with run.intervene(changes):
        return run.generate(TEXT), run.score(TEXT).log_probs


def streamed(run: Run, _: Path) -> Any:
    pieces: list[str] = []
    return run.stream(TEXT, pieces.append), pieces


def saved(run: Run, folder: Path) -> Any:
    path = run.save(folder / str(len(list(folder.glob("*")))))
    return sorted((each.name, each.stat().st_size) for each in path.iterdir())


USES: dict[str, Use] = {
    "generate": lambda run, _: run.generate(TEXT),
    "beams": lambda run, _: run.generate(TEXT, num_beams=3),
    "stream": streamed,
    "sample": lambda run, _: run.generate([TEXT], num_samples=2, do_sample=True, seed=3),
    "score": lambda run, _: run.score(TEXT).log_probs,
    "embed": lambda run, _: run.embed(TEXT, pooling="mean"),
    "similarity": lambda run, _: run.similarity(TEXT, "c c a"),
    "record": recorded,
    "requests": requested,
    "intervene": changed,
    "look": lambda run, _: [
        (view.facts, [[x.weights for x in g.layers] for g in view.groups]) for view in run.look(TEXT).views
    ],
    "explain": lambda run, _: repr(qkv.explain("attention", run, TEXT)),
    "quantize": lambda run, _: run.quantize("int8").generate(TEXT),
    "save": saved,
}
PAIRS = list(combinations_with_replacement(USES, 2))
FAST = [("generate", name) for name in ("record", "requests", "intervene", "look", "explain")]
FAST += [(name, name) for name in ("requests", "intervene", "look")]


def same(found: Any, wanted: Any) -> bool:
    """Whether results are equal, numbers but for rounding."""
    if isinstance(found, torch.Tensor):
        return torch.allclose(found, wanted, rtol=1e-3, atol=1e-5)
    if isinstance(found, float):
        return abs(found - wanted) <= 1e-4 * max(1.0, abs(wanted))
    if isinstance(found, dict):
        return found.keys() == wanted.keys() and all(same(found[key], wanted[key]) for key in found)
    if isinstance(found, list | tuple):
        return len(found) == len(wanted) and all(same(a, b) for a, b in zip(found, wanted, strict=True))
    return bool(found == wanted)


@pytest.mark.parametrize(
    "pair",
    [
        pytest.param(
            pair,
            id="-".join(pair),
            marks=[*([] if pair in FAST else [pytest.mark.slow]), *([pytest.mark.lab] if "explain" in pair else [])],
        )
        for pair in PAIRS
    ],
)
def test_two_uses_at_once_give_what_each_gives_alone(run: Run, pair: tuple[str, str], tmp_path: Path) -> None:
    check_at_once(run, [USES[name] for name in pair], tmp_path)


def noted(call: Callable[[Run], Any], names: str = "*.attention.weights") -> Use:
    """A use that records activations by name beside its own result."""

    def use(run: Run, _: Path) -> Any:
        with run.record(names) as activations:
            result = call(run)
            return result, {name: activations[name].clone() for name in activations}

    return use


def without_a_head(call: Callable[[Run], Any], stack: str) -> Use:
    def use(run: Run, _: Path) -> Any:
        with run.intervene({f"{stack}.layers.0.attention.heads": Zero(heads=[1])}):
            return call(run)

    return use


def weights_of(figure: Figure) -> Any:
    return [[[layer.weights for layer in group.layers] for group in view.groups] for view in figure.views]


def uses_of(call: Callable[[Run], Any], stack: str, look: str) -> dict[str, Use]:
    return {
        "call": lambda run, _: call(run),
        "record": noted(call),
        "intervene": without_a_head(call, stack),
        "look": lambda run, _: weights_of(run.look(look)),
        "quantize": lambda run, _: call(run.quantize("int8")),
    }


def translated(run: Run) -> Any:
    return run.generate("abc", max_new_tokens=5), run.generate("abc", num_beams=2, max_new_tokens=5)


@pytest.fixture(scope="module")
def others() -> dict[str, tuple[Run, dict[str, Use]]]:
    """Models of other kinds, and what is done with each."""
    pixels = torch.rand(1, 3, 16, 16)
    translator = of("transformer-base", words(), "translate", max_positions=32)
    masked = of("bert-base", words(), "read", max_positions=32)
    return {
        "translator": (translator, uses_of(translated, "encoder", "abc")),
        "scorer": (translator, uses_of(lambda run: run.score("abc", "cab").log_probs, "decoder", "abc")),
        "classifier": (
            bert(SequenceClassifier(labels=2)),
            uses_of(lambda run: repr(run.classify("abc")), "encoder", "abc"),
        ),
        "masked": (masked, uses_of(lambda run: repr(run.fill("a<mask>", top_k=2)), "encoder", "abc")),
        "embedder": (masked, uses_of(lambda run: run.embed("abc", pooling="mean"), "encoder", "abc")),
        "pictures": (vit(), uses_of(lambda run: run.model(pixels), "encoder", "")),
    }


KINDS = ("translator", "scorer", "classifier", "masked", "embedder", "pictures")
OTHER_USES = ("call", "record", "intervene", "look", "quantize")
OTHER_PAIRS = list(combinations_with_replacement(OTHER_USES, 2))
FAST_OTHERS = [("call", "intervene"), ("call", "look")]
# The picture of attention of a model of pictures needs the recipe of a run.
CASES = [(kind, pair) for kind in KINDS for pair in OTHER_PAIRS if kind != "pictures" or "look" not in pair]


@pytest.mark.parametrize(
    ("kind", "pair"),
    [
        pytest.param(kind, pair, id="-".join((kind, *pair)), marks=() if pair in FAST_OTHERS else pytest.mark.slow)
        for kind, pair in CASES
    ],
)
def test_other_models_are_used_by_two_threads(
    others: dict[str, tuple[Run, dict[str, Use]]], kind: str, pair: tuple[str, str], tmp_path: Path
) -> None:
    run, uses = others[kind]
    check_at_once(run, [uses[name] for name in pair], tmp_path)


def check_at_once(run: Run, pair: Sequence[Use], tmp_path: Path) -> None:
    """Two threads that use a run at once get what each use gets alone."""
    alone = [use(run, tmp_path / f"alone {i}") for i, use in enumerate(pair)]
    start, found, errors = Barrier(2), [[], []], []

    def work(i: int) -> None:
        try:
            start.wait()
            for _ in range(TIMES):
                found[i].append(pair[i](run, tmp_path / str(i)))
        except BaseException as error:
            errors.append(error)

    threads = [Thread(target=work, args=(i,)) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    for mine, wanted in zip(found, alone, strict=True):
        assert all(same(one, wanted) for one in mine)
    assert not tap.recording()
