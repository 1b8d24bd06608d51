"""LoRA: a frozen matrix and a trained update of low rank."""

from __future__ import annotations

import torch
from torch import Tensor

from ....nn.attention.own_calls import hooked
from ....nn.layers.linear import Linear
from ....nn.layers.lora import AdapterSize, LoRALinear, layers
from ..explanation import Explanation
from ..steps import Step, dot, listing, matrix, number
from ..subject import Subject

TITLE = "LoRA: a small update beside a frozen matrix"
W = [[1.0, 0.0, 2.0, -1.0], [0.0, 1.0, -1.0, 0.5], [0.5, -1.0, 0.0, 1.0]]
A, B, X = [[0.5, -0.5, 1.0, 0.0]], [[1.0], [0.5], [-1.0]], [1.0, 2.0, 0.0, 1.0]
ALPHA = 2.0


def example() -> Explanation:
    base = Linear(4, 3, bias=False)
    layer = LoRALinear(base, AdapterSize(1, ALPHA / 1))
    with torch.no_grad():
        for parameter, value in ((layer.weight, W), (layer.lora_a, A), (layer.lora_b, B)):
            parameter.copy_(torch.tensor(value))
    about = "A matrix W of 3 × 4, rank 1 and α = 2, after some training: B starts at 0."
    return Explanation("lora", TITLE, about, _steps(layer, torch.tensor(X), "x"))


def of(subject: Subject) -> Explanation:
    adapted = layers(subject.model)
    index = subject.choose("layer", subject.layer, len(adapted), 0)
    name, layer = list(adapted.items())[index]
    seen: list[Tensor] = []
    with torch.no_grad(), hooked([(layer, lambda _, inputs, out: seen.append(inputs[0]))]):
        subject.model(*subject.inputs)
    tokens = (
        subject.target_tokens
        if subject.target and name.startswith("decoder") and "cross" not in name
        else subject.tokens
    )
    at = subject.choose("token", subject.token, len(tokens), len(tokens) - 1)
    about = f"{subject.about} Adapted layer {index} of {len(adapted)}, {name}, at “{tokens[at]}”."
    return Explanation("lora", TITLE, about, _steps(layer, seen[-1][0, at].float(), tokens[at]))


@torch.no_grad()
def _steps(layer: LoRALinear, x: Tensor, word: str) -> tuple[Step, ...]:
    rank, scale = layer.rank, layer.scale
    a, b = layer.lora_a.float(), layer.lora_b.float()
    delta, plain = layer.delta().float(), layer.plain()
    weight = plain.weight.float() - delta
    low = a @ x
    outputs = [str(i + 1) for i in range(layer.out_features)]
    ranks = [f"rank {i + 1}" for i in range(rank)]
    bias = torch.zeros(layer.out_features) if layer.bias is None else layer.bias.float()
    frozen = weight @ x + bias
    columns = {"W x + b": frozen, "s · B (A x)": scale * (b @ low), "y": layer(x.to(layer.weight.dtype)).float()}
    merged = torch.stack([columns["y"], plain(x.to(plain.weight.dtype)).float()])
    counts = {"parameters": [float(weight.numel()), float(a.numel() + b.numel())]}
    lines = (f"(A x)[1] = {dot(a[0], x)}",)
    return (
        Step(
            "The matrices",
            f"W ({layer.out_features} × {layer.in_features}) stays as it is. Only A ({rank} × {layer.in_features}) and B "
            f"({layer.out_features} × {rank}) are trained.",
            "y = W x + s · B (A x) + b",
            (f"s = α / r = {number(scale)}",),
            (
                matrix(weight, outputs, caption="W, frozen"),
                matrix(a, ranks, caption="A"),
                matrix(b, outputs, ranks, caption="B"),
            ),
        ),
        Step(
            "Down to the rank and up again",
            f"A turns x into {rank} {'number' if rank == 1 else 'numbers'}, and B turns that into an update of the output.",
            "s · B (A x)",
            lines,
            (matrix(low, [word], caption="A x"), listing(outputs, columns, "outputs")),
        ),
        Step(
            "Merged",
            "The product s · B A has the shape of W and can be added to it: afterwards the layer costs no more than before.",
            "W' = W + s · B A",
            (),
            (
                matrix(delta, outputs, caption="s · B A"),
                matrix(plain.weight, outputs, caption="W'"),
                matrix(merged, ["with adapter", "merged"], caption="outputs of both"),
            ),
        ),
        Step(
            "What is trained",
            f"{a.numel() + b.numel():,} parameters instead of {weight.numel():,}: rank · (d_in + d_out).",
            "",
            (),
            (listing(["W", "A and B"], counts, "parameters"),),
        ),
    )
