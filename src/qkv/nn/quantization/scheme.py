"""`Scheme`: how the weights of a model are quantized."""

from __future__ import annotations

from typing import Literal, get_args

from pydantic import Field

from ...core.spec import Spec, brief, nearest
from .formats import Format, format_of

Weights = Literal["int8", "int4", "nf4", "fp8", "mxfp4"]
Activations = Literal["none", "int8", "fp8"]
Method = Literal["rtn", "gptq", "awq"]


class Scheme(Spec):
    """How weights are stored, and what their products compute with.

    weights:     int8, int4, nf4, fp8 or mxfp4.
    group_size:  neighboring inputs of a row that share a scale; by default all for int8 and fp8, 128 for int4, 64 for nf4
                 and 32 for mxfp4, or the largest smaller power of two that divides the inputs of a layer.
    symmetric:   without zero points. Only int8 and int4 can have them.
    activations: the inputs of products are quantized too, each token by its largest number: int8 or fp8.
    """

    weights: Weights
    group_size: int | None = Field(default=None, gt=0)
    symmetric: bool = True
    activations: Activations = "none"

    @property
    def format(self) -> Format:
        return format_of(self.weights)

    def check(self) -> None:
        """Raise ValueError for settings that don't go together."""
        if not self.symmetric and not self.format.has_zeros:
            raise ValueError(f"{self.weights} has no zero points; they are for int8 and int4")
        if self.activations == "int8" and self.weights not in ("int8", "int4"):
            raise ValueError(
                f"int8 activations go with int8 and int4 weights, not with {self.weights}; choose fp8 or none"
            )
        if self.activations == "fp8" and self.weights != "fp8":
            raise ValueError(f"fp8 activations go with fp8 weights, not with {self.weights}; choose int8 or none")


def scheme_of(weights: str | Scheme, **fields: object) -> Scheme:
    """A scheme, or that of a name with other fields. Raises ValueError for an unknown name."""
    if isinstance(weights, Scheme):
        return weights
    if not isinstance(weights, str) or weights not in get_args(Weights):
        raise ValueError(f"weights are quantized to {', '.join(get_args(Weights))}, not {brief(weights)}")
    return Scheme(weights=weights, **fields)


def check_method(method: str) -> Method:
    """Raise ValueError for an unknown method."""
    if method not in get_args(Method):
        raise ValueError(f"there is no method of quantization {brief(method)}; {nearest(method, get_args(Method))}")
    return method  # type: ignore[return-value]
