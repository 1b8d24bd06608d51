"""PyTorch's tools on qkv's models: they find `nn.Linear` and `nn.LayerNorm`, and every path sees what they change."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from fused_models import varied_model
from rank_pool import RankPool
from torch import Tensor, nn
from torch.nn.utils import parametrize, prune

import qkv
from qkv.nn.models.transformer import TransformerModel
from qkv.training.parallel.world import World

SIZES = {"d_model": 32, "n_layers": 2, "n_heads": 2, "d_ff": 64, "vocab_size": 40, "max_positions": 64}
IDS = torch.arange(12).view(2, 6)


class Doubled(nn.Module):
    def forward(self, weight: Tensor) -> Tensor:
        return 2 * weight


def parametrized(model: nn.Module) -> None:
    parametrize.register_parametrization(model.get_submodule("decoder.blocks.0.attention.q"), "weight", Doubled())


def pruned(model: nn.Module) -> None:
    prune.l1_unstructured(model.get_submodule("decoder.blocks.0.attention.v"), "weight", 0.5)


def hooked(model: nn.Module) -> None:
    model.get_submodule("decoder.blocks.1.feedforward.down").register_forward_hook(lambda *seen: 2 * seen[-1])


def normalized_by_weight(model: nn.Module) -> None:
    layer = model.get_submodule("decoder.blocks.1.attention.out")
    nn.utils.parametrizations.weight_norm(layer)
    with torch.no_grad():
        layer.parametrizations.weight.original0.mul_(2)  # type: ignore[union-attr, operator]


def replaced(model: nn.Module) -> None:
    old = model.get_submodule("decoder.blocks.0.feedforward.up")
    assert isinstance(old, nn.Linear)
    new = nn.Linear(old.in_features, old.out_features, old.bias is not None)
    model.get_submodule("decoder.blocks.0.feedforward").up = new


CHANGES: list[Callable[[nn.Module], None]] = [parametrized, pruned, hooked, normalized_by_weight, replaced]


@torch.no_grad()
def by_steps(model: TransformerModel) -> Tensor:
    cache = model.start(2)
    return torch.stack([model.step(IDS[:, i : i + 1], cache).view(2, -1) for i in range(IDS.shape[1])], 1)


@pytest.mark.parametrize("preset", ["gpt2", "llama"])
@pytest.mark.parametrize("change", CHANGES)
def test_changed_layers_are_used_by_forward_passes_and_decoding(
    change: Callable[[nn.Module], None], preset: str
) -> None:
    model = varied_model(preset, SIZES, {})
    before = by_steps(model)
    change(model)
    with torch.no_grad():
        after = model(IDS)
    assert not torch.allclose(after, before, atol=1e-3)
    torch.testing.assert_close(by_steps(model), after, atol=1e-4, rtol=1e-4)


def test_layers_are_those_of_pytorch() -> None:
    gpt2, llama = varied_model("gpt2", SIZES, {}), varied_model("llama", SIZES, {})
    layer = gpt2.get_submodule("decoder.blocks.0.attention.q")
    assert isinstance(layer, nn.Linear) and (layer.in_features, layer.out_features) == (32, 32)
    assert isinstance(gpt2.get_submodule("decoder.norm"), nn.LayerNorm)
    assert isinstance(llama.get_submodule("decoder.norm"), nn.RMSNorm)
    gemma = qkv.build(qkv.preset("gemma-2-2b", n_kv_heads=1, **SIZES), seed=0)
    assert not isinstance(gemma.get_submodule("decoder.norm"), nn.RMSNorm)  # its gain is 1 + g


@pytest.mark.parametrize("preset", ["gpt2", "llama"])
def test_copies_and_pickles_compute_the_same(preset: str) -> None:
    model = varied_model(preset, SIZES, {})
    expected, file = by_steps(model), io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    copies: list[Any] = [copy.deepcopy(model), pickle.loads(pickle.dumps(model)), torch.load(file, weights_only=False)]
    for each in copies:
        assert torch.equal(by_steps(each), expected)


@pytest.mark.slow
def test_torchao_quantizes_the_linear_layers() -> None:
    quantization = pytest.importorskip("torchao.quantization")
    for config in (quantization.Int8WeightOnlyConfig(), quantization.Int8DynamicActivationInt8WeightConfig()):
        model = varied_model("llama", SIZES, {})
        with torch.no_grad():
            before = model(IDS)
            quantization.quantize_(model, config)
            after = model(IDS)
        linear = [layer for layer in model.modules() if isinstance(layer, nn.Linear)]
        assert len(linear) == 14 and all("Quantized" in type(layer.weight).__name__ for layer in linear)
        error = float((after - before).norm() / before.norm())
        assert 1e-4 < error < 0.05
        torch.testing.assert_close(by_steps(model), after, atol=1e-4, rtol=1e-4)


def sharded(world: World, preset: str, how: str) -> Tensor:
    """The logits of a model that PyTorch's plans divide among ranks."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    model, mesh = varied_model(preset, SIZES, {}), init_device_mesh("cpu", (world.size,))
    for block in model.get_submodule("decoder.blocks").children():
        if how == "fully sharded":
            fully_shard(block, mesh=mesh)
        else:
            names = ("attention.q", "attention.k", "attention.v", "feedforward.gate", "feedforward.up")
            column = {name: ColwiseParallel() for name in names if preset == "llama" or "gate" not in name}
            row = {name: RowwiseParallel() for name in ("attention.out", "feedforward.down")}
            parallelize_module(block, mesh, {**column, **row})
    if how == "fully sharded":
        fully_shard(model, mesh=mesh)
    loss = model(IDS).logsumexp(-1).sum()
    loss.backward()
    weight: Any = model.get_parameter("decoder.blocks.0.attention.q.weight")
    gradient: Tensor = weight.grad.full_tensor()
    return torch.cat([loss.detach()[None], gradient.flatten()])


@pytest.mark.slow
@pytest.mark.parametrize("how", ["fully sharded", "tensor parallel"])
@pytest.mark.parametrize("preset", ["gpt2", "llama"])
def test_plans_of_torch_distributed_divide_a_model(two: RankPool, preset: str, how: str) -> None:
    model = varied_model(preset, SIZES, {})
    loss = model(IDS).logsumexp(-1).sum()
    loss.backward()
    gradient = model.get_parameter("decoder.blocks.0.attention.q.weight").grad
    assert gradient is not None
    expected = torch.cat([loss.detach()[None], gradient.flatten()])
    for found in two.run(sharded, preset, how):
        torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)
