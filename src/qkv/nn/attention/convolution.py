"""Convolutions over tokens in place of attention: plain and gated (ConvS2S), and ByteNet's residual block.

A token sees `kernel` tokens, `dilation` apart: the last ones if the pattern is causal (a masked convolution), otherwise
those around it. Tokens beyond the ends of a document are zeros. Decoding keeps the last (kernel − 1) · dilation inputs.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn import functional as F

from ...core.layout import Layout
from ...core.spec import Cost
from ..kv_cache.full import LayerState, SlotTables
from ..layers.linear import Linear
from ..layers.norm import LayerNorm, Norm
from ..patterns.basic import Full, Pattern
from ..patterns.documents import document_numbers
from .linear import check_full_or_causal, is_causal
from .mixer import Mixer, Pass, refuse_crossing


class Convolution(Mixer, kind="convolution"):
    """y_t = b + Σ_j W_j x_{t + j · dilation}, where j = −(kernel − 1) … 0 if causal, else −(kernel − 1)/2 … (kernel − 1)/2.

    `gated`: y = a ⊙ σ(g), where the convolution gives a and g (ConvS2S, Gehring et al. 2017, §3.2). The pattern is full or
    causal, and packed documents are always isolated.
    """

    kernel: int = Field(default=3, gt=0)
    dilation: int = Field(default=1, gt=0)
    pattern: Pattern = Full()
    gated: bool = False
    bias: bool = True

    @model_validator(mode="after")
    def _centered(self) -> Convolution:
        check_full_or_causal(self.kind, self.pattern)
        if not self.causal and self.kernel % 2 == 0:
            raise ValueError(
                f"a kernel of {self.kernel} tokens has no middle; take an odd kernel, or pattern=causal() for a masked "
                "convolution"
            )
        return self

    @property
    def causal(self) -> bool:
        return is_causal(self.pattern)

    @property
    def past(self) -> int:
        """Number of earlier inputs that a decoding step reads."""
        return (self.kernel - 1) * self.dilation

    def remembers(self) -> int | None:
        return self.past + 1 if self.causal else None

    def module(self, d_model: int, cross: bool = False, name: str = "") -> nn.Module:
        refuse_crossing(self, cross)
        return ConvolutionLayer(self, d_model)

    def width(self, d_model: int) -> int:
        """The number of channels that the convolution reads."""
        return d_model

    def state(self, slot_tables: SlotTables, capacity: int | None = None) -> LayerState:
        if not self.causal:
            raise ValueError(f"{self.kind} decodes token by token with pattern=causal() only, not with {self.pattern}")
        return ConvolutionState()

    def state_parts(self, d_model: int, tokens: int, itemsize: int) -> dict[str, int] | None:
        """Bytes of the last (kernel − 1) · dilation inputs."""
        return {"inputs": self.past * self.width(d_model) * itemsize}

    def cost(self, d_model: int, tokens: int = 0, pairs: int = 0, memory: int = 0) -> Cost:
        """kernel · d² weights, twice that if gated, and two FLOPs of each for a token."""
        outputs = d_model * (2 if self.gated else 1)
        weights = self.kernel * d_model * outputs
        return Cost(weights + outputs * self.bias, 2 * weights * tokens)


class ByteNetConvolution(Convolution, kind="bytenet"):
    """ByteNet's residual block with ReLUs (Kalchbrenner et al. 2016, Figure 3 left), without the residual connection.

    norm, ReLU, 1 × 1 from d_model to d_inner; norm, ReLU, the convolution of d_inner channels; norm, ReLU, 1 × 1 back to
    d_model. `d_inner` is d_model / 2 by default, as in the paper. Give the block `norm: none` and `feedforward: none`.
    """

    d_inner: int | None = Field(default=None, gt=0)
    norm: Norm = LayerNorm()

    @model_validator(mode="after")
    def _not_gated(self) -> ByteNetConvolution:
        if self.gated:
            raise ValueError("gated is for convolution; bytenet's block has ReLUs, so leave it out")
        return self

    def width(self, d_model: int) -> int:
        return self.d_inner or max(d_model // 2, 1)

    def module(self, d_model: int, cross: bool = False, name: str = "") -> nn.Module:
        refuse_crossing(self, cross)
        return ByteNetBlock(self, d_model)

    def state(self, slot_tables: SlotTables, capacity: int | None = None) -> LayerState:
        return super().state(slot_tables, capacity)

    def state_parts(self, d_model: int, tokens: int, itemsize: int) -> dict[str, int] | None:
        return super().state_parts(d_model, tokens, itemsize)

    def cost(self, d_model: int, tokens: int = 0, pairs: int = 0, memory: int = 0) -> Cost:
        inner = self.width(d_model)
        weights = 2 * d_model * inner + self.kernel * inner * inner
        biases = (2 * inner + d_model) * self.bias
        norms = self.norm.cost(d_model, tokens) + self.norm.cost(inner, tokens) * 2
        return Cost(weights + biases, 2 * weights * tokens) + norms


class ConvolutionLayer(nn.Module):
    """The module of `Convolution`: one `Linear` of the kernel's tokens side by side, as initialization and LoRA expect."""

    def __init__(self, spec: Convolution, d_model: int) -> None:
        super().__init__()
        self.spec = spec
        outputs = d_model * (2 if spec.gated else 1)
        self.kernel = Linear(spec.kernel * d_model, outputs, spec.bias, into_residual=True)

    def forward(self, x: Float[Tensor, "B T M"], run: Pass, state: LayerState | None = None) -> Float[Tensor, "B T M"]:
        y: Tensor = self.kernel(neighbors(x, run.layout, self.spec, state))
        return F.glu(y, dim=-1) if self.spec.gated else y


