"""The ASGI application of some runs, with the engine that computes for them."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import torch
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from ...nn.cost.hardware import available
from ...runs.inference.run import Run
from ..engine.engine import Engine
from ..engine.memory import token_bytes
from . import chat, completions, responses, tasks
from .bodies import HeldBodies
from .errors import ApiError, answer
from .guard import LOOPBACK, Guard, Keys, Rates
from .loading import Library, load_model, unload_model
from .openapi import openapi
from .page import page_routes
from .served import Models, RequestLimits

_log = logging.getLogger(__name__)
MOST_TOKENS = 1 << 18  # in flight, if memory has room for more


def build_app(
    runs: Sequence[Run],
    *,
    max_tokens_in_flight: int | None = None,
    keys: Keys | None = None,
    hosts: Sequence[str] | None = LOOPBACK,
    requests_per_minute: int | None = None,
    limits: RequestLimits | None = None,
    fast: bool = False,
    prefix_cache_bytes: int | None = None,
    threads: int | None = None,
    library: Library | None = None,
    admins: Keys | None = None,
) -> Starlette:
    """The application of some runs, each by the name of its directory; see `qkv.serve.app`.

    library, admins: what may be loaded while the server runs, and the keys that allow it. Without both, nothing may.
    """
    limits = limits or RequestLimits()
    names = [run.title for run in runs]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ValueError(f"two runs are called {twice[:100]}, and requests name them; rename one of the directories")
    most, prefix = _room(runs, max_tokens_in_flight, prefix_cache_bytes)
    engine = Engine(most, limits.waiting, threads)
    models = Models(engine, limits, fast, prefix)
    for run in runs:
        models.put(run.title, run)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        engine.start()
        yield
        engine.close(timeout=limits.seconds)

    rates = Rates(requests_per_minute)
    routes = [*ROUTES, *([] if library is None or admins is None else LOADING), *page_routes()]
    paths = {route.path for route in routes}
    guard = Middleware(
        Guard, hosts=hosts, keys=keys, rates=rates, statistics=engine.statistics, admins=admins, paths=paths
    )
    handlers: dict[Any, Any] = {Exception: _failed} | dict.fromkeys((404, 405, ValueError, ApiError), _answered)
    app = Starlette(
        routes=routes,
        middleware=[guard, Middleware(HeldBodies, most=limits.bodies)],
        lifespan=lifespan,
        exception_handlers=handlers,
    )
    app.state.models, app.state.library, app.state.needs_key = models, library, keys is not None
    return app


async def _answered(request: Request, error: Exception) -> Response:
    return answer(request, error)


async def _failed(request: Request, error: Exception) -> Response:
    _log.error("a request failed", exc_info=error)
    return answer(request, error)


def _room(runs: Sequence[Run], tokens: int | None, prefix: int | None) -> tuple[int, int]:
    """The most tokens in flight, and bytes of each prefix cache: a quarter of the free memory for tokens by default, and
    a sixteenth for prefixes, or an eighth for those of several models together."""
    free = available(torch.device("cpu")) or 1 << 30
    sizes = [size for run in runs if (size := token_bytes(run.model.spec, run.model.dtype))]
    each = max(sizes, default=0)
    if tokens is None:
        tokens = min(MOST_TOKENS, max(1024, free // 4 // each)) if each else MOST_TOKENS
    return tokens, (free // max(16, 8 * len(sizes)) if prefix is None else prefix)


async def list_models(request: Request) -> Response:
    models: Models = request.app.state.models
    data = [
        {
            "id": one.name,
            "object": "model",
            "created": one.created,
            "owned_by": "qkv",
            "max_model_len": one.run.model.max_positions,
            "task": one.run.task if one.decoder is not None else one.commands[0],
            "endpoints": one.endpoints,
            "reads_files": not one.reads_only_text and "/v1/predict" in one.endpoints,
        }
        for one in models.by_name.values()
    ]
    name = request.path_params.get("name")
    if name is None:
        return JSONResponse({"object": "list", "data": data})
    if name not in models.by_name:
        raise models.unknown(name)
    return JSONResponse(next(one for one in data if one["id"] == name))


def _state(models: Models) -> str:
    state, engine = models.engine.state, models.engine
    return "stuck" if state == "ok" and engine.turn_seconds > models.limits.seconds else state


async def health(request: Request) -> Response:
    """Whether the process can answer at all; if not, it has to be started again."""
    models: Models = request.app.state.models
    state = _state(models)
    return JSONResponse({"status": state, "crashes": models.engine.crashes}, 200 if state == "ok" else 503)


async def ready(request: Request) -> Response:
    """Whether requests of all runs are accepted now."""
    models: Models = request.app.state.models
    state = _state(models)
    if state == "ok":
        is_full = models.engine.waiting >= models.limits.waiting
        state = "crashing" if models.engine.resting else "busy" if is_full else "ready"
    return JSONResponse({"status": state}, 200 if state == "ready" else 503)


async def metrics(request: Request) -> Response:
    engine = request.app.state.models.engine
    gauges = {
        "requests_waiting": ("Requests in the queue.", float(engine.waiting)),
        "rows_running": ("Continuations that are generated now.", float(engine.rows)),
        "tokens_in_flight": ("Tokens for which a place is reserved.", float(engine.tokens)),
        "tokens_in_flight_limit": ("The most of them.", float(engine.most_tokens)),
        "engine_up": (
            "1 if the engine accepts requests of all runs.",
            float(engine.state == "ok" and not engine.resting),
        ),
        "engine_turn_seconds": ("How long the present turn of the engine has taken.", engine.turn_seconds),
    }
    text = "".join(engine.statistics.lines(gauges, engine.crashes))
    return PlainTextResponse(text, media_type="text/plain; version=0.0.4; charset=utf-8")


LOADING = [
    Route("/models/load", load_model, methods=["POST"]),
    Route("/models/unload", unload_model, methods=["POST"]),
]
ROUTES = [
    Route("/v1/models", list_models, methods=["GET"]),
    Route("/v1/models/{name:path}", list_models, methods=["GET"]),
    Route("/v1/completions", completions.completions, methods=["POST"]),
    Route("/v1/chat/completions", chat.chat_completions, methods=["POST"]),
    Route("/v1/responses", responses.responses, methods=["POST"]),
    Route("/v1/embeddings", tasks.embeddings, methods=["POST"]),
    Route("/v1/rerank", tasks.rerank, methods=["POST"]),
    Route("/v1/score", tasks.scores, methods=["POST"]),
    Route("/v1/translate", tasks.translate, methods=["POST"]),
    Route("/v1/classify", tasks.classify, methods=["POST"]),
    Route("/v1/tag", tasks.predict, methods=["POST"]),
    Route("/v1/predict", tasks.predict, methods=["POST"]),
    Route("/v1/loglikelihood", tasks.log_likelihood, methods=["POST"]),
    Route("/openapi.json", openapi, methods=["GET"]),
    Route("/health", health, methods=["GET"]),
    Route("/ready", ready, methods=["GET"]),
    Route("/metrics", metrics, methods=["GET"]),
]
