"""Input embeddings of a stack: the base class `Input`, and token embeddings."""

from __future__ import annotations

import math
from typing import Annotated, Any, ClassVar, Literal

import torch
from jaxtyping import Float, Int
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from ...core.layout import Grid, Layout
from ...core.spec import Cost, Spec
from .dropout import dropout
from .linear import Linear
from .norm import NoNorm, Norm
from .quantized import QuantizedMatrix


class Input(Spec, role="embedding"):
    """Base class of input embeddings: tokens (`Embedding`), patches of images (`Patches`), frames of sound (`Frames`),
    vectors (`States`), or tokens with media between them (`Joint`).

    For another modality, define a subclass whose `module` maps (inputs, position, token_types) to (B, T, d_model);
    `position` is the positional encoding that the stack adds to its input, or None.
    """

    def module(self, vocab_size: int, d_model: int) -> InputModule:
        raise NotImplementedError

    def width_of(self, d_model: int) -> int:
        """Width of the vectors that positions are added to."""
        return d_model

    def table_width(self, d_model: int) -> int:
        """Width of the token table, which other stacks and the head may share."""
        return self.width_of(d_model)

    def table(self, vocab_size: int, d_model: int) -> int:
        """Number of parameters of the token table."""
        return 0

    def tokens_of(self, length: int) -> int:
        """Number of tokens of an input of this length: of ids, of samples or frames of a sound."""
        return length

    @property
    def grid(self) -> Grid | None:
        """The grid of patches of images of the default size; None if inputs are no images."""
        return None

    @property
    def n_tokens(self) -> int | None:
        """The number of tokens of an input of the default size; None if there is no such size."""
        return None if self.grid is None else self.grid.tokens

    @property
    def further(self) -> int:
        """The number of layers, from the first, to whose outputs vectors are added. If not 0, returns (x, vectors)."""
        return 0

    def cost(self, d_model: int, vocab_size: int, tokens: int = 0) -> Cost:
        """Cost of `tokens` tokens, without the token table, which the model counts."""
        return Cost()


for _kind, _home in (("frames", "frames"), ("waveform", "waveform"), ("mask-scaled", "mask_scaled")):
    Input.kinds.later(_kind, f"qkv.nn.layers.{_home}")


class InputModule(nn.Module):
    """The module of an `Input`.

    Inputs that are no token ids, such as pixels or sound, are given to `lay` first, if `lays` is true. A module with
    `takes_layout` is called with the layout of its tokens too, `module(inputs, position, token_types, layout=layout)`.
    One may return a tuple (x, further): the stack adds further[i] (B, T, M) to the output of layer i (`models.joint`).
    """

    lays: ClassVar[bool] = False
    takes_layout: ClassVar[bool] = False
    over_axes: bool = False  # whether positions of the stack read time, row and column, which a joint input lays out

    weight: nn.Parameter

    def lay(self, inputs: Tensor, layout: Layout | None, mask: Tensor | None = None) -> tuple[Tensor, Layout]:
        """Return what `forward` reads, and the layout of its tokens; `layout`, if given, is already that of the tokens.

        `mask` is true at real inputs, in the inputs' own resolution. Raises ValueError for inputs of another shape.
        """
        raise NotImplementedError(f"{type(self).__name__} has no layout of its inputs")


def real_lengths(mask: Tensor, shape: tuple[int, int], unit: str) -> list[int]:
    """The length of each sound of a batch by its mask, (batch, `unit`): 1 at what is real, 0 at padding on the right.

    Raises ValueError for a mask of another shape, and for padding elsewhere.
    """
    if tuple(mask.shape) != shape:
        raise ValueError(f"a mask is (batch, {unit}), {shape}, not {tuple(mask.shape)}")
    real = mask != 0
    if bool((real[:, 1:] & ~real[:, :-1]).any()):
        raise ValueError("sounds are padded on the right; this mask has padding elsewhere")
    return [int(n) for n in real.sum(1).tolist()]


