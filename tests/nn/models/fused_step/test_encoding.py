"""Kernels for whole sequences give what the modules give, and leave to them what they can't do or would hide."""

from __future__ import annotations

import copy
import gc
import threading
import weakref
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import fused_models
import pytest
import torch
from fast_subset import thinned
from fused_models import apart, counted_calls, varied_model
from torch import Tensor

import qkv
from qkv.core.layout import Layout
from qkv.nn.attention import tap
from qkv.nn.kernels.native import encoding as native
from qkv.nn.kernels.native.products import PANELS, in_one_order
from qkv.nn.models import stack
from qkv.nn.models.fused_step import description
from qkv.nn.models.fused_step.encoding import reads_in_panels
from qkv.nn.models.quantized.quantize import quantize
from qkv.nn.models.transformer import TransformerModel
from qkv.nn.quantization.scheme import Scheme

pytestmark = pytest.mark.skipif(
    not native.ready(torch.float32), reason="the kernels for whole sequences need a C++ compiler and AVX-512"
)

SIZES = {"d_model": 32, "n_layers": 2, "n_heads": 4, "d_ff": 64, "vocab_size": 50}
ROTARY = {"kind": "rotary", "fraction": 0.5, "pairs": "interleaved"}
LENGTHS = {"equal": [13, 13, 13], "unequal": [13, 1, 40, 7], "long": [301, 64]}

MODELS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "encoder": ("transformer", {}, {}),
    "bert": ("bert-base", {"max_positions": 400}, {}),
    "gpt": ("gpt", {"max_positions": 400}, {}),
    "llama": ("llama", {"n_kv_heads": 2}, {}),
    "norm of the sum": ("openai-gpt", {"max_positions": 400}, {}),
    "parallel, half rotated": ("gpt", {"position": ROTARY}, {"*.placement": {"kind": "parallel"}}),
    "one norm for both": ("gpt", {"position": "none"}, {"*.placement": {"kind": "parallel"}, "*.shared_norm": True}),
    "sandwich, ALiBi": ("gpt", {"position": "alibi"}, {"*.placement": {"kind": "sandwich"}}),
    "norm of the output, T5": ("llama", {"position": "t5"}, {"*.placement": {"kind": "res-post"}}),
    "scaled residual": ("gpt", {"max_positions": 400}, {"*.placement": {"kind": "deepnorm", "alpha": 1.3}}),
    "normed queries, capped": ("llama", {}, {"*.attention.qk_norm": {"kind": "rmsnorm"}, "*.attention.softcap": 2.0}),
    "all heads normed": ("gpt", {}, {"*.attention.qk_norm": {"kind": "layernorm"}, "*.attention.qk_norm_over": "all"}),
    "values of another width": ("llama", {}, {"*.attention.d_value": 24, "*.residual_multiplier": 0.5}),
}


def model(name: str, dtype: torch.dtype = torch.float32, **other: int) -> TransformerModel:
    preset, sizes, changes = MODELS[name]
    return varied_model(preset, SIZES | other | sizes, changes, dtype)


def stack_of(built: TransformerModel) -> Any:
    return built.decoder if built.encoder is None else built.encoder


def tokens(lengths: list[int]) -> Tensor:
    return torch.randint(0, 50, (len(lengths), max(lengths)), generator=torch.Generator().manual_seed(2))


def states(built: TransformerModel, layout: Layout, lengths: list[int]) -> Tensor:
    """The outputs of the real tokens."""
    return stack_of(built)(tokens(lengths), layout)[layout.valid.expand(len(lengths), -1)].float()


