"""Mechanisms exchanged in a trained model: what is kept, pooled, cut, new and gone."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from qkv.io.families import preset
from qkv.nn.layers.norm import RMSNorm
from qkv.nn.models.build import build
from qkv.nn.models.replace import replace
from qkv.nn.models.transformer import TransformerModel

IDS = torch.tensor([[3, 1, 4, 1, 5]])


def made(name: str = "llama", **sizes: Any) -> TransformerModel:
    small = {"d_model": 16, "n_layers": 2, "n_heads": 4, "d_ff": 24, "vocab_size": 11, "max_positions": 32}
    return build(preset(name, **{**small, **sizes}), seed=3).eval()


def test_no_change_is_the_same_model() -> None:
    model = made()
    same = replace(model, {})
    assert torch.equal(same.model(IDS), model(IDS)) and not (same.new or same.pooled or same.cut or same.gone)
    assert all(a.data_ptr() != b.data_ptr() for a, b in zip(same.model.parameters(), model.parameters(), strict=True))


def test_fewer_key_value_heads_are_means() -> None:
    model = made()
    found = replace(model, {"decoder.blocks.*.attention.n_kv_heads": 2})
    name = "decoder.blocks.1.attention.k.weight"
    assert name in found.pooled and len(found.pooled) == 4
    old = model.state_dict()[name].reshape(2, 2, 4, 16)
    torch.testing.assert_close(found.model.state_dict()[name], old.mean(1).reshape(8, 16))


def test_heads_that_are_alike_lose_nothing_by_it() -> None:
    """If the heads of a group are equal already, grouped queries are the same function."""
    model = made()
    with torch.no_grad():
        for name, tensor in model.named_parameters():
            if ".attention.k." in name or ".attention.v." in name:
                tensor.copy_(tensor.reshape(2, 2, 4, 16)[:, :1].expand(2, 2, 4, 16).reshape(16, 16).clone())
    found = replace(model, {"decoder.blocks.*.attention.n_kv_heads": 2})
    torch.testing.assert_close(found.model(IDS), model(IDS))


@pytest.mark.parametrize(
    "changes, new, gone",
    [
        ({"decoder.position": "alibi"}, 0, 0),
        ({"decoder.blocks.*.placement": "post"}, 0, 0),
        ({"decoder.blocks.*.placement": "sandwich"}, 4, 0),
        (
            {"decoder.blocks.*.attention.pattern": {"kind": "and", "parts": ["causal", {"kind": "window", "size": 2}]}},
            0,
            0,
        ),
        ({"decoder.blocks.*.feedforward.gated": False}, 0, 2),
        ({"decoder.blocks.*.feedforward.bias": True}, 6, 0),
        ({"decoder.blocks.0.attention.qk_norm": RMSNorm()}, 2, 0),
        ({"decoder.blocks.*.attention.n_heads": 2, "decoder.blocks.*.attention.d_head": 8}, 0, 0),
    ],
)
def test_new_parameters_are_drawn_and_others_kept(changes: dict[str, Any], new: int, gone: int) -> None:
    model = made()
    found = replace(model, changes, seed=1)
    assert (len(found.new), len(found.gone)) == (new, gone), str(found)
    assert set(found.kept) == set(found.model.state_dict()) - set(found.new)
    fresh = build(found.model.spec, seed=1).state_dict()
    assert all(torch.equal(found.model.state_dict()[name], fresh[name]) for name in found.new)
    assert found.model(IDS).isfinite().all() and found.model.spec == model.spec.replace(changes)


@pytest.mark.parametrize("length", [8, 64])
def test_a_table_of_positions_keeps_its_first_rows(length: int) -> None:
    model = made("gpt2")
    found = replace(model, {"max_positions": length})
    assert found.cut == ("decoder.position.weight",)
    kept = min(length, 32)
    table = found.model.state_dict()["decoder.position.weight"]
    assert torch.equal(table[:kept], model.state_dict()["decoder.position.weight"][:kept]) and len(table) == length
    torch.testing.assert_close(found.model(IDS), model(IDS))


@pytest.mark.parametrize("size", [(20, 20), (28, 8), (20, 12)])  # the last has as many patches as before
@torch.no_grad()
def test_positions_over_a_grid_are_resized(size: tuple[int, int]) -> None:
    """As they are for images of that size, so nothing changes for those."""
    small = {"image": (12, 20), "patch": (4, 4), "d_model": 16, "n_layers": 2, "n_heads": 2, "d_ff": 24, "labels": 3}
    model = build(preset("vit-base-16", **small), seed=3).eval()
    found = replace(model, {"encoder.embedding.image": size})
    assert found.resized == ("encoder.position.weight",) and not (found.cut or found.new)
    assert "resized encoder.position.weight" in str(found)
    pixels = torch.randn(2, 3, *size)
    assert torch.equal(found.model(pixels), model(pixels))
    assert replace(model, {"head.labels": 4}).resized == ()
    assert "encoder.position.weight" in replace(model, {"encoder.embedding.before": 2}).new


def test_positions_between_blocks_are_resized_too() -> None:
    small = {
        "image": (12, 12),
        "patch": (4, 4),
        "d_model": 16,
        "n_layers": 3,
        "n_heads": 2,
        "d_ff": 24,
        "detections": 2,
    }
    found = replace(build(preset("yolos-small", **small), seed=3), {"encoder.embedding.image": (20, 20)})
    tables = ("encoder.position.weight", "encoder.between.0.weight", "encoder.between.1.weight")
    assert sorted(found.resized) == sorted(tables) and not found.new


def test_what_is_tied_stays_tied() -> None:
    found = replace(made("gpt2"), {"decoder.position": "rotary"})
    model = found.model
    assert model.head is not None and model.decoder is not None
    assert model.head.weight is model.decoder.embedding.weight and found.gone == ("decoder.position.weight",)
    assert "gone" in str(found) and "decoder.position.weight" in str(found)


def test_wrong_paths_are_named() -> None:
    with pytest.raises(ValueError, match="has no 'postion'; did you mean 'position'"):
        replace(made(), {"decoder.postion": "alibi"})


def test_position_schemes_of_blocks_keep_their_own_tables() -> None:
    """Modules of schemes are numbered, and the numbers change with the schemes that a model has."""
    near, far = {"kind": "t5", "buckets": 8, "max_distance": 10}, {"kind": "t5", "buckets": 8, "max_distance": 20}
    spec = made().spec.replace({"decoder.blocks.0.position": near, "decoder.blocks.1.position": far})
    model = build(spec, seed=3)
    old_near, old_far = (table.weight for table in model.decoder.block_positions)
    one = replace(model, {"decoder.blocks.0.position": "none"}).model
    assert torch.equal(one.decoder.block_positions[1].weight, old_far)
    both = replace(model, {"decoder.position": far}).model
    assert torch.equal(both.decoder.position.weight, old_far)
    assert torch.equal(both.decoder.block_positions[0].weight, old_near)
    longer = replace(model, {"decoder.blocks.1.position.max_distance": 40}).model
    assert torch.equal(longer.decoder.block_positions[1].weight, old_far)
