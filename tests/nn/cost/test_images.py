"""Costs of models that read images."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from fast_subset import fast

from qkv.io.families import preset
from qkv.nn.cost.flops import BatchShape, parts, training_flops
from qkv.nn.cost.images import image_batch, image_tokens
from qkv.nn.cost.kv_cache import cache_bytes
from qkv.nn.cost.memory import predict
from qkv.nn.layers.patches import masked_layout
from qkv.nn.models.build import build

TINY: dict[str, Any] = {"d_model": 32, "n_layers": 2, "n_heads": 2, "d_ff": 64, "image": (32, 32), "patch": (8, 8)}
CPU = torch.device("cpu")


@pytest.mark.parametrize("name, tokens", [("vit-base-16", 17), ("deit-tiny-distilled", 18), ("vit-mae-base", 5)])
def test_tokens_are_those_that_the_stack_reads(name: str, tokens: int) -> None:
    spec = preset(name, **TINY)
    assert image_tokens(spec) == tokens
    seen: list[int] = []
    model = build(spec, seed=0)
    model.encoder.blocks[0].register_forward_hook(lambda _module, _args, out: seen.append(_first(out).shape[1]))
    batch = image_batch(spec, 2)
    loss = model(**batch.inputs, labels=batch.labels).loss
    assert torch.isfinite(loss) and seen == [tokens]


def _first(out: Any) -> torch.Tensor:
    return out if isinstance(out, torch.Tensor) else out[0]


@pytest.mark.lab
@pytest.mark.parametrize("name", fast(["vit-base-16", "vit-mae-base", "yolos-tiny", "segmenter-small"], "yolos-tiny"))
def test_a_step_is_predicted(name: str) -> None:
    from qkv.lab.costs.training import of_preset

    spec = preset(name)
    costs = of_preset(name, spec, CPU, rows=2)
    assert costs.shape == BatchShape(2, image_tokens(spec) or 0)
    assert costs.flops == training_flops(spec, costs.shape) > 0
    assert costs.memory is not None and costs.memory.weights == 4 * _numbers(spec)
    more = predict(spec, BatchShape(4, costs.shape.length))
    assert more is not None and more.activations > 1.9 * costs.memory.activations * (costs.precision == "fp32")


@pytest.mark.lab
def test_a_captioner_reads_an_image_and_writes_a_text() -> None:
    from qkv.lab.costs.training import of_preset

    spec = preset("captioner", **TINY)
    tokens = image_tokens(spec) or 0
    costs = of_preset("captioner", spec, CPU, rows=2, length=7)
    assert costs.shape == BatchShape(2, 7, tokens) and costs.memory is not None
    assert costs.cache is not None and costs.cache["bf16"] == cache_bytes(spec, 7, source=tokens)


@pytest.mark.lab
@pytest.mark.parametrize(
    "name, sizes, changes",
    [
        ("segmenter-tiny", {}, {"head": {"kind": "pixel-masks", "labels": 3, "widths": [8, 16]}}),
        ("yolos-tiny", {"proposals": "patches", "detections": 0, "stem": (8, 8, 16)}, {}),
    ],
)
def test_convolutions_are_counted_part_by_part(name: str, sizes: dict[str, Any], changes: dict[str, Any]) -> None:
    from qkv.lab.costs.training import of_preset

    spec = preset(name, **TINY, **sizes).replace(changes)
    shape = BatchShape(2, image_tokens(spec) or 0)
    found = {part.name: part for part in parts(spec, shape)}
    whole = spec.cost(shape.length)
    assert sum(part.flops for part in found.values()) == 2 * whole.flops
    assert found["head"].flops > 0 and found["head"].parameters == _in(spec, "head.")
    assert whole.parameters == _in(spec, "")
    costs = of_preset(name, spec, CPU, rows=2)
    assert costs.memory is not None and costs.memory.weights == 4 * _numbers(spec)


def _in(spec: Any, prefix: str) -> int:
    return sum(p.numel() for n, p in build(spec, device="meta").named_parameters() if n.startswith(prefix))


def _numbers(spec: Any) -> int:
    """Parameters, and fixed tables that are kept with them."""
    return sum(t.numel() for t in build(spec, device="meta").state_dict().values())


@pytest.mark.lab
def test_a_length_means_nothing_to_images() -> None:
    from qkv.lab.costs.training import of_preset

    with pytest.raises(ValueError, match="reads images as 197 tokens each; leave out --length"):
        of_preset("vit-base-16", preset("vit-base-16"), CPU, length=512)


def test_text_is_not_concerned() -> None:
    assert image_tokens(preset("gpt2")) is None
    assert masked_layout(preset("vit-base-16").encoder.embedding.grid, torch.rand(1, 196)).shape == (1, 50)
