"""The attention backends by name, and the choice of one for a request (`auto`)."""

from __future__ import annotations

import torch

from ..core.forward_mode import in_forward_mode
from ..core.spec import nearest
from ..positions.base import Bias
from . import flash, flex, reference, sdpa, softcap
from .cpu import bf16_amx, tiled
from .request import Backend, Request

# The share of scores below which computing no others pays: in fp32, and in bf16.
_SPARSE = (0.4, 0.2)
_SPARSE_BY_KERNEL = (0.95, 0.5)  # where our own kernels for CPUs do it
_DENSE = 1 << 28  # bytes of scores above which memory decides for `tiled`

BACKENDS: dict[str, Backend] = {
    "reference": reference,
    "sdpa": sdpa,
    "capped": softcap,
    "tiled": tiled,
    "flex": flex,
    "flash": flash,
}


def register(name: str, backend: Backend) -> None:
    """Add a backend under a name that `attend(backend=name)` then takes."""
    if name in BACKENDS or name == "auto":
        raise ValueError(f"there is a backend {name!r} already")
    BACKENDS[name] = backend


def choose(request: Request, backend: str = "auto") -> str:
    """The name of the backend that serves a request. A named one that can't raises ValueError with its reason."""
    if backend != "auto":
        if backend not in BACKENDS:
            raise ValueError(f"there is no backend {backend!r}; {nearest(backend, ['auto', *BACKENDS])}")
        reason = (
            _by_other_scores(request, backend) or _by_tangents(request, backend) or BACKENDS[backend].refuses(request)
        )
        if reason is not None:
            raise ValueError(f"backend {backend!r} can't serve this request: {reason}; choose another, or 'auto'")
        return backend
    if request.score is not None or request.weighting is not None or _forward(request):
        return "reference"
    size = request.q.shape[0] * request.n_heads * request.q.shape[1] * request.k.shape[1] * 4
    if BACKENDS["capped"].refuses(request) is None and size <= _DENSE >> 2:
        return "capped"
    if BACKENDS["sdpa"].refuses(request) is not None:
        return "reference" if size <= _DENSE >> 6 else "tiled"
    if bf16_amx.expected(request):
        return "tiled"
    if size > _DENSE and _falls_to_plain_mathematics(request):
        return "tiled"
    return "tiled" if _leaves_out_much(request) else "sdpa"


def _by_other_scores(request: Request, backend: str) -> str | None:
    """Why a kernel can't compare, or weigh, as the request wants it."""
    if backend == "reference":
        return None
    if request.weighting is not None:
        return f"its weights are a soft-max, and those of {request.weighting.kind!r} only 'reference' computes"
    if request.score is None:
        return None
    return f"it compares by dot products, and {type(request.score).__name__} is none, for which 'reference' holds all scores"


def _forward(request: Request) -> bool:
    bias = request.bias
    return in_forward_mode(request.q, request.k, request.v, *(bias.tensors if isinstance(bias, Bias) else (bias,)))


def _by_tangents(request: Request, backend: str) -> str | None:
    if backend == "reference" or not _forward(request):
        return None
    return "its kernels have no forward-mode derivatives, which 'reference' has"


def _leaves_out_much(request: Request) -> bool:
    """Whether computing what is needed alone takes less time than computing all and hiding the rest."""
    narrow = request.q.dtype == torch.bfloat16
    if request.q.shape[1] < 64:
        return False
    if request.q.device.type == "cpu" and sdpa.hides(request) and tiled.compiled(request):
        return tiled.share(request) < _SPARSE_BY_KERNEL[narrow]
    return request.k.shape[1] >= 1024 and tiled.share(request) < _SPARSE[narrow]


def _falls_to_plain_mathematics(request: Request) -> bool:
    """On CPUs the fused function holds all T·S weights for attention dropout and for a bias that is trained."""
    bias = request.bias
    trained = bias.needs_grad if isinstance(bias, Bias) else bias is not None and bias.requires_grad
    return request.q.device.type == "cpu" and (request.dropout > 0 or trained)
