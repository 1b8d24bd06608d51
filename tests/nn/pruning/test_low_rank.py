"""Factorized models: full rank changes nothing, decoding and saving work, and the Hub gets full matrices."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from prunable_models import FAMILIES, IDS, SMALL, TARGET, inputs, stirred
from torch.testing import assert_close

import qkv
from qkv.core.layout import Layout
from qkv.io.directories.save import save
from qkv.io.families import preset
from qkv.io.hub.family import difference
from qkv.nn.layers.low_rank import LowRankLinear, factors
from qkv.nn.models.build import build
from qkv.nn.pruning.low_rank import factorize, input_covariances, matrices, multiplied_out, ranks_of, with_full_matrices
from qkv.nn.pruning.remove import remove_heads, remove_neurons


def spec_of(name: str) -> qkv.Transformer:
    return FAMILIES[name][0]


@torch.no_grad()
@pytest.mark.parametrize("name", FAMILIES)
def test_full_rank_changes_nothing(name: str) -> None:
    model = stirred(spec_of(name))
    ranks = {path: min(layer.in_features, layer.out_features) for path, layer in matrices(model).items()}
    low = factorize(model, ranks)
    assert all(isinstance(layer, LowRankLinear) for layer in matrices(low).values())
    assert_close(low(*inputs(model)), model(*inputs(model)), rtol=1e-6, atol=1e-6)
    assert low.spec.cost().parameters == sum(p.numel() for p in low.parameters())
    again = multiplied_out(low)
    assert again.spec == model.spec == with_full_matrices(low.spec)
    assert_close(again(*inputs(model)), model(*inputs(model)), rtol=1e-6, atol=1e-6)
    assert multiplied_out(again) is again


@torch.no_grad()
def test_each_matrix_becomes_its_best_product() -> None:
    model = stirred(spec_of("transformer"))
    low = factorize(model, ranks_of(model, 5))
    for path, layer in matrices(low).items():
        u, v = factors(matrices(model)[path].weight, 5)
        assert_close(layer.plain().weight, u @ v)
        assert torch.equal(layer.expand.bias, matrices(model)[path].bias)


@torch.no_grad()
@pytest.mark.parametrize("name", ["gpt2", "llama-gqa", "t5", "transformer"])
def test_factorized_models_decode(name: str, tmp_path: Path) -> None:
    model = stirred(spec_of(name))
    model = factorize(model, ranks_of(model, 0.5)).float()
    target = TARGET if model.is_encoder_decoder else IDS
    whole = model(*inputs(model))
    cache = model.start(source=IDS) if model.is_encoder_decoder else model.start(len(IDS))
    steps = torch.stack([model.step(target[:, t : t + 1], cache) for t in range(target.shape[1])], 1)
    assert_close(steps, whole, rtol=1e-4, atol=1e-5)
    save(model, tmp_path, "qkv")
    loaded = qkv.load(tmp_path).model
    assert loaded.spec == model.spec
    assert torch.equal(loaded(*inputs(model)), whole)


def test_ranks_for_a_share_or_a_number() -> None:
    model = build(preset("llama", **SMALL, n_kv_heads=3, d_ff=48), seed=0)
    half = ranks_of(model, 0.5)
    assert half["decoder.blocks.0.attention.q"] == 6  # 6 · (24 + 24) = 24 · 24 / 2
    assert half["decoder.blocks.1.attention.k"] == 4  # 4 · (24 + 12) = 24 · 12 / 2
    assert half["decoder.blocks.1.feedforward.up"] == 8  # 8 · (24 + 48) = 24 · 48 / 2
    low = factorize(model, half)
    before, after = (sum(p.numel() for p in m.decoder.blocks.parameters()) for m in (model, low))
    assert 0.49 * before < after < 0.52 * before  # norms are not factorized
    assert {path.rpartition(".")[2] for path in ranks_of(model, 11)} == {"q", "out", "gate", "up", "down"}
    assert {path.rpartition(".")[2] for path in ranks_of(model, 12)} == {"gate", "up", "down"}
    assert {path.rpartition(".")[2] for path in ranks_of(low, 7)} == {"gate", "up", "down"}  # the others have less


@pytest.mark.parametrize(
    ("rank", "message"),
    [
        (16, "a rank of 16 saves nothing, as U V would have no fewer parameters than W; take 15 or less"),
        (0, "rank must be at least 1, or a share above 0 and below 1"),
        (1.0, "rank must be at least 1, or a share above 0 and below 1"),
    ],
)
def test_ranks_that_are_refused(rank: float, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ranks_of(build(preset("llama", **SMALL, d_ff=48), seed=0), rank)


def test_experts_are_not_factorized() -> None:
    experts = {"kind": "moe", "n_experts": 2, "d_ff": 48, "shared": {"kind": "feedforward", "d_ff": 48}}
    model = build(preset("llama", **SMALL).replace({"decoder.blocks.*.feedforward": experts}), seed=0)
    assert {path.rpartition(".")[2] for path in matrices(model)} == {"q", "k", "v", "out"}


@torch.no_grad()
def test_heads_and_neurons_of_a_factorized_model_can_be_removed() -> None:
    model = stirred(spec_of("transformer"))
    low = factorize(model, ranks_of(model, 5))
    smaller = remove_neurons(remove_heads(low, {"decoder.0": [1, 4]}), {"encoder.1": [0, 3]})
    expected = remove_neurons(remove_heads(multiplied_out(low), {"decoder.0": [1, 4]}), {"encoder.1": [0, 3]})
    assert_close(smaller(*inputs(model)), expected(*inputs(model)))
    assert smaller.spec.cost().parameters == sum(p.numel() for p in smaller.parameters())


def test_covariances_are_of_the_inputs_of_real_tokens() -> None:
    model = stirred(spec_of("transformer"))
    layout = Layout.from_lengths([6, 3])
    paths = ["encoder.blocks.0.attention.q", "decoder.blocks.0.cross.k", "decoder.blocks.1.feedforward.down"]
    inputs_of: dict[str, list[torch.Tensor]] = {path: [] for path in paths}
    for path in paths:
        model.get_submodule(path).register_forward_pre_hook(
            lambda module, args, path=path: inputs_of[path].append(args[0])
        )
    covariances = input_covariances(model, paths, [layout], lambda m, given: m(IDS, TARGET, layout=given))
    for path, covariance in covariances.items():
        (x,) = inputs_of[path]
        real = torch.cat([x[0], x[1, :3]]) if x.shape[1] == 6 else x.flatten(0, 1)
        assert_close(covariance, (real.T @ real / len(real)).float(), rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_the_hub_gets_full_matrices(tmp_path: Path) -> None:
    model = stirred(preset("llama", **SMALL)).float()
    low = factorize(model, ranks_of(model, 5))
    message = f" {model.spec.n_parameters:,} parameters in place of {low.spec.n_parameters:,}"
    with pytest.warns(UserWarning, match=f"no Hub family has matrices of low rank.*{message}"):
        save(low, tmp_path, "hub")
    loaded = qkv.load(tmp_path).model
    assert not difference(loaded.spec, model.spec)
    assert_close(loaded(IDS), low(IDS), rtol=1e-4, atol=1e-5)
    with pytest.warns(UserWarning, match="no Hub family matches this model as it is; to='hub' saves an equivalent one"):
        save(low, tmp_path / "own")
    assert qkv.load(tmp_path / "own").model.spec == low.spec
