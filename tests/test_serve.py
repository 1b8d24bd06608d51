"""`qkv.serve.app`: an application for one run or several, and options that need one another."""

from __future__ import annotations

from pathlib import Path

import pytest
from starlette.testclient import TestClient

import qkv
import qkv.serve


def test_one_run_is_served_under_its_name(trained_lm: Path) -> None:
    run = qkv.load(trained_lm, "cpu")
    with TestClient(qkv.serve.app(run), "http://127.0.0.1") as client:
        (model,) = client.get("/v1/models").json()["data"]
        assert model["id"] == run.title
    with TestClient(qkv.serve.app([run], keys=["secret"]), "http://127.0.0.1") as client:
        assert client.get("/v1/models").status_code == 401
        assert client.get("/v1/models", headers={"authorization": "Bearer secret"}).status_code == 200


def test_loading_runs_needs_keys_of_administrators(trained_lm: Path, tmp_path: Path) -> None:
    run = qkv.load(trained_lm, "cpu")
    for options in ({"models_dir": tmp_path}, {"load": qkv.load}):
        with pytest.raises(ValueError, match="models_dir and load need admin_keys"):
            qkv.serve.app(run, **options)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="two runs"):
        qkv.serve.app([run, run])