class Embedding(Input, kind="embedding"):
    """dropout(norm(scale · E[token] + position + type)), projected to d_model if `width` differs from it.

    The projection comes last (ELECTRA), or with `projects` "first" before positions are added, which are then as wide as
    the model (OPT). `projection_bias` is its bias. `scale` "sqrt" multiplies by √width (Vaswani et al. 2017, §3.4), a
    number by itself (Granite). `token_types` is the size of BERT's sentence A/B table; with a single type (RoBERTa), all
    tokens have it.
    """

    width: int | None = Field(default=None, gt=0)
    projects: Literal["last", "first"] = "last"
    projection_bias: bool = True
    scale: Literal["none", "sqrt"] | Annotated[float, Field(gt=0)] = "none"
    norm: Norm = NoNorm()
    dropout: float = Field(default=0.0, ge=0, lt=1)
    token_types: int = Field(default=0, ge=0)

    def module(self, vocab_size: int, d_model: int) -> TokenEmbedding:
        return TokenEmbedding(self, vocab_size, d_model)

    def width_of(self, d_model: int) -> int:
        return d_model if self.projects == "first" else self.table_width(d_model)

    def table_width(self, d_model: int) -> int:
        return self.width or d_model

    def table(self, vocab_size: int, d_model: int) -> int:
        return vocab_size * self.table_width(d_model)

    def cost(self, d_model: int, vocab_size: int, tokens: int = 0) -> Cost:
        own, width = self.table_width(d_model), self.width_of(d_model)
        matrix, bias = (own * d_model, d_model * self.projection_bias) if own != d_model else (0, 0)
        return Cost(self.token_types * width + matrix + bias, 2 * matrix * tokens) + self.norm.cost(width, tokens)


class TokenEmbedding(InputModule, nn.Embedding):  # type: ignore[misc]  # both declare `weight`
    """The module of `Embedding`, an `nn.Embedding`; `weight` (V, width) may be shared with other stacks and with the head.

    Called with ids alone, it gives the rows of the table, as `nn.Embedding` does; the stack calls it with positions and
    types. Vectors in the place of ids, (B, T, width), are taken for rows.
    """

    def __init__(self, spec: Embedding, vocab_size: int, d_model: int) -> None:
        nn.Module.__init__(self)
        own, width = spec.table_width(d_model), spec.width_of(d_model)
        self.num_embeddings, self.embedding_dim, self.padding_idx = vocab_size, own, None
        self.max_norm, self.norm_type, self.scale_grad_by_freq, self.sparse = None, 2.0, False, False
        self.scale = spec.scale if isinstance(spec.scale, float) else math.sqrt(own) if spec.scale == "sqrt" else 1.0
        self.dropout = spec.dropout
        self.weight = nn.Parameter(torch.empty(vocab_size, own))
        self.types = nn.Parameter(torch.empty(spec.token_types, width)) if spec.token_types else None
        self.norm = spec.norm.module(width)
        self.project = Linear(own, d_model, bias=spec.projection_bias) if own != d_model else None
        self.projects_first = self.project is not None and spec.projects == "first"

    def forward(  # `nn.Embedding.forward` takes only ids
        self, ids: Int[Tensor, "B T"] | Float[Tensor, "B T W"], *added: Tensor | None
    ) -> Float[Tensor, "B T M"]:
        return self.finished(self.scaled(ids), *added) if added else self.rows(ids)

    def scaled(self, ids: Int[Tensor, "B T"] | Float[Tensor, "B T W"]) -> Float[Tensor, "B T W"]:
        """The rows of the table at `ids`, times the scale, and projected if that comes first."""
        x = self.rows(ids)
        x = x if self.scale == 1.0 else x * self.scale
        return self.project(x) if self.project is not None and self.projects_first else x

    def finished(
        self,
        x: Float[Tensor, "B T W"],
        position: Float[Tensor, "B T W"] | None,
        token_types: Int[Tensor, "B T"] | None = None,
    ) -> Float[Tensor, "B T M"]:
        """Add positions and types to the vectors, then norm, dropout and projection."""
        if position is not None:
            x = x + position.to(x.dtype)
        if self.types is not None:
            if token_types is None or len(self.types) == 1:
                x = x + self.types[0]
            elif token_types.shape[-1] != x.shape[-2]:
                raise ValueError(
                    f"token types have the shape {tuple(token_types.shape)} and the ids {tuple(x.shape[:-1])}; "
                    "give each token one"
                )
            else:
                x = x + _rows(self.types, token_types, "token types", "the table of token types")
        x = self.norm(x)
        x = dropout(x, self.dropout) if self.training and self.dropout else x
        return x if self.project is None or self.projects_first else self.project(x)

    def rows(self, ids: Int[Tensor, "B T"] | Float[Tensor, "B T W"]) -> Float[Tensor, "B T W"]:
        """The rows of the table at `ids`; vectors are rows already."""
        if isinstance(ids, Tensor) and ids.ndim == 3 and ids.is_floating_point():
            return self._given(ids)
        return _rows(self.weight, ids, "token ids", "the vocabulary")

    def _given(self, vectors: Tensor) -> Tensor:
        if vectors.shape[-1] != self.embedding_dim:
            raise ValueError(
                f"vectors in the place of token ids have the width {self.embedding_dim} here, not {vectors.shape[-1]}"
            )
        return vectors