def by_modules(monkeypatch: pytest.MonkeyPatch, built: TransformerModel, layout: Layout, lengths: list[int]) -> Tensor:
    return fused_models.by_modules(monkeypatch, lambda: states(built, layout, lengths), "fused_encoding")


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Numbers of tokens of the calls of the kernels so far."""
    return counted_calls(monkeypatch, native, lambda x, *rest: len(x))


@pytest.fixture(autouse=True)
def _no_gradients() -> Iterator[None]:
    with torch.no_grad():
        yield


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS)
def test_what_the_modules_give(
    name: str, lengths: list[int], calls: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    built, layout = model(name), Layout.from_lengths(lengths)
    found = states(built, layout, lengths)
    assert calls == [sum(lengths)]
    assert apart(found, by_modules(monkeypatch, built, layout, lengths)) < 1e-5


@pytest.mark.parametrize("name", ["bert", "gpt", "llama"])
def test_padding_on_the_left(name: str, calls: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    lengths = LENGTHS["unequal"]
    built, layout = model(name), Layout.from_lengths(lengths, side="left")
    found = states(built, layout, lengths)
    assert calls == [sum(lengths)]
    assert apart(found, by_modules(monkeypatch, built, layout, lengths)) < 1e-5


@pytest.mark.parametrize("name", ["bert", "llama", "norm of the output, T5"])
def test_bf16_is_as_near_as_the_modules_are(name: str, calls: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    lengths = LENGTHS["long"]
    built, layout = model(name, torch.bfloat16), Layout.from_lengths(lengths)
    if not native.ready(torch.bfloat16):
        pytest.skip("PyTorch is faster in bf16 on this processor")
    found = states(built, layout, lengths)
    exact = by_modules(monkeypatch, copy.deepcopy(built).double(), layout, lengths)
    modules = by_modules(monkeypatch, built, layout, lengths)
    assert apart(found, exact) < 1.1 * apart(modules, exact)


@pytest.mark.parametrize("name", ["bert", "llama"])
def test_quantized_weights_are_as_near_as_by_the_modules(
    name: str, calls: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Roundings of activations differ if sums differ in their last bits, so both are compared with exact outputs."""
    lengths = LENGTHS["unequal"]
    built, layout = model(name), Layout.from_lengths(lengths)
    exact = by_modules(monkeypatch, copy.deepcopy(built).double(), layout, lengths)
    quantize(built, Scheme(weights="int8", activations="int8"))
    found = states(built, layout, lengths)
    assert apart(found, exact) < 1.2 * apart(by_modules(monkeypatch, built, layout, lengths), exact)


