"""The fused step gives what the modules give, whatever the layers are, and leaves to them what it can't do or would hide."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from fused_models import apart, by_modules, counted_calls, varied_model
from torch import Tensor, nn

import qkv
from qkv.core.layout import Layout
from qkv.nn.attention import tap
from qkv.nn.kernels.native import decoding_step as native
from qkv.nn.kv_cache.kinds import QuantizedCache
from qkv.nn.models.fused_step import reason_against
from qkv.nn.models.quantized.dequantize import dequantize
from qkv.nn.models.quantized.quantize import quantize
from qkv.nn.models.transformer import TransformerModel
from qkv.nn.quantization.scheme import Scheme

pytestmark = pytest.mark.skipif(not native.ready(), reason="there is no C++ compiler here")

SIZES = {"d_model": 32, "n_layers": 2, "n_heads": 4, "d_ff": 48, "vocab_size": 50}
WIDER = {"d_model": 64, "d_ff": 128}  # whole blocks of the kernels for codes
TOLERANCE = 1e-5
ROTARY = {"kind": "rotary", "fraction": 0.5, "pairs": "interleaved"}
WINDOW = {"kind": "and", "parts": [{"kind": "causal"}, {"kind": "window", "size": 6}]}

EXPERTS = {"kind": "moe", "n_experts": 6, "top_k": 2, "d_ff": 24}
SHARED = EXPERTS | {
    "score": "sigmoid",
    "bias_rate": 0.01,
    "scale": 2.5,
    "shared": {"kind": "feedforward", "d_ff": 40, "gated": True, "activation": "silu"},
    "shared_gate": True,
}
LORA = qkv.LoRA(rank=3, layers=("*.attention.[qv]", "*.attention.out", "*.feedforward.*"))

MODELS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "gpt": ("gpt", {"max_positions": 40}, {}),
    "llama": ("llama", {"n_kv_heads": 2}, {}),
    "encoder–decoder": ("transformer", {}, {}),
    "norm of the sum": ("openai-gpt", {"max_positions": 40}, {}),
    "parallel, half rotated": ("gpt", {"position": ROTARY}, {"*.placement": {"kind": "parallel"}}),
    "one norm for both": ("gpt", {"position": "none"}, {"*.placement": {"kind": "parallel"}, "*.shared_norm": True}),
    "sandwich, ALiBi": ("gpt", {"position": "alibi"}, {"*.placement": {"kind": "sandwich"}}),
    "norm of the output, T5": ("llama", {"position": "t5"}, {"*.placement": {"kind": "res-post"}}),
    "scaled residual": ("gpt", {"max_positions": 40}, {"*.placement": {"kind": "deepnorm", "alpha": 1.3}}),
    "a ring buffer": ("llama", {}, {"*.attention.pattern": WINDOW, "*.residual_multiplier": 0.5}),
    "normed queries, capped": ("llama", {}, {"*.attention.qk_norm": {"kind": "rmsnorm"}, "*.attention.softcap": 2.0}),
    "experts": ("gpt", {"max_positions": 40}, {"*.feedforward": EXPERTS}),
    "experts in parallel": (
        "gpt",
        {"position": ROTARY},
        {"*.feedforward": EXPERTS, "*.placement": {"kind": "parallel"}},
    ),
    "gates of the chosen": ("llama", {}, {"*.feedforward": EXPERTS | {"score": "top-k-softmax", "gated": False}}),
    "experts and a shared layer": ("llama", {}, {"*.feedforward": SHARED}),
    "all heads normed": ("gpt", {}, {"*.attention.qk_norm": {"kind": "layernorm"}, "*.attention.qk_norm_over": "all"}),
}


def model(name: str, dtype: torch.dtype = torch.float32, **other: int) -> TransformerModel:
    preset, sizes, changes = MODELS[name]
    return varied_model(preset, SIZES | other | sizes, changes, dtype)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Numbers of layers of the calls of the kernels so far."""
    return counted_calls(monkeypatch, native, lambda x, layers, count, *rest: count)


@pytest.fixture(autouse=True)
def _no_gradients() -> Iterator[None]:
    with torch.inference_mode():
        yield


Change = Callable[[Any], None]