class ByteNetBlock(nn.Module):
    """The module of `ByteNetConvolution`."""

    def __init__(self, spec: ByteNetConvolution, d_model: int) -> None:
        super().__init__()
        self.spec, inner = spec, spec.width(d_model)
        self.norm_in, self.norm_kernel, self.norm_out = (spec.norm.module(d) for d in (d_model, inner, inner))
        self.reduce = Linear(d_model, inner, spec.bias)
        self.kernel = Linear(spec.kernel * inner, inner, spec.bias)
        self.expand = Linear(inner, d_model, spec.bias, into_residual=True)

    def forward(self, x: Float[Tensor, "B T M"], run: Pass, state: LayerState | None = None) -> Float[Tensor, "B T M"]:
        y = self.reduce(self.norm_in(x).relu())
        y = self.kernel(neighbors(self.norm_kernel(y).relu(), run.layout, self.spec, state))
        out: Tensor = self.expand(self.norm_out(y).relu())
        return out


# -- neighbors ---------------------------------------------------------------------------------------------------------


class ConvolutionState:
    """The decoding state: the last (kernel − 1) · dilation inputs of each row, zeros before its first token."""

    def __init__(self) -> None:
        self.inputs: Float[Tensor, "B R C"] | None = None

    def reorder(self, rows: Int[Tensor, " N"]) -> None:
        if self.inputs is not None:
            self.inputs = self.inputs.index_select(0, rows)

    def check_rewind(self, n: int) -> None:
        if n:
            raise ValueError(
                f"a convolution keeps only the inputs that its kernel reads and can't rewind {n} tokens; start again from "
                "the prompt"
            )

    def rewind(self, n: int) -> None:
        """Never called with n > 0: `check_rewind` refuses."""

    def tensors(self) -> dict[str, Tensor]:
        return {} if self.inputs is None else {"inputs": self.inputs}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        self.inputs = tensors.get("inputs")

    @property
    def parts(self) -> dict[str, int]:
        return {"inputs": self.nbytes}

    @property
    def nbytes(self) -> int:
        return sum(t.numel() * t.element_size() for t in self.tensors().values())


def neighbors(
    x: Float[Tensor, "B T C"], layout: Layout, spec: Convolution, state: LayerState | None = None
) -> Float[Tensor, "B T KC"]:
    """The kernel's tokens of each token, side by side; zeros if the document or the row has none.

    Padding is skipped wherever it is. A `state` has the inputs before the first token, and is updated.
    Raises ValueError for a state with rows of several documents.
    """
    assert state is None or isinstance(state, ConvolutionState)
    docs = document_numbers(layout)
    if state is not None and docs is not None:
        raise ValueError("a decoding state needs one document a row; give a layout without segments")
    if layout.padding == "none":
        return _windows(x, docs, spec, state, None)
    valid = layout.valid.expand(x.shape[:2])
    x = x.masked_fill(~valid[..., None], 0.0)
    if layout.padding == "right" or (layout.padding == "left" and state is None):
        return _windows(x, docs, spec, state, valid)
    places = torch.where(valid, valid.long().cumsum(1), valid.sum(1, keepdim=True) + (~valid).long().cumsum(1)) - 1
    order = torch.zeros_like(places).scatter(1, places, torch.arange(x.shape[1], device=x.device).expand_as(places))
    docs = None if docs is None else docs.expand(x.shape[:2]).gather(1, order)
    return _rows(_windows(_rows(x, order), docs, spec, state, valid), places)


def _rows(x: Float[Tensor, "B T C"], order: Int[Tensor, "B T"]) -> Float[Tensor, "B T C"]:
    return x.gather(1, order[..., None].expand(-1, -1, x.shape[-1]))


def _windows(
    x: Tensor, docs: Tensor | None, spec: Convolution, state: ConvolutionState | None, valid: Tensor | None
) -> Float[Tensor, "B T KC"]:
    """The kernel's tokens by index; `valid` says how many real tokens a row has, None for all."""
    rows, tokens, width = x.shape
    before = spec.past if spec.causal else spec.past // 2
    if state is None:
        padded = F.pad(x, (0, 0, before, spec.past - before))
    else:
        known = x.new_zeros(rows, before, width) if state.inputs is None else state.inputs
        padded = torch.cat([known, x], 1)
        state.inputs = _last(padded, before, valid)
    taps = [padded[:, i * spec.dilation :][:, :tokens] for i in range(spec.kernel)]
    if docs is not None:
        numbers = F.pad(docs, (before, spec.past - before), value=-1)
        same = [numbers[:, i * spec.dilation :][:, :tokens] == docs for i in range(spec.kernel)]
        taps = [tap.masked_fill(~inside[..., None], 0.0) for tap, inside in zip(taps, same, strict=True)]
    return torch.cat(taps, -1)


def _last(padded: Tensor, count: int, valid: Tensor | None) -> Tensor:
    """The last `count` inputs before the padding on the right."""
    if valid is None:
        return padded[:, padded.shape[1] - count :].clone()
    index = valid.sum(1, keepdim=True) + torch.arange(count, device=padded.device)
    return _rows(padded, index)