def through_wrapper(
    wrapper: nn.Module, ids: Tensor, position: Tensor | None, token_types: Tensor | None
) -> Float[Tensor, "B T M"]:
    """The input of a stack whose table another library has wrapped: its rows, scaled and finished by the wrapped module."""
    inner = wrapped(wrapper)
    rows: Tensor = wrapper(ids)
    return inner.finished(rows if inner.scale == 1.0 else rows * inner.scale, position, token_types)


def wrapped(module: nn.Module) -> Any:
    """The embedding in a wrapper of another library. Raises ValueError if there is none."""
    inner: Any = module
    while not isinstance(inner, InputModule):
        inner = getattr(inner, "base_layer", None)
        if inner is None:
            raise ValueError(
                f"the token table was replaced by a {type(module).__name__}; give the stack an embedding of qkv, or "
                "a module that wraps it as `base_layer`, as PEFT's layers do"
            )
    return inner


def _rows(table: Tensor | QuantizedMatrix, ids: Tensor, name: str, size: str) -> Tensor:
    """The rows of a table at `ids`. Raises ValueError for ids that are no integers or have no row.

    Where PyTorch raises an error; a CUDA kernel doesn't look at ids before it runs.
    """
    try:
        return F.embedding(ids, table) if isinstance(table, Tensor) else _dequantized_rows(table, ids)
    except (IndexError, RuntimeError, TypeError):
        if not isinstance(ids, Tensor):
            raise ValueError(
                f"{name} are a tensor of integers, not {type(ids).__name__}; use torch.tensor(…)"
            ) from None
        if ids.is_floating_point() or ids.is_complex() or ids.dtype == torch.bool:
            raise ValueError(f"{name} are integers, not {str(ids.dtype).removeprefix('torch.')}; use .long()") from None
        if not ids.numel() or 0 <= int(ids.min()) <= int(ids.max()) < table.shape[0]:
            raise
        least, most = int(ids.min()), int(ids.max())
        raise ValueError(
            f"{name} range from {least} to {most}, and {size} has {table.shape[0]}; give ids from 0 to "
            f"{table.shape[0] - 1}"
        ) from None


def _dequantized_rows(table: QuantizedMatrix, ids: Tensor) -> Tensor:
    """The rows at `ids`, in the dtype of the model."""
    if ids.is_floating_point() or ids.is_complex() or ids.dtype == torch.bool:
        raise TypeError  # told by the caller
    return table.rows(ids)
