"""Runs are loaded, swapped and unloaded while requests are answered; only with the key of an administrator."""

from __future__ import annotations

import concurrent.futures
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from starlette.testclient import TestClient

import qkv
import qkv.serve
from qkv.runs.inference.run import Run, load
from qkv.serving.engine.decoder import Decoder
from qkv.serving.http import loading
from qkv.serving.http.app import build_app
from qkv.serving.http.guard import Keys
from qkv.serving.http.loading import Library

ADMIN, KEY = {"authorization": "Bearer the-administrators-key"}, {"authorization": "Bearer the-key-of-a-client"}
ASKED = {"model": "lm", "prompt": "the cat", "max_tokens": 24, "min_tokens": 24, "temperature": 0}


@pytest.fixture
def folder(tmp_path: Path, trained_lm: Path) -> Path:
    shutil.copytree(trained_lm, tmp_path / "runs" / "lm")
    return tmp_path / "runs"


@pytest.fixture
def client(folder: Path) -> Iterator[TestClient]:
    library = Library({"lm": folder / "lm"}, lambda path: load(path, device="cpu"), folder)
    app = build_app(
        [load(folder / "lm", device="cpu")],
        keys=Keys([KEY["authorization"].split()[1]]),
        admins=Keys([ADMIN["authorization"].split()[1]]),
        library=library,
        max_tokens_in_flight=2000,
    )
    with TestClient(app, "http://127.0.0.1", headers=KEY, raise_server_exceptions=False) as client:
        yield client


def change(folder: Path) -> None:
    """Train on, so to speak: other weights by the same name."""
    run = load(folder / "lm", device="cpu")
    with torch.no_grad():
        for parameter in run.model.parameters():
            parameter.mul_(-1.5)
    run.save(folder / "new")
    shutil.rmtree(folder / "lm")
    (folder / "new").rename(folder / "lm")


def text(client: TestClient) -> str:
    answer = client.post("/v1/completions", json=ASKED)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["choices"][0]["text"])


def test_a_run_is_swapped_under_load_and_no_request_is_dropped(client: TestClient, folder: Path) -> None:
    old = text(client)
    change(folder)
    new = load(folder / "lm", device="cpu").generate("the cat", max_new_tokens=24, min_new_tokens=24)
    assert new != old
    with concurrent.futures.ThreadPoolExecutor(8) as threads:
        asked = [threads.submit(text, client) for _ in range(40)]
        answer = client.post("/models/load", json={"model": "lm"}, headers=ADMIN)
        found = {one.result() for one in asked}
    assert answer.status_code == 200 and answer.json()["swapped"] and answer.json()["memory_bytes"] > 0
    assert old in found and found <= {old, new}
    assert text(client) == new
    assert len(client.app.state.models.engine.decoders) == 1  # type: ignore[attr-defined]


