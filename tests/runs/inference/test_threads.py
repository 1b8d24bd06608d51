"""Two threads that use one run at once get what each gets alone."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from itertools import combinations_with_replacement
from pathlib import Path
from threading import Barrier, Thread
from typing import Any

import pytest
import torch

import qkv
from qkv import record_attention
from qkv.data.tokenizers.tokenizer import train as train_tokenizer
from qkv.generation.settings import Generation
from qkv.nn.activations import ScaleActivation, Zero
from qkv.nn.attention import tap
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
    "pair", [pytest.param(pair, id="-".join(pair), marks=() if pair in FAST else pytest.mark.slow) for pair in PAIRS]
)
def test_two_uses_at_once_give_what_each_gives_alone(run: Run, pair: tuple[str, str], tmp_path: Path) -> None:
    alone = [USES[name](run, tmp_path / f"alone {i}") for i, name in enumerate(pair)]
    start, found, errors = Barrier(2), [[], []], []

    def work(i: int) -> None:
        try:
            start.wait()
            for _ in range(TIMES):
                found[i].append(USES[pair[i]](run, tmp_path / str(i)))
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
