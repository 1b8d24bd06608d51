"""Files as bodies: the answer is the one of `run.predict`, and no path of the server is told."""

from __future__ import annotations

from pathlib import Path

import pytest
from starlette.testclient import TestClient
from test_predict_by_head import of_pictures, pictures

import qkv
import qkv.serve


def test_a_picture_is_the_body(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    of_pictures(tmp_path, "ViT", size={"height": 20, "width": 28})
    run, (first, *_) = qkv.load(tmp_path, device="cpu"), pictures(tmp_path)
    (wanted,) = run.predict([first])
    with TestClient(qkv.serve.app(run), "http://127.0.0.1") as client:
        answer = client.post("/v1/predict", content=first.read_bytes(), headers={"content-type": "image/png"})
        assert answer.status_code == 200 and answer.json()["text"] == wanted.text.replace(str(first), "file")
        assert answer.json()["probabilities"] == pytest.approx(wanted.fields["probabilities"])
        assert "qkv-serve-" not in answer.text and str(tmp_path) not in answer.text
        (about,) = client.get("/v1/models").json()["data"]
        assert about["endpoints"] == ["/v1/predict"]  # /v1/classify reads texts
        for kind, body, status, message in (
            ("image/pgn", b"x", 415, "did you mean 'image/png'"),
            ("image/png", b"", 400, "the body is empty"),
            ("image/png", b"no picture", 400, "the file"),
        ):
            answer = client.post("/v1/predict", content=body, headers={"content-type": kind})
            said = answer.json()["error"]["message"]
            assert answer.status_code == status and message in said and "qkv-serve-" not in said, said


def test_a_model_of_texts_takes_no_files(trained_lm: Path) -> None:
    with TestClient(qkv.serve.app(qkv.load(trained_lm, device="cpu")), "http://127.0.0.1") as client:
        answer = client.post("/v1/predict", content=b"x", headers={"content-type": "image/png"})
        assert answer.status_code == 404 and "does not serve" in answer.json()["error"]["message"]
