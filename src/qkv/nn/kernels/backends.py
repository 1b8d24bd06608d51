"""The registry of attention backends, and the choice of one for a request (`auto`)."""

from __future__ import annotations

from dataclasses import replace

import torch

from ...core.spec import brief, nearest
from ..positions.base import Bias
from . import flash, flex, reference, sdpa, softcap
from .cpu import bf16_amx, block_sparse, few_queries, tiled
from .plain import in_forward_mode
from .request import Backend, Request, Result

# The share of scores below which `tiled` is faster than the fused function with a mask: in fp32, and in bf16.
_SPARSE = (0.4, 0.2)
_SPARSE_BY_KERNEL = (0.95, 0.5)  # with the C++ kernels for CPUs
_DENSE = 1 << 28  # bytes of scores above which `tiled` is chosen to save memory

BACKENDS: dict[str, Backend] = {
    "reference": reference,
    "sdpa": sdpa,
    "capped": softcap,
    "tiled": tiled,
    "flex": flex,
    "flash": flash,
    "decode": few_queries,
}


def register(name: str, backend: Backend) -> None:
    """Register a backend, for `attend(backend=name)`."""
    if name in BACKENDS or name == "auto":
        raise ValueError(f"there is already a backend {brief(name)}; choose another name")
    BACKENDS[name] = backend


def run(request: Request, backend: str = "auto") -> Result:
    """The result of a request by the backend that `choose` names.

    Kernels get positive scales, because some of them multiply by the scale what they have masked with −∞ before.
    """
    name = choose(request, backend)
    if request.scale <= 0 and name != "reference":
        sign = -1.0 if request.scale < 0 else 0.0
        request = replace(request, q=sign * request.q, scale=abs(request.scale) or 1.0)
    return BACKENDS[name].run(request)


def choose(request: Request, backend: str = "auto") -> str:
    """The name of the backend that serves a request. Raises ValueError, with the reason, if the named one can't."""
    if backend != "auto":
        if not isinstance(backend, str) or backend not in BACKENDS:
            raise ValueError(f"there is no backend {brief(backend)}; {nearest(str(backend), ['auto', *BACKENDS])}")
        reason = None if backend == "reference" else _needs_reference(request)
        reason = reason or BACKENDS[backend].refuses(request)
        if reason is not None:
            raise ValueError(f"backend {brief(backend)} can't serve this request: {reason}; choose another, or 'auto'")
        return backend
    if _needs_reference(request) is not None:
        return "reference"
    few = request.q.shape[1] == 1 or request.q.shape[1] * few_queries.FEWEST_KEYS <= request.k.shape[1]
    if few and request.q.is_cpu and few_queries.refuses(request) is None:
        return "decode"
    n_scores = request.q.shape[0] * request.q.shape[2] * request.q.shape[1] * request.k.shape[1]
    if request.dropout and request.q.is_cpu:  # PyTorch's function would hold all weights, and draw its mask one by one
        return "tiled" if tiled.drops(request) or 4 * n_scores > _DENSE >> 2 else "reference"
    if request.softcap is not None and softcap.refuses(request) is None and 4 * n_scores <= _DENSE >> 2:
        return "capped"
    if sdpa.refuses(request) is not None:
        return "reference" if 4 * n_scores <= _DENSE >> 6 else "tiled"
    if request.q.dtype == torch.bfloat16 and bf16_amx.expected(request):
        return "tiled"
    if 4 * n_scores > _DENSE and _holds_all_weights(request):
        return "tiled"
    if n_scores >= block_sparse.MIN_SCORES and block_sparse.beats_fused(request):
        return "tiled"
    return "tiled" if request.q.shape[1] >= 64 and _is_sparse(request) else "sdpa"


def _needs_reference(request: Request) -> str | None:
    """Why only `reference` serves a request; None if others may."""
    if request.weighting is not None:
        return f"it computes a soft-max, and only 'reference' has the weighting {request.weighting.kind!r}"
    if request.score is not None:
        return f"it computes dot products, and only 'reference' has the score {type(request.score).__name__}"
    bias = request.bias
    if in_forward_mode(request.q, request.k, request.v, *(bias.tensors if isinstance(bias, Bias) else (bias,))):
        return "its kernels have no forward-mode derivatives, which 'reference' has"
    return None


def _is_sparse(request: Request) -> bool:
    """Whether computing only the needed blocks takes less time than computing all scores with a mask."""
    narrow = request.q.dtype == torch.bfloat16
    if request.q.device.type == "cpu" and sdpa.needs_mask(request) and tiled.compiled(request):
        return tiled.share(request) < _SPARSE_BY_KERNEL[narrow]
    return request.k.shape[1] >= 1024 and tiled.share(request) < _SPARSE[narrow]


def _holds_all_weights(request: Request) -> bool:
    """Whether `sdpa` would hold all T·S weights, as it does on CPUs for a trained bias."""
    bias = request.bias
    trained = bias.needs_grad if isinstance(bias, Bias) else bias is not None and bias.requires_grad
    return request.q.device.type == "cpu" and trained
