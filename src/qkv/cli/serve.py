"""`qkv serve`: answer HTTP requests with trained runs."""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import Annotated, Any

import typer

from .say import echo, warn
from .texts import uncollected

MEMORY = ("program and weights", "keys and values", "prefix caches", "bodies of requests", "a step")


def serve(
    runs: Annotated[
        list[str],
        typer.Argument(metavar="RUN...", help="Run directories, directories in the Hub's format, or names on the Hub."),
    ],
    host: Annotated[str, typer.Option(metavar="ADDRESS", help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(metavar="N", min=0, max=65535, help="The port; 0 takes a free one.")] = 8000,
    weights: Annotated[
        str | None,
        typer.Option(
            metavar="int8|int4",
            help="Round the weights of linear layers, and activations to 8 bits. The embeddings and the head of models "
            "that generate text are rounded to 8 bits.",
        ),
    ] = None,
    max_tokens_in_flight: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=16,
            help="Prompt and new tokens of all requests at a time; others wait. [default: a quarter of the free memory]",
        ),
    ] = None,
    api_key_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A file with API keys, one per line; requests must send one of them."),
    ] = None,
    requests_per_minute: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=1, help="Requests that a key may send per minute, or an address if there are no keys."
        ),
    ] = None,
    allowed_host: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A name that requests may call this server; repeatable. [default: its own]"),
    ] = None,
    models_dir: Annotated[
        Path | None,
        typer.Option(
            metavar="DIRECTORY", help="A directory whose subdirectories may be loaded by name while the server runs."
        ),
    ] = None,
    admin_key_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="A file with keys that may load, replace and unload runs: POST /models/load, /models/unload.",
        ),
    ] = None,
    fast: Annotated[
        bool,
        typer.Option(
            "--fast", help="Compute faster; other requests may then change the last bits of a request's numbers."
        ),
    ] = False,
) -> None:
    """Serve trained runs over HTTP, with OpenAI's API and further endpoints.

    Completions, chats, translations, embeddings, ranking, classes, tags and predictions, by what the runs do. The answer to
    a request does not depend on other requests. See docs/serving.md.
    """
    with uncollected():
        from ..core.optional_libraries import need

        need("qkv serve", "starlette", "uvicorn")
        from ..nn.quantization.scheme import Scheme
        from ..runs.inference.run import load
        from ..serving.engine.memory import server_memory
        from ..serving.http.app import build_app
        from ..serving.http.guard import LOOPBACK, Keys
        from ..serving.http.loading import Library
        from ..serving.http.server import serve as run_server

        if weights not in (None, "int8", "int4"):
            raise ValueError(f"--weights is int8 or int4, not {weights!r}")
        keys = None if api_key_file is None else Keys.read(api_key_file)
        if models_dir is not None and admin_key_file is None:
            raise ValueError("--models-dir needs --admin-key-file, a file with the keys that may load its runs")
        admins = None if admin_key_file is None else Keys.read(admin_key_file)

        def opened(run: str | Path) -> Any:
            found = load(run, "cpu")
            if weights is None:
                return found
            generates = found.task in ("continue", "answer", "translate")  # each token reads the head
            whole = Scheme(weights="int8", activations="int8") if generates else False
            kind: Any = weights
            return found.quantize(kind, activations="int8", method="rtn", embeddings=whole, head=whole)

        loaded = [opened(run) for run in runs]
        known = {one.title: path for one, path in zip(loaded, runs, strict=True)}
        is_local = _is_loopback(host)
        hosts = [*LOOPBACK, *(allowed_host or ())] if is_local or allowed_host else None
        app = build_app(
            loaded,
            max_tokens_in_flight=max_tokens_in_flight,
            keys=keys,
            hosts=hosts,
            requests_per_minute=requests_per_minute,
            fast=fast,
            library=Library(known, opened, models_dir),
            admins=admins,
        )
    if not is_local and keys is None:
        warn(f"anyone who can reach {host} can use these models; set --api-key-file, or use --host 127.0.0.1")
    models = app.state.models
    for one in models.by_name.values():
        echo(f"{one.name}: {', '.join(one.endpoints)}", err=True)
    most, limits = models.engine.most_tokens, models.limits
    memory = server_memory(loaded, most, models.prefix_bytes, limits.bodies, limits.tokens)
    parts = ", ".join(f"{size / 1e9:.2g} GB {what}" for size, what in zip(memory, MEMORY, strict=True))
    echo(f"{most:,} tokens in flight at most", err=True)
    echo(f"at most {sum(memory) / 1e9:.2g} GB of memory: {parts}", err=True)
    shown = f"[{host}]" if ":" in host else host
    run_server(app, host, port, lambda at: echo(f"http://{shown}:{at}/", err=True))


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
