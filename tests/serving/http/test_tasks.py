"""Endpoints of encoders and translators: the numbers and texts of a run's methods."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient

from qkv.runs.inference.run import Run
from qkv.serving.engine import jobs


def test_translations_with_and_without_beams(client: TestClient, runs: dict[str, Run]) -> None:
    run, texts = runs["mt"], ["a b c", "f"]
    for beams in (1, 3):
        body = {"input": texts, "options": {"num_beams": beams}}
        data = client.post("/v1/translate", json=body).json()["data"]
        assert [one["text"] for one in data] == run.generate(texts, num_beams=beams)


def test_embeddings_ranks_scores_and_likelihoods(client: TestClient, runs: dict[str, Run]) -> None:
    run, texts = runs["lm"], ["the cat", "a dog is"]
    want = run.embed_array(texts)
    body: dict[str, Any] = {"model": run.title, "input": texts}
    data = client.post("/v1/embeddings", json=body).json()["data"]
    assert np.allclose([one["embedding"] for one in data], want)
    coded = client.post("/v1/embeddings", json=body | {"encoding_format": "base64"}).json()["data"]
    numbers = np.frombuffer(base64.b64decode(coded[1]["embedding"]), "<f4")
    assert np.array_equal(numbers, np.array(data[1]["embedding"], np.float32)) and np.allclose(numbers, want[1])
    short = client.post("/v1/embeddings", json=body | {"dimensions": 4}).json()["data"][0]["embedding"]
    assert len(short) == 4 and np.linalg.norm(short) == pytest.approx(1)
    wanted = run.similarity(["the cat"] * 2, ["a dog", "the cat"])
    body = {"model": run.title, "query": "the cat", "documents": ["a dog", {"text": "the cat"}], "top_n": 1}
    (best,) = client.post("/v1/rerank", json=body).json()["results"]
    assert best["index"] == int(np.argmax(wanted)) and best["relevance_score"] == pytest.approx(max(wanted))
    body = {"model": run.title, "text_1": "the cat", "text_2": ["a dog", "the cat"]}
    scores = client.post("/v1/score", json=body).json()["data"]
    assert [one["score"] for one in scores] == pytest.approx(wanted)
    (found,) = client.post("/v1/loglikelihood", json={"model": run.title, "input": "the cat"}).json()["data"]
    assert found["log_likelihood"] == pytest.approx(run.score("the cat").log_likelihood)
    body = {"model": run.title, "input": ["the", "a"], "targets": [" cat", " dog"]}
    data = client.post("/v1/loglikelihood", json=body).json()["data"]
    wanted = [one.log_likelihood for one in run.score(["the", "a"], [" cat", " dog"])]
    assert [one["log_likelihood"] for one in data] == pytest.approx(wanted)


@pytest.mark.parametrize("options", [{"num_beams": 2}, {"do_sample": True, "num_samples": 2, "seed": 3}])
def test_many_texts_are_translated_as_by_generate(
    options: dict[str, Any], client: TestClient, runs: dict[str, Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "MOST_CHARACTERS", 40)  # samples with a seed depend on all texts, so they are not split
    texts = [f"{'a b c d e'[: 1 + 2 * (i % 5)]}" for i in range(20)]  # more than are computed at a time
    data = client.post("/v1/translate", json={"input": texts, "options": options}).json()["data"]
    wanted = runs["mt"].outputs(texts, runs["mt"].settings(**options))
    assert [one["texts"] if "texts" in one else [one["text"]] for one in data] == [
        [output.text for output in outputs][: len(one.get("texts", [0]))]
        for one, outputs in zip(data, wanted, strict=True)
    ]


def test_an_error_of_a_piece_names_its_inputs(client: TestClient, runs: dict[str, Run]) -> None:
    body = {"model": runs["lm"].title, "input": ["the"] * 130 + [""]}
    answer = client.post("/v1/embeddings", json=body)
    assert answer.status_code == 400
    assert "in inputs 129 to 131, counted from the first: text 3 has no tokens" in answer.json()["error"]["message"]
    body["input"] = body["input"][-2:]
    assert client.post("/v1/embeddings", json=body).json()["error"]["message"].startswith("text 2 has no tokens")
