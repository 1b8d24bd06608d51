"""Layer normalization of one token's vector."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from ....nn.attention.own_calls import hooked
from ....nn.layers.norm import LayerNorm, LayerNormalize, OffsetRMSNormalize, RMSNorm, RMSNormalize
from ..explanation import Explanation
from ..steps import Step, listing, number
from ..subject import Subject

TITLE = "LayerNorm: every token's vector gets mean 0 and variance 1"
X, GAIN, BIAS = (2.0, 4.0, 4.0, 6.0), (1.0, 2.0, 1.0, 0.5), (0.0, 0.0, 1.0, 0.0)

Normalize = LayerNormalize | RMSNormalize | OffsetRMSNormalize


def example() -> Explanation:
    layer, root = LayerNorm().module(len(X)), RMSNorm().module(len(X))
    assert isinstance(layer, LayerNormalize) and isinstance(root, RMSNormalize) and layer.bias is not None
    with torch.no_grad():
        layer.weight.copy_(torch.tensor(GAIN))
        layer.bias.copy_(torch.tensor(BIAS))
        root.weight.fill_(1.0)
    x = torch.tensor(X)
    about = "One token's vector of width 4, with a gain and a bias."
    steps = _layer_norm(x, layer)
    text = (
        "RMSNorm does not subtract the mean and has no bias: it divides by the root of the mean of squares. Many "
        "newer models "
        "use it."
    )
    (other,) = _rms_norm(x, root)
    rms = replace(other, title=f"RMSNorm: {other.title.lower()}", text=text)
    return Explanation("layernorm", TITLE, about, (*steps, rms))


def of(subject: Subject) -> Explanation:
    where = subject.stacks[0]
    stack = getattr(subject.model, where)
    within = {"attention", "cross", "feedforward"}  # of queries and keys, not of tokens
    modules = [(name, module) for name, module in stack.named_modules() if isinstance(module, Normalize)]
    norms = _seen(
        subject, {f"{where}.{name}": norm for name, norm in modules if not within & set(name.split(".")[:-1])}
    )
    index = subject.choose("layer", subject.layer, len(norms), 0)
    name, norm, x = norms[index]
    tokens = subject.tokens_of(where)
    at = subject.choose("token", subject.token, len(tokens), len(tokens) - 1)
    about = f"{subject.about} Norm {index} of {len(norms)}, {name}, at “{tokens[at]}”."
    if isinstance(norm, LayerNormalize):
        return Explanation("layernorm", TITLE, about, _layer_norm(x[at], norm))
    return Explanation(
        "layernorm", "RMSNorm: every token's vector gets a mean square of 1", about, _rms_norm(x[at], norm)
    )


def _seen(subject: Subject, norms: Mapping[str, Normalize]) -> list[tuple[str, Normalize, Tensor]]:
    """Names, norms and inputs (T, M), in the order in which a pass over the text computes them."""
    seen: list[tuple[str, Normalize, Tensor]] = []

    def keep(name: str, norm: Normalize) -> Callable[..., None]:
        return lambda _, inputs, out: seen.append((name, norm, inputs[0][0].float()))

    with torch.no_grad(), hooked((norm, keep(name, norm)) for name, norm in norms.items()):
        subject.model(*subject.inputs)
    return seen


def _names(x: Tensor) -> Sequence[str]:
    return [str(i + 1) for i in range(len(x))]


@torch.no_grad()
def _layer_norm(x: Tensor, norm: LayerNormalize) -> tuple[Step, ...]:
    mean, var = x.mean(), x.var(correction=0)
    normal = (x - mean) / (var + norm.eps).sqrt()
    bias = torch.zeros_like(x) if norm.bias is None else norm.bias.float()
    columns = {
        "normalized": normal,
        "gain g": norm.weight.float(),
        "bias b": bias,
        "y": norm(x.to(norm.weight.dtype)).float(),
    }
    return (
        Step(
            "Mean and variance",
            f"Over the {len(x)} coordinates of this token, not over the tokens of a text or a batch.",
            "mean = Σ x / d   var = Σ (x − mean)² / d",
            (f"mean = {number(float(mean))}", f"var  = {number(float(var))}"),
            (
                listing(
                    _names(x),
                    {"x": x, "x − mean": x - mean, "(x − mean)²": (x - mean).square()},
                    "the vector by coordinate",
                ),
            ),
        ),
        Step(
            "Normalize",
            f"ε = {norm.eps:g} keeps the division finite if all coordinates are equal.",
            "(x − mean) / √(var + ε)",
            (f"√(var + ε) = {number(float((var + norm.eps).sqrt()))}",),
            (listing(_names(x), {"x": x, "normalized": normal}, "normalized"),),
        ),
        Step(
            "Gain and bias",
            "A trained gain and bias for each coordinate scale and shift the result.",
            "y = normalized · g + b",
            (),
            (listing(_names(x), columns, "output"),),
        ),
    )


@torch.no_grad()
def _rms_norm(x: Tensor, norm: RMSNormalize | OffsetRMSNormalize) -> tuple[Step, ...]:
    root = (x.square().mean() + norm.eps).sqrt()
    gain = norm.weight.float() + norm.offset
    columns = {"x": x, "x / rms": x / root, "gain g": gain, "y": norm(x.to(norm.weight.dtype)).float()}
    return (
        Step(
            "Divide by the root of the mean square",
            f"Over the {len(x)} coordinates of this token. No mean is subtracted, and there is no bias.",
            "y = x / √(Σ x² / d + ε) · g",
            (f"√(Σ x² / d + ε) = {number(float(root))}",),
            (listing(_names(x), columns, "output by coordinate"),),
        ),
    )
