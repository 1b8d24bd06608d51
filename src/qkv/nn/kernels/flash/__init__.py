"""FlashAttention-2 (Dao 2023) as Triton kernels, forward and backward, for every pattern by a block map.

    S = scale · QKᵀ → soft-cap → + bias,  P = softmax(S) over the allowed pairs,  O = dropout(P) V

Tiles without an allowed pair are never visited and full tiles need no mask; in the others the kernel computes the mask from
positions and segments, or reads it as one bit a pair. No kernel uses atomics: results are the same bits every time.
`paged` decodes from keys and values in pages (Kwon et al. 2023).

fp32, fp16 and bf16, heads up to 256 wide, any number of key-value heads that divides that of queries. On CUDA devices; on
a CPU in Triton's interpreter, when TRITON_INTERPRET=1 is set before Triton is imported.

Tests check the results in the interpreter (fp32, fp16) and compile the kernels for NVIDIA's sm_80 and sm_90. They have not
run on a GPU yet and are not tuned for one.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ....core.layout import Layout
from ...positions.base import Bias
from ...positions.bias import ALiBi, T5Buckets
from ..native.dropout import LEVELS, levels
from ..plan import host_interval, same_segment
from ..request import Request, Result
from .block_map import make, n_boxes
from .operator import flash
from .paged_attention import paged
from .setting import BUCKETS, DENSE, NONE, SLOPES, KernelSetting
from .support import refuses_tensors

__all__ = ["paged", "refuses", "run"]


def refuses(request: Request) -> str | None:
    return refuses_tensors(request.q, request.k, request.v)


def run(request: Request) -> Result:
    rows, cols = sides(request.q, request.v)
    kind, bias = _bias(request)
    boxes = n_boxes(request.pattern.text)
    setting = KernelSetting(
        rows=rows,
        cols=cols,
        boxes=boxes,
        segments=int(_segments_matter(request)),
        per_head=int(boxes < 0 and request.pattern.per_head),
        bias=kind,
        trained=int(torch.is_grad_enabled() and bool(bias) and bias[0].requires_grad),
    )
    about = f"flash tiles {rows} {cols} {request.n_heads} {request.pattern.text}"
    tiles = request.plan.once(about, (request.layout, request.kv_layout), lambda: _map(request, rows, cols))
    numbers = [request.scale, request.softcap or 0.0, levels(request.dropout) / LEVELS]
    out, lse = flash(request.q, request.k, request.v, bias, tiles, list(setting), numbers, _seed(request))
    return (out, lse) if request.return_lse else out


def _seed(request: Request) -> Tensor:
    """The seed of dropout, drawn on the device; never read without dropout."""
    device = request.q.device
    if request.dropout:
        return torch.randint(2**62, (1,), device=device)
    return torch.empty(1, dtype=torch.int64, device=device)


def sides(q: Tensor, v: Tensor) -> tuple[int, int]:
    """Queries and keys of a tile: as many as a multiprocessor's shared memory holds, and no more queries than q has."""
    width = max(q.shape[-1], v.shape[-1])
    rows, cols = (64, 32) if width > 128 else (128, 64)
    if q.dtype == torch.float32:
        rows, cols = (32, 32) if width > 128 else (64, 32)
    return min(rows, max(16, 1 << (q.shape[1] - 1).bit_length() if q.shape[1] else 16)), cols


def _bias(request: Request) -> tuple[int, list[Tensor]]:
    """The kind of bias and its tensors. One that the kernels can't compute becomes a dense tensor here, seen by autograd."""
    bias = request.bias
    if isinstance(bias, Bias) and isinstance(bias.scheme, ALiBi) and bias.scheme.precision == "float32":
        return SLOPES, [(bias.tensors[0] * bias.scheme.scale).detach()]
    if isinstance(bias, Bias) and isinstance(bias.scheme, T5Buckets):
        scheme, weights = bias.scheme, bias.tensors[0].contiguous()
        return BUCKETS, [weights, request.plan.once(f"flash {scheme.text}", (), lambda: _buckets(scheme, weights))]
    dense = request.dense_bias()
    if dense is None:
        return NONE, []
    return DENSE, [dense.reshape((1,) * (4 - dense.ndim) + tuple(dense.shape))]


def _buckets(scheme: T5Buckets, like: Tensor) -> Tensor:
    """The bucket of each distance from −max_distance to max_distance; distances beyond share the buckets of these."""
    return scheme.bucket(torch.arange(-scheme.max_distance, scheme.max_distance + 1, device=like.device))


def _segments_matter(request: Request) -> bool:
    return not same_segment(request.layout, request.kv_layout)


def _map(request: Request, rows: int, cols: int) -> list[Tensor]:
    """The block map; for layouts known to the host it is made without waiting for the device."""
    sides = request.layout, request.kv_layout
    segments = _both([side.segments for side in sides], sides) if _segments_matter(request) else []
    positions = [side.positions for side in sides]
    if all(_is_known(side) for side in sides):
        positions = [_known(side) for side in sides]
    roles = _both([side.roles for side in sides], sides)
    return make(positions, segments, roles, request.pattern.text, request.n_heads, rows, cols, request.q.device)


def _is_known(layout: Layout) -> bool:
    """Whether the host knows everything that the map depends on."""
    return host_interval(layout) is not None and layout.padding == "none" and layout.roles is None


def _known(layout: Layout) -> Tensor:
    """The positions of a layout known to the host, as a tensor on the host."""
    assert layout.start is not None
    return torch.arange(layout.start, layout.start + layout.shape[1], device="cpu")[None, :, None]


def _both(marks: list[Tensor | None], sides: tuple[Layout, Layout]) -> list[Tensor]:
    """Segments or roles of both sides, 0 if one side has none; an empty list if neither has any."""
    if all(mark is None for mark in marks):
        return []
    zeros = (side.positions.new_zeros(side.shape) for side in sides)
    return [zero if mark is None else mark for mark, zero in zip(marks, zeros, strict=True)]
