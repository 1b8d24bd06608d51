"""The fused step over quantized caches gives what the modules give, and leaves the cache as they do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import torch
from fused_models import apart, by_modules, counted_calls, varied_model
from torch import Tensor

from qkv.nn.kernels.native import decoding_step as native
from qkv.nn.kernels.native import quantized_kv
from qkv.nn.kernels.native.structures import CodesStruct
from qkv.nn.kv_cache.cache import Cache
from qkv.nn.kv_cache.kinds import QuantizedCache
from qkv.nn.kv_cache.quantization import quantize
from qkv.nn.models.fused_step import reason_against
from qkv.nn.models.transformer import TransformerModel

pytestmark = pytest.mark.skipif(not native.ready(), reason="there is no C++ compiler here")

SIZES = {"d_model": 32, "n_layers": 2, "n_heads": 4, "d_ff": 48, "vocab_size": 50}
WINDOW = {"kind": "and", "parts": [{"kind": "causal"}, {"kind": "window", "size": 20}]}
MODELS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "gpt": ("gpt", {"max_positions": 100}, {}),
    "grouped": ("llama", {"n_kv_heads": 2}, {}),
    "one head, 64 wide": ("llama", {"n_heads": 2, "n_kv_heads": 1, "d_model": 128}, {}),
    "ALiBi": ("gpt", {"position": "alibi"}, {}),
    "capped": ("llama", {}, {"*.attention.softcap": 2.0}),
    "window": ("llama", {}, {"*.attention.pattern": WINDOW}),
    "encoder–decoder": ("transformer", {}, {}),
}
CACHES = [
    QuantizedCache(bits=bits, group=group, residual=residual)
    for bits, group, residual in ((8, 8, 4), (4, 8, 4), (8, 12, 0), (4, 20, 8))
]
FEW_CACHES = CACHES[:2]


@pytest.fixture(autouse=True)
def _no_gradients() -> Iterator[None]:
    with torch.inference_mode():
        yield


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Numbers of layers of the calls of the kernels so far."""
    return counted_calls(monkeypatch, native, lambda x, layers, count, *rest: count)


def model(name: str, dtype: torch.dtype = torch.float32) -> TransformerModel:
    preset, sizes, changes = MODELS[name]
    return varied_model(preset, SIZES | sizes, changes, dtype)


def steps_of(
    built: TransformerModel, kind: QuantizedCache, counts: list[int], before: Callable[[Cache], None] | None = None
) -> tuple[Tensor, Cache]:
    """Logits of steps of so many tokens each after a prompt of 21, and the cache; `before` changes it in the middle."""
    random = torch.Generator().manual_seed(2)
    source = {"source": torch.arange(12).view(2, 6)} if built.is_encoder_decoder else {"batch_size": 2}
    cache = built.start(**source, cache=kind)
    found = [built.step(torch.randint(50, (2, 21), generator=random), cache)]
    for i, count in enumerate(counts):
        if before is not None and i == len(counts) // 2:
            before(cache)
        ids = torch.randint(50, (2, count), generator=random)
        found.append(built.step(ids[: cache.batch_size], cache, all_positions=True))
    return torch.cat([x.flatten().float() for x in found]), cache


def both(
    built: TransformerModel,
    kind: QuantizedCache,
    counts: list[int],
    monkeypatch: pytest.MonkeyPatch,
    before: Callable[[Cache], None] | None = None,
) -> tuple[tuple[Tensor, Cache], tuple[Tensor, Cache]]:
    """Logits and cache, by the fused step and by the modules."""
    found = steps_of(built, kind, counts, before)
    return found, by_modules(monkeypatch, lambda: steps_of(built, kind, counts, before))


def tensors_of(cache: Cache) -> list[Tensor]:
    return [tensor for state in cache.layers for tensor in state.tensors().values()]  # type: ignore[attr-defined]


def is_alike(found: Cache, wanted: Cache) -> bool:
    """Whether two caches have the same tokens, up to rounding, in the same slots."""
    for one, other in zip(found.layers, wanted.layers, strict=True):
        tensors, others = one.tensors(), other.tensors()  # type: ignore[attr-defined]
        for name, mine in tensors.items():
            theirs = others[name]
            assert mine.shape == theirs.shape and mine.dtype == theirs.dtype
            step = 1 if name.endswith("data") else 1e-2 * float(theirs.abs().max())
            assert (mine.int() - theirs.int() if name.endswith("data") else mine - theirs).abs().max() <= step
    return True


