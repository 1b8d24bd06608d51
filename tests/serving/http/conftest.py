"""A server of four runs, whose models are loaded once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import run_tiny
from starlette.testclient import TestClient

import qkv
import qkv.serve
from qkv.runs.inference.run import Run, load


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory, trained: Path, trained_lm: Path) -> dict[str, Run]:
    assistant = run_tiny.assistant(tmp_path_factory.mktemp("served"))
    paths = {"lm": trained_lm, "mt": trained, "chat": assistant, "en": "small-english"}
    return {name: load(path, device="cpu") for name, path in paths.items()}


@pytest.fixture(scope="module")
def client(runs: dict[str, Run]) -> Iterator[TestClient]:
    app = qkv.serve.app(list(runs.values()), max_tokens_in_flight=2000)
    with TestClient(app, "http://127.0.0.1", raise_server_exceptions=False) as client:
        yield client
