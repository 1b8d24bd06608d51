"""Predictions on files: a picture, a sound, a video or a table is the body of a request."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ...core.spec import brief, nearest
from . import bodies
from .errors import ApiError
from .generating import until_hung_up
from .served import Models

ENDINGS = {
    "image/png": ".png",
    "image/jpeg": ".jpg",
    "image/webp": ".webp",
    "image/gif": ".gif",
    "image/bmp": ".bmp",
    "audio/wav": ".wav",
    "audio/x-wav": ".wav",
    "audio/flac": ".flac",
    "audio/mpeg": ".mp3",
    "audio/ogg": ".ogg",
    "audio/midi": ".mid",
    "video/mp4": ".mp4",
    "video/webm": ".webm",
    "text/csv": ".csv",
}


async def predict_file(request: Request, models: Models) -> Response:
    """The prediction on one file. It lies in a temporary file while it is read, which no name in a request chooses."""
    kind = request.headers.get("content-type", "").split(";")[0].strip().lower()
    if kind not in ENDINGS:
        raise ApiError(415, f"the content type {brief(kind)} is not read; {nearest(kind[:60], ENDINGS)}")
    served = models.find(request.query_params.get("model"), request.url.path)
    if served.reads_only_text:
        raise ApiError(400, f'{served.name} reads texts; send JSON: {{"input": "…"}}')
    body = await bodies.read(request, models.limits.body)
    if not body:
        raise ApiError(400, "the body is empty; send the file as the body")

    def job() -> dict[str, Any]:
        with tempfile.TemporaryDirectory(prefix="qkv-serve-") as folder:
            path = Path(folder) / f"input{ENDINGS[kind]}"
            with path.open("xb") as file:
                file.write(body)
            try:
                (found,) = served.run.predict([path])
            except ValueError as error:
                raise ValueError(str(error).replace(str(path), "the file").replace(folder, "")) from None
            answer = {"object": "prediction", "model": served.name, "text": found.text, **dict(found.fields)}
        return _without(str(path), answer)

    return JSONResponse(await until_hung_up(request, models.do(job)))


def _without(path: str, value: Any) -> Any:
    """A value of JSON without the path of the temporary file, which begins the texts of some tasks."""
    if isinstance(value, str):
        return value.removeprefix(f"{path}: ").replace(path, "file")
    if isinstance(value, Mapping):
        return {name: _without(path, each) for name, each in value.items()}
    return [_without(path, each) for each in value] if isinstance(value, list | tuple) else value
