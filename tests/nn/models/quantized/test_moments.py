"""Second moments of inputs: without padding, and of each expert's own tokens."""

from __future__ import annotations

import torch
from mixtures import batch_of, mixture
from prunable_models import IDS, stirred
from quantizable_models import FAMILIES

from qkv.core.batch import Batch
from qkv.core.layout import Layout
from qkv.nn.layers.quantized import quantized
from qkv.nn.models.quantized.moments import moments
from qkv.nn.models.quantized.quantize import quantize
from qkv.nn.quantization.methods.gptq import gptq
from qkv.nn.quantization.scheme import Scheme


def test_moments_leave_out_padding() -> None:
    model = stirred(FAMILIES["gpt2"][0]).float()
    path = "decoder.blocks.0.attention.q"
    seen: list[torch.Tensor] = []
    model.get_submodule(path).register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    layout = Layout.from_lengths([6, 3], 6)
    padded = Batch({"ids": IDS, "layout": layout}, None, {}, 9, 12)
    layers = {f"{path[:-1]}{name}": model.get_submodule(f"{path[:-1]}{name}") for name in "qkv"}
    found = moments(model, layers, [padded, padded], lambda m, b: m(**b.inputs))
    x = torch.cat([seen[0][0], seen[0][1, :3]])
    torch.testing.assert_close(found[path].second, x.T @ x / 9)
    torch.testing.assert_close(found[path].mean, x.abs().mean(0))
    assert found[path].count == 18 and found[f"{path[:-1]}v"] is found[path]


@torch.no_grad()
def test_experts_are_calibrated_on_their_own_tokens() -> None:
    """Each matrix is GPTQ's with the inputs of the tokens that the router sends there, computed from the equation."""
    model, batch, scheme = mixture(n_layers=1), batch_of(12), Scheme(weights="int4", group_size=32)
    moe = model.decoder.blocks[0].feedforward
    seen: list[torch.Tensor] = []
    moe.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    model(**batch.inputs)
    x = seen[0].flatten(0, 1)
    experts = moe.router(x).experts
    own = [x[(experts == e).any(1)] for e in range(4)]
    wanted = [
        gptq(w, scheme.format, 32, second=part.T @ part / len(part)) for w, part in zip(moe.up.weight, own, strict=True)
    ]
    keep = ["*.attention.*"]  # as they are, so the experts read what they read here
    quantize(model, scheme, "gptq", keep=keep, batches=[batch])
    got = quantized(model)["decoder.blocks.0.feedforward.up"].dense()
    for e in range(4):
        assert float((got[e] != wanted[e].dense()).float().mean()) < 0.01  # sums in another order may round otherwise