def logits(
    built: TransformerModel, steps: list[Tensor], rows: int = 3, before: Change | None = None, prompt: Any = None
) -> Tensor:
    """Logits of some steps after a prompt of 5 tokens; `before` changes the cache in the middle."""
    prompt = torch.arange(5 * rows).view(rows, 5) if prompt is None else prompt
    source = {"source": torch.arange(6 * rows).view(rows, 6) % 50} if built.is_encoder_decoder else {"batch_size": rows}
    cache = built.start(**source)
    found = [built.step(prompt, cache)]
    for i, ids in enumerate(steps):
        if before is not None and i == len(steps) // 2:
            before(cache)
        found.append(built.step(ids[: cache.batch_size], cache, all_positions=True))
    return torch.cat([x.flatten().float() for x in found])


def tokens(steps: int, rows: int = 3, count: int = 1) -> list[Tensor]:
    random = torch.Generator().manual_seed(2)
    return [torch.randint(0, 50, (rows, count), generator=random) for _ in range(steps)]


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("count", [1, 3])
def test_what_the_modules_give(name: str, count: int, calls: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    built, steps = model(name), tokens(6, count=count)
    found = logits(built, steps)
    prompt, ring = (
        1,
        name == "a ring buffer",
    )  # a ring buffer takes its first tokens, and several at once, from the modules
    assert len(calls) == ((6 if count == 1 else 0) if ring else prompt + 6)
    assert apart(found, by_modules(monkeypatch, lambda: logits(built, steps))) < TOLERANCE


@pytest.mark.parametrize("name", ["gpt", "llama", "encoder–decoder"])
def test_bf16_is_as_near_as_the_modules_are(name: str, calls: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    built, steps = model(name, torch.bfloat16), tokens(4)
    found = logits(built, steps)
    assert len(calls) == 1 + 4
    exact = by_modules(monkeypatch, lambda: logits(copy.deepcopy(built).double(), steps))
    modules = by_modules(monkeypatch, lambda: logits(built, steps))
    assert apart(found, exact) < 1.1 * apart(modules, exact)


@pytest.mark.parametrize(
    "scheme",
    [
        {"weights": "int8"},
        {"weights": "int8", "activations": "int8"},
        {"weights": "int8", "group_size": 32, "activations": "int8"},
        {"weights": "int4", "group_size": 32},
        {"weights": "int4", "group_size": 32, "activations": "int8"},
        {"weights": "int4", "symmetric": False, "activations": "int8"},
    ],
    ids=str,
)
@pytest.mark.parametrize("name", ["gpt", "llama", "encoder–decoder"])
def test_quantized_weights_give_exact_outputs_within_rounding(
    name: str, scheme: dict[str, Any], calls: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Activations are rounded either way if sums differ in their last bits, so both are compared with exact outputs."""
    built, steps = model(name, **WIDER), tokens(6, count=2)
    quantize(built, Scheme(**scheme), embeddings=True, head=True)
    found = logits(built, steps)
    assert len(calls) == 1 + 6
    modules = by_modules(monkeypatch, lambda: logits(built, steps))
    if scheme.get("activations") != "int8":
        assert apart(found, modules) < TOLERANCE
        return
    dequantize(built)
    exact = by_modules(monkeypatch, lambda: logits(built.double(), steps))
    assert 1e-3 < apart(found, exact) < 1.2 * apart(modules, exact)


@pytest.mark.parametrize(
    "scheme", [{"weights": "nf4"}, {"weights": "fp8"}, {"weights": "int8", "symmetric": False}], ids=str
)
def test_formats_without_kernels_are_for_the_modules(scheme: dict[str, Any], calls: list[int]) -> None:
    built = model("gpt", **WIDER)
    quantize(built, Scheme(**scheme))
    logits(built, tokens(2))
    assert not calls


@pytest.mark.parametrize("scheme", [{"weights": "int8"}, {"weights": "int4", "group_size": 32}], ids=str)
def test_quantized_experts(scheme: dict[str, Any], calls: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    wide = EXPERTS | {"d_ff": 64}
    built = varied_model("llama", SIZES | WIDER, {"*.feedforward": wide})
    quantize(built, Scheme(**scheme))
    steps = tokens(3)
    found = logits(built, steps)
    assert len(calls) == 1 + 3
    assert apart(found, by_modules(monkeypatch, lambda: logits(built, steps))) < TOLERANCE


def adapted(
    name: str, adapter: qkv.LoRA, scheme: Scheme | None = None, dtype: torch.dtype = torch.float32, **other: int
) -> TransformerModel:
    """A model, quantized or not, with an adapter that changes its outputs."""
    plain = model(name, dtype, **other)
    if scheme is not None:
        quantize(plain, scheme)
    crossed = ("*.cross.q",) if plain.is_encoder_decoder else ()
    built = qkv.adapt(plain, adapter.replace(layers=adapter.layers + crossed))
    random = torch.Generator().manual_seed(3)
    for parameter_name, parameter in built.named_parameters():
        if "lora_b" in parameter_name:
            parameter.copy_(torch.randn(parameter.shape, generator=random) * 0.1)
    return built


@pytest.mark.parametrize("name", ["gpt", "llama", "encoder–decoder", "parallel, half rotated"])
@pytest.mark.parametrize("rank", [3, 16])
def test_adapters_that_are_not_merged(name: str, rank: int, calls: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    built, steps = adapted(name, LORA.replace(rank=rank)), tokens(4, count=2)
    found = logits(built, steps)
    assert len(calls) == 1 + 4
    assert apart(found, by_modules(monkeypatch, lambda: logits(built, steps))) < TOLERANCE
    assert apart(found, logits(model(name), steps)) > 1e-3
    assert apart(found, logits(qkv.fold(built), steps)) < 1e-4


def test_adapters_over_codes_and_in_bf16(calls: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    steps = tokens(3)
    built = adapted("llama", LORA, Scheme(weights="int4", group_size=32), **WIDER)
    found = logits(built, steps)
    assert len(calls) == 1 + 3
    assert apart(found, by_modules(monkeypatch, lambda: logits(built, steps))) < TOLERANCE
    half = adapted("llama", LORA, dtype=torch.bfloat16)
    exact = by_modules(monkeypatch, lambda: logits(copy.deepcopy(half).double(), steps))
    modules = by_modules(monkeypatch, lambda: logits(half, steps))
    assert apart(logits(half, steps), exact) < 1.1 * apart(modules, exact)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["experts", "experts in parallel", "gates of the chosen", "experts and a shared layer"]
)
def test_experts_in_bf16_are_as_near_as_the_modules_are(
    name: str, calls: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row whose scores of two experts are nearly equal may choose the other one, so the nearest half is compared."""
    built, steps = model(name, torch.bfloat16), tokens(12)
    found = logits(built, steps).view(-1, 50)
    assert len(calls) == 1 + 12
    exact = by_modules(monkeypatch, lambda: logits(copy.deepcopy(built).double(), steps)).view(-1, 50)
    modules = by_modules(monkeypatch, lambda: logits(built, steps)).view(-1, 50)
    own, others = ((x - exact).norm(dim=1) / exact.norm(dim=1) for x in (found, modules))
    assert own.median() < 1.1 * others.median()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("part", ["adapter", "experts", "caps", "quantized cache"])
def test_fifty_greedy_tokens(part: str, seed: int, calls: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Random small configurations generate what the modules generate."""
    random = torch.Generator().manual_seed(seed)

    def one_of(*choices: Any) -> Any:
        return choices[int(torch.randint(len(choices), (), generator=random))]

    sizes = SIZES | {"n_layers": one_of(1, 2, 3), "n_kv_heads": one_of(1, 2, 4), "d_model": one_of(32, 64)}
    spec = qkv.preset("llama", **sizes)
    changes: dict[str, Any] = {}
    if part == "experts":
        some = one_of({}, {"score": "sigmoid", "bias_rate": 0.01}, {"score": "top-k-softmax"}, SHARED)
        changes["feedforward"] = EXPERTS | {"n_experts": one_of(3, 6), "top_k": one_of(1, 2, 3)} | some
    if part == "caps":
        changes |= {"attention.softcap": one_of(1.0, 5.0), "placement": {"kind": "sandwich"}}
        changes["attention.pattern"] = one_of({"kind": "causal"}, WINDOW)
    spec = spec.replace({f"decoder.blocks.*.{name}": value for name, value in changes.items()}) if changes else spec
    built = qkv.build(spec, seed=seed).eval()
    if part == "adapter":
        layers = one_of(("*.attention.[qv]",), ("*.feedforward.*", "*.attention.k"), ("*.blocks.*",))
        qkv.adapt(built, qkv.LoRA(rank=one_of(1, 4, 9), layers=layers, rank_stabilized=one_of(True, False)))
    for parameter in built.parameters():
        parameter += torch.randn(parameter.shape, generator=random) * 0.1
    cache = QuantizedCache(bits=8, group=one_of(4, 16), residual=one_of(0, 8)) if part == "quantized cache" else None
    prompt = torch.randint(50, (one_of(1, 3), 12), generator=random)

    def run() -> Tensor:
        return torch.as_tensor(built.generate(prompt, max_new_tokens=50, min_new_tokens=50, cache=cache))

    found = run()
    assert len(calls) >= 49 - 12 * ("pattern" in str(changes))
    assert torch.equal(found, by_modules(monkeypatch, run))


def test_what_keeps_a_stack_out_is_named() -> None:
    built = model("gpt")
    assert reason_against(built.decoder, built.start(1)) is None
    assert reason_against(built.decoder, built.start(1, cache="int8")) is None
    assert reason_against(built.decoder, built.start(1, cache="h2o")) == "caches of the kind H2OState"
    quantize(built, Scheme(weights="nf4"))
    assert "another format" in str(reason_against(built.decoder))


def test_steps_of_different_lengths(calls: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("llama", "encoder–decoder", "sandwich, ALiBi"):
        built, steps = model(name), [ids for count in (1, 3, 2, 1, 4) for ids in tokens(1, count=count)]
        calls.clear()
        found = logits(built, steps, before=lambda cache: cache.rewind_rows([2, 0, 1]))
        assert calls
        wanted = by_modules(
            monkeypatch,
            lambda: logits(built, steps, before=lambda cache: cache.rewind_rows([2, 0, 1])),  # noqa: B023
        )
        assert apart(found, wanted) < TOLERANCE


def test_weights_are_checked_again_after_a_search(calls: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """While a cache is settled weights stay; what changes before or after it is seen."""
    built = model("llama")

    def run() -> Tensor:
        cache = built.start(2)
        found = [built.step(torch.arange(8).view(2, 4), cache)]
        assert built.decoder is not None
        weight = built.decoder.layers[0].attention.q.weight
        kept = weight.data
        for factor in (1, 2, 3):
            with cache.settle():
                found += [built.step(torch.tensor([[i], [i + 1]]), cache) for i in range(2)]
            weight.data = kept * factor
            found.append(built.step(torch.tensor([[3], [4]]), cache))
        weight.data = kept
        return torch.cat(found)

    assert apart(run(), by_modules(monkeypatch, run)) < TOLERANCE
    assert len(calls) == 1 + 9


@pytest.mark.parametrize(
    "before",
    [
        lambda cache: cache.reorder(torch.tensor([2, 0, 0])),
        lambda cache: cache.reorder(torch.tensor([1])),
        lambda cache: cache.rewind(1),
    ],
)
@pytest.mark.parametrize("name", ["llama", "encoder–decoder"])
def test_after_changes_of_the_cache(
    name: str, before: Change, calls: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    built, steps = model(name), tokens(70)  # more than there is room for at first
    found = logits(built, steps, before=before)
    assert len(calls) == 1 + 70
    assert apart(found, by_modules(monkeypatch, lambda: logits(built, steps, before=before))) < TOLERANCE


def test_padded_prompts_give_the_modules_logits(calls: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    built = model("llama")
    layout = Layout.from_lengths([5, 2, 3], side="left")

    def run() -> Tensor:
        cache = built.start(3)
        found = [built.step(torch.arange(15).view(3, 5), cache, layout)]
        return torch.cat([*found, *(built.step(ids, cache) for ids in tokens(4))])

    assert apart(run(), by_modules(monkeypatch, run)) < TOLERANCE
    assert len(calls) == 4


def test_a_fork_and_other_weights_are_described_again(calls: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    built = model("llama")

    def run() -> Tensor:
        cache = built.start(2)
        built.step(torch.arange(8).view(2, 4), cache)
        first = built.step(torch.tensor([[1], [2]]), cache)
        twin = cache.fork()
        assert built.decoder is not None
        weight = built.decoder.layers[0].attention.q.weight
        kept, weight.data = weight.data, weight.data * 2
        out = [first, built.step(torch.tensor([[3], [4]]), twin), built.step(torch.tensor([[5], [6]]), cache)]
        weight.data = kept
        return torch.cat(out)

    assert apart(run(), by_modules(monkeypatch, run)) < TOLERANCE
    assert len(calls) == 1 + 3


def test_some_of_the_layers(calls: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    built = model("gpt")

    def run() -> Tensor:
        cache = built.start(1)
        built.step(torch.arange(4)[None], cache)
        return built.step(torch.tensor([[7]]), cache, layers=1)

    assert apart(run(), by_modules(monkeypatch, run)) < TOLERANCE
    assert calls == [2, 1]


def test_nothing_is_hidden_from_those_who_watch(calls: list[int]) -> None:
    built = model("gpt")
    assert built.decoder is not None
    cache = built.start(1)
    built.step(torch.arange(4)[None], cache)
    calls.clear()
    with tap.record_attention() as record:
        built.step(torch.tensor([[7]]), cache)
    assert len(record) == 2 and not calls
    seen: list[Any] = []
    handle = built.decoder.layers[1].feedforward.register_forward_hook(lambda *about: seen.append(about))
    built.step(torch.tensor([[7]]), cache)
    assert len(seen) == 1 and not calls
    handle.remove()
    built.step(torch.tensor([[7]]), cache)
    assert calls == [2]


@pytest.mark.parametrize("name", ["gpt", "encoder–decoder", "a ring buffer"])
def test_up_to_64_rows(name: str, calls: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    built, steps = model(name), tokens(9, rows=64)
    prompt = torch.arange(5 * 64).view(64, 5) % 50
    found = logits(built, steps, rows=64, prompt=prompt)
    assert len(calls) == 9
    wanted = by_modules(monkeypatch, lambda: logits(built, steps, rows=64, prompt=prompt))
    assert apart(found, wanted) < 1e-5


def test_what_the_modules_have_to_do(calls: list[int]) -> None:
    logits(model("gpt", torch.float64), tokens(1))
    most = native.MOST_TOKENS[torch.float32] + 1
    logits(model("gpt"), tokens(1, rows=most), rows=most, prompt=torch.zeros(most, 2, dtype=torch.long))
    trained = model("gpt").train()
    logits(trained, tokens(1))
    with torch.autocast("cpu", torch.bfloat16):
        logits(model("gpt"), tokens(1))
    assert not calls


def doubled(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **options: Any) -> Any:
        found = function(*args, **options)
        return 2 * found if isinstance(found, Tensor) else tuple(2 * x for x in found)

    return call


PLACES = {
    "block": "blocks.0.forward",
    "attention": "blocks.0.attention.forward",
    "heads": "blocks.0.attention.mixed",
    "projection": "blocks.0.attention.q.forward",
    "feed-forward": "blocks.0.feedforward.forward",
    "norm": "blocks.0.norm.attention.forward",
    "last norm": "norm.forward",
    "rotation of queries": "position.rotate_queries",
    "tables": "position.tables",
}


@pytest.mark.parametrize("of_class", [False, True])
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("when", ["before", "between"])
def test_a_replaced_method_is_called(place: str, of_class: bool, when: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the encoding of a prompt, in steps, and with a cache that has had steps before."""
    made = model("llama").eval()
    ids = torch.randint(50, (1, 40), generator=torch.Generator().manual_seed(0))
    *path, name = PLACES[place].split(".")
    owner: Any = made.decoder
    for part in path:
        owner = (
            owner[int(part)]
            if part.isdigit()
            else owner[part]
            if isinstance(owner, nn.ModuleDict)
            else getattr(owner, part)
        )
    target = type(owner) if of_class else owner

    def replace() -> None:
        monkeypatch.setattr(target, name, doubled(getattr(target, name)))

    if when == "before":
        replace()
    with torch.no_grad():
        cache = made.start(1)
        made.step(ids[:, :38], cache)
        made.step(ids[:, 38:39], cache)
        if when == "between":
            other = copy.deepcopy(cache)
            replace()
            found = made.step(ids[:, 39:], cache)
            with tap.record_attention():  # the modules
                wanted = made.step(ids[:, 39:], other)
        else:
            found = made.step(ids[:, 39:], cache)
            with tap.record_attention():
                wanted = made(ids)[:, -1]
            torch.testing.assert_close(made(ids)[:, -1], wanted, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)