@pytest.mark.parametrize("name", ["gpt", "llama", "parallel, half rotated"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_prompts_fill_the_cache(
    name: str, dtype: torch.dtype, calls: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next steps, which read the cache, are what they are after the modules read the prompt."""
    built, prompt = model(name, dtype), tokens([37] * 3)

    def logits() -> Tensor:
        cache = built.start(batch_size=3)
        found = [built.step(prompt, cache)] + [built.step(prompt[:, i : i + 1], cache) for i in range(3)]
        return torch.stack(found).float()

    found = logits()
    assert calls == ([3 * 37] if native.ready(dtype) else [])
    monkeypatch.setattr(stack, "fused_encoding", lambda *about: None)
    assert apart(found, logits()) < (1e-5 if dtype == torch.float32 else 0.03)


PROMPT = 150
CUTS = ([32, 64, 96, 128], [1, 2, 3, 149], [149], [13, 77, 78])


CODES = [
    pytest.param(Scheme(weights=kind, activations="int8", group_size=group), marks=pytest.mark.slow, id=kind)
    for kind, group in (("int8", None), ("int4", 32))
]


@pytest.mark.parametrize("name", thinned(name for name in MODELS if name not in ("encoder", "bert")))
@pytest.mark.parametrize("scheme", [None, *CODES])
def test_a_prompt_gets_the_same_bits_wherever_it_is_cut(name: str, scheme: Scheme | None, calls: list[int]) -> None:
    built = model(name) if scheme is None else model(name, d_model=64)  # codes of 4 bits need multiples of 64
    if scheme is not None:
        quantize(built, scheme)
        if not reads_in_panels(built.decoder, torch.float32):
            pytest.skip("the processor has no kernels for these codes in panels")
    ids = tokens([PROMPT])
    with torch.inference_mode():
        usual = read(built, ids, [])
        calls.clear()
        with in_one_order(PANELS):
            whole = read(built, ids, [])
            pieces = [read(built, ids, cuts) for cuts in CUTS]
    assert len(calls) == 1 + sum(len(cuts) + 1 for cuts in CUTS)
    assert all(torch.equal(a, b) for each in pieces for a, b in zip(each, whole, strict=True))
    assert max(apart(a, b) for a, b in zip(whole, usual, strict=True)) < 1e-5


def read(built: TransformerModel, ids: Tensor, cuts: list[int]) -> list[Tensor]:
    """The logits after a prompt that is read in pieces, and the keys and values that are then in its cache."""
    cache: Any = built.start(1)
    for start, stop in pairwise([0, *cuts, ids.shape[1]]):
        logits = built.step(ids[:, start:stop], cache)
    return [logits, *(x.clone() for state in cache.layers for x in state.tensors().values())]


@pytest.mark.parametrize("name", ["gpt", "llama"])
def test_prompts_of_unequal_lengths(name: str, calls: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    lengths = [37, 5, 20]
    built, layout, prompt = model(name), Layout.from_lengths(lengths, side="left"), tokens(lengths)

    def logits() -> Tensor:
        cache = built.start(batch_size=3)
        found = [built.step(prompt, cache, layout)] + [built.step(prompt[:, i : i + 1], cache) for i in range(3)]
        return torch.stack(found)

    found = logits()
    assert calls == [sum(lengths)]
    monkeypatch.setattr(stack, "fused_encoding", lambda *about: None)
    assert apart(found, logits()) < 1e-5


def test_a_prompt_after_others_is_for_the_modules(calls: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    built, prompt = model("gpt"), tokens([70])
    cache = built.start(batch_size=1)
    found = [built.step(prompt[:, :35], cache), built.step(prompt[:, 35:], cache)]
    assert calls == [35]
    whole = built.step(prompt, built.start(batch_size=1))
    torch.testing.assert_close(found[1], whole, rtol=1e-4, atol=1e-5)


def refused(built: TransformerModel, monkeypatch: pytest.MonkeyPatch, calls: list[int], lengths: list[int]) -> None:
    """The modules compute these, with the same result."""
    layout = Layout.from_lengths(lengths)
    found = states(built, layout, lengths)
    assert calls == []
    torch.testing.assert_close(found, by_modules(monkeypatch, built, layout, lengths))


def test_what_is_left_to_the_modules(calls: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    long = [40, 40]
    refused(model("bert"), monkeypatch, calls, [5, 4])  # few tokens
    window = model("bert").spec.replace({"encoder.blocks.1.attention.pattern": {"kind": "window", "size": 4}})
    refused(qkv.build(window).eval(), monkeypatch, calls, long)  # type: ignore[arg-type]
    watched, seen = model("bert"), list[str]()
    stack_of(watched).blocks[1].feedforward.register_forward_hook(lambda *about: seen.append("called"))
    refused(watched, monkeypatch, calls, long)
    assert seen == ["called"] * 2
    with tap.record_attention():
        refused(model("bert"), monkeypatch, calls, long)
    with torch.autocast("cpu", torch.bfloat16):
        refused(model("bert"), monkeypatch, calls, long)
    states(model("bert").train(), Layout.from_lengths(long), long)
    with torch.enable_grad():
        states(model("bert"), Layout.from_lengths(long), long).sum().backward()
    assert calls == []


def test_documents_in_a_row_are_left_to_the_modules(calls: list[int]) -> None:
    stack_of(model("gpt"))(tokens([40]), Layout.packed([[20, 20]]))
    assert calls == []


def test_changes_of_a_model_are_seen(calls: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights that move, layers that are replaced, hooks that come later and settings that change."""
    lengths = LENGTHS["equal"]
    built, layout = model("bert"), Layout.from_lengths(lengths)
    block = stack_of(built).blocks[1]

    def check() -> None:
        found = states(built, layout, lengths)
        assert apart(found, by_modules(monkeypatch, built, layout, lengths)) < 1e-5

    check()
    block.feedforward.up.weight.data = block.feedforward.up.weight.data * 2.0
    check()
    block.feedforward = copy.deepcopy(stack_of(built).blocks[0].feedforward)
    check()
    block.attention.scale = 0.1
    check()
    assert len(calls) == 4
    block.feedforward.forward = lambda x: x * 0.0
    check()
    block.attention.register_forward_hook(lambda *about: None)
    check()
    assert len(calls) == 4


def test_calls_at_once_do_not_meet(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that several threads use: one of them has the kernels, the others the modules."""
    built, runs = model("llama"), list(LENGTHS.values())
    layouts = [Layout.from_lengths(lengths) for lengths in runs]
    wanted = [by_modules(monkeypatch, built, *both) for both in zip(layouts, runs, strict=True)]
    worst = []

    def work(i: int) -> None:
        with torch.inference_mode():
            for _ in range(20):
                worst.append(apart(states(built, layouts[i], runs[i]), wanted[i]))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(runs))]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert len(worst) == 60 and max(worst) < 1e-5


def test_descriptions_do_not_keep_models(calls: list[int]) -> None:
    built = model("bert")
    states(built, Layout.from_lengths([40]), [40])
    known = weakref.ref(stack_of(built))
    assert known() in description._KNOWN
    del built
    gc.collect()
    assert known() is None
