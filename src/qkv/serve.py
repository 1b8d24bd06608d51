"""Serve trained runs over HTTP: `app(run)` is an ASGI application for a server of your own; `qkv serve` is ours."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial as _partial
from pathlib import Path

from .core.optional_libraries import need as _need

_need("qkv.serve", "starlette", "uvicorn")

from starlette.applications import Starlette as _Starlette  # noqa: E402

from .runs.inference.run import Run as _Run  # noqa: E402
from .runs.inference.run import load as _load  # noqa: E402
from .serving.http.app import build_app as _build  # noqa: E402
from .serving.http.guard import LOOPBACK as _LOOPBACK  # noqa: E402
from .serving.http.guard import Keys as _Keys  # noqa: E402
from .serving.http.loading import Library as _Library  # noqa: E402

__all__ = ["app"]


def app(
    runs: _Run | Sequence[_Run],
    *,
    max_tokens_in_flight: int | None = None,
    keys: Sequence[str] | None = None,
    hosts: Sequence[str] | None = _LOOPBACK,
    requests_per_minute: int | None = None,
    fast: bool = False,
    admin_keys: Sequence[str] | None = None,
    models_dir: str | Path | None = None,
    load: Callable[[str | Path], _Run] | None = None,
) -> _Starlette:
    """An ASGI application that answers for one run or several, each by the name of its directory.

    max_tokens_in_flight: prompt and new tokens of all requests that are generated at a time; others wait. By default as
                          many as a quarter of the free memory holds.
    keys:                 API keys, of which a request has to give one; by default none is needed.
    hosts:                what a request may call this server; by default this machine's own names. None allows any.
    requests_per_minute:  of each key, or of each address without keys.
    fast:                 let other requests at the same time change the last bits of a request's numbers.
    admin_keys:           keys that may load, swap and unload runs (`/models/load`, `/models/unload`); by default nobody may.
    models_dir:           a folder whose subdirectories may be loaded, by name, besides the runs themselves.
    load:                 the function that loads such a directory; by default `qkv.load` on the CPU.

    Raises ValueError for two runs with the same name, and for `models_dir` or `load` without `admin_keys`.
    """
    several = [runs] if isinstance(runs, _Run) else list(runs)
    if admin_keys is None and (models_dir is not None or load is not None):
        raise ValueError("models_dir and load need admin_keys, the keys that may load runs; give admin_keys too")
    known = {run.title: run.path for run in several if run.path is not None}
    folder = None if models_dir is None else Path(models_dir)
    return _build(
        several,
        max_tokens_in_flight=max_tokens_in_flight,
        keys=None if keys is None else _Keys(keys),
        hosts=hosts,
        requests_per_minute=requests_per_minute,
        fast=fast,
        library=_Library(known, load or _partial(_load, device="cpu"), folder),
        admins=None if admin_keys is None else _Keys(admin_keys),
    )