def test_the_old_run_finishes_what_it_has(client: TestClient, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old, step, stepping, go = text(client), Decoder.step, threading.Event(), threading.Event()

    def slow(self: Decoder) -> int:
        if self.rows:
            stepping.set()
            assert go.wait(60)
        return step(self)

    monkeypatch.setattr(Decoder, "step", slow)
    change(folder)
    with concurrent.futures.ThreadPoolExecutor(1) as threads:
        asked = threads.submit(text, client)
        assert stepping.wait(60)
        assert client.post("/models/load", json={"model": "lm"}, headers=ADMIN).json()["swapped"]
        assert client.post("/models/unload", json={"model": "lm"}, headers=ADMIN).json()["success"]
        answer = client.post("/v1/completions", json=ASKED)
        assert answer.status_code == 404 and "none is loaded now" in answer.json()["error"]["message"]
        assert client.post("/v1/embeddings", json={"input": "a"}).status_code == 503
        go.set()
        assert asked.result() == old
    engine: Any = client.app.state.models.engine  # type: ignore[attr-defined]
    for _ in range(500):
        if not engine.decoders:
            break
        time.sleep(0.01)
    assert not engine.decoders


def test_a_request_that_arrives_at_a_run_that_has_left_is_answered(client: TestClient) -> None:
    models: Any = client.app.state.models  # type: ignore[attr-defined]
    served, want = models.by_name["lm"], text(client)
    client.post("/models/unload", json={"model": "lm"}, headers=ADMIN)
    while models.engine.decoders:
        time.sleep(0.001)
    models.by_name["lm"] = served  # as if it had been found just before
    assert text(client) == want


def test_another_run_is_loaded_from_the_folder_and_unloaded(client: TestClient, folder: Path, trained: Path) -> None:
    shutil.copytree(trained, folder / "mt")
    answer = client.post("/models/load", json={"model": "mt"}, headers=ADMIN).json()
    assert not answer["swapped"] and "/v1/translate" in answer["endpoints"]
    (one,) = client.post("/v1/translate", json={"input": "a b"}).json()["data"]
    assert one["text"] == qkv.load(trained, device="cpu").generate("a b")
    assert {each["id"] for each in client.get("/v1/models").json()["data"]} == {"lm", "mt"}
    assert client.post("/models/unload", json={"model": "mt"}, headers=ADMIN).status_code == 200
    assert client.post("/v1/translate", json={"input": "a b"}).status_code == 404
    assert text(client)


@pytest.mark.parametrize("name", ["../lm", "", ".", "..", "lm/", "/etc", ".hidden", "file", "x" * 10_000, "lm\0"])
def test_nothing_else_of_the_machine_is_loaded(name: str, client: TestClient, folder: Path) -> None:
    (folder / ".hidden").mkdir()
    (folder / "file").touch()
    answer = client.post("/models/load", json={"model": name}, headers=ADMIN)
    assert answer.status_code == 404 and str(folder) not in answer.text and len(answer.text) < 1000


def test_a_damaged_run_and_too_little_memory_leave_the_old_one(
    client: TestClient, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    want = text(client)
    with monkeypatch.context() as patch:
        patch.setattr(loading, "available", lambda device: 1000)
        answer = client.post("/models/load", json={"model": "lm"}, headers=ADMIN)
        assert answer.status_code == 503 and "unload another run first" in answer.json()["error"]["message"]
    (folder / "empty").mkdir()
    for broken in ("lm", "empty"):
        (folder / broken / "config.json").write_text("{", encoding="utf-8")
        answer = client.post("/models/load", json={"model": broken}, headers=ADMIN)
        message = answer.json()["error"]["message"]
        assert answer.status_code == 400 and "can't be loaded" in message and str(folder) not in message, message
    assert text(client) == want


def test_only_administrators_load_and_only_if_the_server_has_any(client: TestClient, trained_lm: Path) -> None:
    for path in ("/models/load", "/models/unload"):
        for headers in (KEY, {"authorization": ""}, {**ADMIN, "origin": "https://evil.example"}):
            assert client.post(path, json={"model": "lm"}, headers=headers).status_code in (401, 403)
    assert client.get("/v1/models", headers=ADMIN).status_code == 401
    with TestClient(build_app([load(trained_lm, device="cpu")]), "http://127.0.0.1") as plain:
        assert plain.post("/models/load", json={"model": "lm"}).status_code == 404


def test_the_application_for_ones_own_server_takes_what_loading_needs(folder: Path, trained: Path) -> None:
    loaded = []

    def again(place: str | Path) -> Run:
        loaded.append(Path(place).name)
        return load(place, device="cpu")

    shutil.copytree(trained, folder / "mt")
    keys: dict[str, Any] = {"admin_keys": [ADMIN["authorization"].split()[1]], "models_dir": str(folder)}
    app = qkv.serve.app(load(folder / "lm", device="cpu"), **keys, load=again)
    with TestClient(app, "http://127.0.0.1", headers=ADMIN) as client:
        assert client.post("/models/load", json={"model": "lm"}).json()["swapped"]
        assert client.post("/models/load", json={"model": "mt"}).json()["endpoints"][0] == "/v1/translate"
    assert loaded == ["lm", "mt"]
    with pytest.raises(ValueError, match="need admin_keys"):
        qkv.serve.app([], models_dir=folder)