@pytest.mark.parametrize("kind", FEW_CACHES, ids=str)
@pytest.mark.parametrize("name", ["grouped", "one head, 64 wide"])
def test_steps_over_codes(name: str, kind: QuantizedCache, calls: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    found, wanted = both(model(name), kind, [1] * 11, monkeypatch)
    assert len(calls) == 11
    assert apart(found[0], wanted[0]) < 1e-5
    assert is_alike(found[1], wanted[1]) and found[1].nbytes == wanted[1].nbytes


@pytest.mark.slow
@pytest.mark.parametrize("kind", CACHES, ids=str)
@pytest.mark.parametrize("name", MODELS)
def test_steps_of_any_length(
    name: str, kind: QuantizedCache, calls: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Steps that a buffer has no room for are for the modules; codes may round to either side if sums differ in a bit."""
    found, wanted = both(model(name), kind, [1, 3, 2, 1, 4, 1, 1, 3, 1, 1, 2, 1, 1, 4], monkeypatch)
    assert 8 <= len(calls) <= 14
    assert apart(found[0], wanted[0]) < 1e-4
    assert is_alike(found[1], wanted[1])


@pytest.mark.parametrize(
    "before",
    [
        lambda cache: cache.reorder(torch.tensor([1, 0])),
        lambda cache: cache.reorder(torch.tensor([1])),
        lambda cache: cache.rewind(1),
        lambda cache: cache.rewind(14),
        lambda cache: cache.rewind_rows([1, 3]),
    ],
    ids=["two rows", "one row", "one token", "tokens with codes", "unequal rows"],
)
def test_steps_follow_changes_of_the_cache(
    before: Callable[[Cache], None], calls: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    found, wanted = both(model("grouped"), CACHES[0], [1] * 12, monkeypatch, before)
    assert len(calls) == 12
    assert apart(found[0], wanted[0]) < 1e-4
    assert is_alike(found[1], wanted[1])


def test_a_fork_is_not_changed_by_later_steps(calls: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    twins, kept = list[Cache](), list[list[Tensor]]()

    def fork(cache: Cache) -> None:
        twins.append(cache.fork())
        kept.append([tensor.clone() for tensor in tensors_of(twins[-1])])

    found, wanted = both(model("grouped"), CACHES[0], [1] * 6, monkeypatch, fork)
    assert len(calls) == 6
    for twin, then in zip(twins, kept, strict=True):
        assert twin.length == 21 + 3 and len(then) >= 4
        assert all(torch.equal(a, b) for a, b in zip(tensors_of(twin), then, strict=True))
    assert is_alike(*twins) and is_alike(found[1], wanted[1])


@pytest.mark.parametrize("bits", [8, 4])
def test_bf16_is_as_near_as_the_modules_are(bits: Any, calls: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    kind = QuantizedCache(bits=bits, group=8, residual=4)
    found, wanted = both(model("grouped", torch.bfloat16), kind, [1] * 9, monkeypatch)
    assert len(calls) == 9
    exact, _ = by_modules(monkeypatch, lambda: steps_of(model("grouped", torch.bfloat16).double(), kind, [1] * 9))
    assert apart(found[0], exact) < 1.1 * apart(wanted[0], exact)


def test_a_long_cache_has_several_parts(calls: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of about 512 tokens are summed up apart, by threads."""
    built, kind = model("one head, 64 wide"), QuantizedCache(group=64, residual=0)
    ids = torch.randint(50, (1, 700), generator=torch.Generator().manual_seed(0))

    def run() -> Tensor:
        cache = built.start(1, cache=kind)
        built.step(ids, cache)
        return torch.cat([built.step(torch.tensor([[i]]), cache) for i in range(3)])

    found = run()
    assert len(calls) == 3
    assert apart(found, by_modules(monkeypatch, run)) < 1e-5


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gpt", "grouped", "capped", "window"])
def test_fifty_greedy_tokens(name: str, calls: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    built = model(name)
    prompt = torch.arange(40).view(2, 20) % 50
    for kind in CACHES:
        calls.clear()
        run = partial(built.generate, prompt, max_new_tokens=50, cache=kind)
        found = run()
        assert len(calls) > 40
        assert torch.equal(found, by_modules(monkeypatch, run))


def test_what_keeps_a_cache_out_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    built = model("one head, 64 wide")
    wide = built.start(1, cache=QuantizedCache(group=512))
    assert "groups of more than 256 tokens" in str(reason_against(built.decoder, wide))
    monkeypatch.setattr(quantized_kv, "_amx", object)
    assert reason_against(built.decoder, built.start(1, cache=QuantizedCache(group=64))) is None
    assert "a matrix unit" in str(reason_against(built.decoder, built.start(1, cache="int8")))


def test_codes_that_the_kernels_cannot_read_are_refused() -> None:
    x, made = torch.randn(2, 2, 16, 8), CodesStruct()
    keys, values = quantize(x, 8, "channel", 8), quantize(x, 8, "token", 8)
    quantized_kv.describe(made, keys, values, 2)
    assert (made.groups, made.group, made.bits, made.k) == (2, 8, 8, keys.data.data_ptr())
    with pytest.raises(ValueError, match="3 groups of each head"):
        quantized_kv.describe(made, keys, values, 3)
    with pytest.raises(ValueError, match="the same number"):
        quantized_kv.describe(made, keys, quantize(x, 8, "token", 4), 2)
    with pytest.raises(ValueError, match="at least one number"):
        quantized_kv.describe(made, quantize(x[:, :, :0], 8, "channel", 8), values, 0)
    apart_heads = keys.with_tensors(keys.data.transpose(0, 1), keys.scale, keys.zero_point)
    with pytest.raises(ValueError, match="side by side"):
        quantized_kv.describe(made, apart_heads, values, 2)
