"""Runs that are loaded, swapped and unloaded while the server answers: `/models/load` and `/models/unload`.

Requests that were accepted are finished by the run that they began with.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ...core.spec import brief, nearest
from ...io.directories.locate import locate
from ...io.directories.spec import spec_of
from ...nn.cost.fit import Decoding, weights_bytes
from ...nn.cost.hardware import available
from ...runs.inference.run import Run
from ..engine.memory import token_bytes
from . import bodies
from .bodies import Body
from .errors import ApiError
from .served import Models


class ModelFields(Body):
    """The name of a run."""

    model: str


class Library:
    """The runs that may be loaded by name: some known ones, and the subdirectories of a folder.

    known: what `load` is called with, by name.
    """

    def __init__(
        self, known: Mapping[str, str | Path], load: Callable[[str | Path], Run], folder: Path | None = None
    ) -> None:
        if folder is not None and not folder.is_dir():
            raise ValueError(f"{folder} is no directory; give one whose subdirectories are runs")
        self.known, self.load, self.folder = dict(known), load, folder

    def places(self) -> dict[str, str | Path]:
        """What is there now, by name."""
        found = self.folder.iterdir() if self.folder is not None and self.folder.is_dir() else ()
        inside = [each for each in found if each.is_dir()]
        return {**{each.name: each for each in inside if not each.name.startswith(".")}, **self.known}


def needed_bytes(models: Models, place: str | Path) -> int:
    """Return an upper bound of a run's memory in bytes: weights, prefix cache, and keys and values of all tokens in flight.

    Raises ValueError if there is no run.
    """
    spec, files = spec_of(str(place)), list(locate(str(place)).glob("*.safetensors"))
    weights = weights_bytes(spec, Decoding(torch.float32))
    if files:
        weights = min(weights, sum(file.stat().st_size for file in files))
    each = token_bytes(spec, torch.float32)
    return weights + (each * models.engine.most_tokens + models.prefix_bytes if each else 0)


async def load_model(request: Request) -> Response:
    """Load a run, or load it again and swap it."""
    models: Models = request.app.state.models
    library: Library = request.app.state.library
    name = (await bodies.fields(request, ModelFields, models.limits.body)).model
    async with models.changing:
        places = await asyncio.to_thread(library.places)
        if name not in places:
            raise ApiError(404, f"there is no run {brief(name)} to load; {nearest(name[:100], places)}", "model")
        needed, run = await asyncio.to_thread(_loaded, models, library, name, places[name])
        swapped = name in models.by_name
        served = models.put(name, run)
    about = {"success": True, "model": name, "swapped": swapped, "memory_bytes": needed, "endpoints": served.endpoints}
    return JSONResponse(about)


def _loaded(models: Models, library: Library, name: str, place: str | Path) -> tuple[int, Run]:
    """Load a run. Return an upper bound of its memory in bytes, and the run.

    Raises `ApiError` if there is too little memory, or the run can't be loaded.
    """
    try:
        needed, free = needed_bytes(models, place), available(torch.device("cpu"))
        if free is not None and needed > free:
            raise ApiError(
                503,
                f"{name} needs up to {needed / 1e9:.3g} GB and {free / 1e9:.3g} GB are free; unload another run first",
                "model",
            )
        return needed, library.load(place)
    except (ValueError, OSError) as error:
        said = str(error).replace(str(Path(place).absolute()), name).replace(str(place), name)
        raise ApiError(400, f"{name} can't be loaded: {said}", "model") from None


async def unload_model(request: Request) -> Response:
    """Unload a run, whose memory is freed when its last request is finished."""
    models: Models = request.app.state.models
    name = (await bodies.fields(request, ModelFields, models.limits.body)).model
    async with models.changing:
        if name not in models.by_name:
            raise models.unknown(name)
        models.remove(name)
    return JSONResponse({"success": True, "model": name})
