"""Layers that share a block: the same as copies of it, in outputs, gradients, decoding, cost and files."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import qkv
from qkv.core.layout import Layout
from qkv.generation import generate
from qkv.nn.cost.flops import BatchShape, parts
from qkv.nn.cost.kv_cache import cache_bytes
from qkv.nn.models.transformer import Transformer, TransformerModel

IDS, PADDED = torch.randint(1, 23, (2, 9)), Layout.from_lengths([7, 9])
ORDERS = [(0, 0, 0), (0, 1, 0, 1), (0, 0, 1, 1)]


def shared(order: tuple[int, ...], **changes: Any) -> Transformer:
    spec = qkv.preset(
        "gpt2", vocab_size=23, d_model=16, n_heads=2, n_layers=max(order) + 1, max_positions=32, dropout=0.0
    )
    changes = {"decoder.position": "rotary", "decoder.blocks.0.position": "none", **changes}
    return spec.replace(
        {"decoder.order": order, **{f"decoder.{k}" if k[0] == "b" else k: v for k, v in changes.items()}}
    )


def copies(model: TransformerModel) -> TransformerModel:
    """The same with its own block for each layer."""
    spec = model.spec
    assert spec.decoder is not None
    apart = qkv.build(spec.replace({"decoder.blocks": spec.decoder.layers, "decoder.order": None}), dtype=model.dtype)
    state = model.state_dict()
    for i, block in enumerate(spec.decoder.block_of):
        for name, value in model.decoder.blocks[block].state_dict().items():  # type: ignore[union-attr]
            state[f"decoder.blocks.{i}.{name}"] = value
    apart.load_state_dict({name: state[name] for name in apart.state_dict()})
    return apart


@pytest.mark.parametrize("order", ORDERS, ids=str)
def test_outputs_and_gradients_match_copies(order: tuple[int, ...]) -> None:
    model = qkv.build(shared(order), dtype=torch.float64).train()
    apart = copies(model).train()
    for one in (model, apart):
        one(IDS, labels=IDS.roll(-1, 1), layout=PADDED).loss.backward()
    torch.testing.assert_close(model(IDS, layout=PADDED), apart(IDS, layout=PADDED))
    for name, parameter in model.decoder.blocks.named_parameters():  # type: ignore[union-attr]
        number, _, inner = name.partition(".")
        same = [apart.get_parameter(f"decoder.blocks.{i}.{inner}") for i, b in enumerate(order) if b == int(number)]
        torch.testing.assert_close(parameter.grad, sum(p.grad for p in same))  # type: ignore[misc]


@pytest.mark.parametrize("cache", ["full", "paged", "sinks"])
def test_each_layer_decodes_with_its_own_cache(cache: str) -> None:
    model = qkv.build(shared((0, 1, 0, 1)), dtype=torch.float64).eval()
    how = {"kind": "sinks", "window": 16} if cache == "sinks" else cache
    started = model.start(2, cache=how)
    assert len(started.layers) == 4
    stepped = torch.stack([model.step(IDS[:, i : i + 1], started) for i in range(9)], 1)
    torch.testing.assert_close(stepped, model(IDS))
    ours, theirs = (generate(m, [[3, 1]], max_new_tokens=5) for m in (model, copies(model)))
    assert ours.sequences == theirs.sequences


def test_parameters_count_once_and_flops_each_time() -> None:
    model = qkv.build(shared((0, 0, 1, 1)))
    once, each = model.spec.cost(9), copies(model).spec.cost(9)
    assert once.parameters == sum(p.numel() for p in model.parameters()) < each.parameters
    assert (once.flops, once.bytes) == (each.flops, each.bytes)
    assert sum(part.parameters for part in parts(model.spec, BatchShape(1, 9))) == once.parameters
    assert cache_bytes(model.spec, 8) == cache_bytes(copies(model).spec, 8)


def test_a_file_has_one_copy_and_the_spec_its_order() -> None:
    spec = shared((0, 0, 0))
    assert Transformer.from_json(spec.to_json()) == spec and spec.n_layers == 3
    model = qkv.build(spec)
    assert not any(name.startswith("decoder.blocks.1") for name in model.state_dict())


@pytest.mark.parametrize("policy", ["none", "blocks", "reversible"])
def test_recomputation_goes_layer_by_layer(policy: str) -> None:
    placement = {"blocks.*.placement": "reversible"} if policy == "reversible" else {}
    model = qkv.build(shared((0, 1, 0), **placement), dtype=torch.float64).train()
    apart = copies(model).train()
    model.recompute("none" if policy == "reversible" else policy)  # type: ignore[arg-type]
    for one in (model, apart):
        one(IDS, labels=IDS.roll(-1, 1)).loss.backward()
    wanted = sum(apart.get_parameter(f"decoder.blocks.{i}.attention.q.weight").grad for i in (0, 2))  # type: ignore[misc]
    torch.testing.assert_close(model.get_parameter("decoder.blocks.0.attention.q.weight").grad, wanted)


@pytest.mark.parametrize(
    "order, said", [((0, 2), "order names every block"), ((0, 0), "order names every block"), ((), "at least 1 item")]
)
def test_orders_of_missing_layers_are_refused(order: tuple[int, ...], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        shared((0, 1)).replace({"decoder.order": order})


def test_an_encoder_decoder_with_shared_layers() -> None:
    spec = qkv.preset("transformer", vocab_size=23, d_model=16, n_heads=2, d_ff=24, n_layers=1, dropout=0.0)
    spec = spec.replace({"encoder.order": (0, 0), "decoder.order": (0, 0, 0)})
    model = qkv.build(spec, dtype=torch.float64).eval()
    cache = model.start(source=IDS)
    stepped = torch.stack([model.step(IDS[:, i : i + 1], cache) for i in range(9)], 1)
    torch.testing.assert_close(stepped, model(IDS, IDS))
