"""Completions: texts, samples, streams and log-probabilities of `Run.generate` and `Run.score`."""

from __future__ import annotations

import numpy as np
import pytest
from server_events import events
from starlette.testclient import TestClient

from qkv.runs.inference.run import Run


def test_completions_are_what_generate_gives(client: TestClient, runs: dict[str, Run]) -> None:
    name, run = runs["lm"].title, runs["lm"]
    body = {"model": name, "prompt": ["the cat", "a dog"], "max_tokens": 6, "temperature": 0}
    answer = client.post("/v1/completions", json=body).json()
    assert [choice["text"] for choice in answer["choices"]] == run.generate(["the cat", "a dog"], max_new_tokens=6)
    assert answer["usage"]["completion_tokens"] == 12 and answer["choices"][1]["finish_reason"] == "length"
    body |= {"prompt": "the cat", "n": 2, "temperature": 1.0, "seed": 5}
    sampled = [choice["text"] for choice in client.post("/v1/completions", json=body).json()["choices"]]
    assert sampled == run.generate("the cat", max_new_tokens=6, num_samples=2, temperature=1.0, seed=5)
    streamed = events(client.post("/v1/completions", json={**body, "stream": True}).text)
    for index, text in enumerate(sampled):
        own = [c for e in streamed for c in e["choices"] if c["index"] == index]
        assert "".join(c["text"] for c in own) == text and own[-1]["finish_reason"] == "length"
    body |= {"temperature": 0, "n": 2}
    same = client.post("/v1/completions", json=body).json()["choices"]
    assert [c["index"] for c in same] == [0, 1] and same[0]["text"] == same[1]["text"]


def test_the_likeliest_of_several_samples_are_kept(client: TestClient, runs: dict[str, Run]) -> None:
    body = {"model": runs["lm"].title, "prompt": ["the cat", "a dog"], "max_tokens": 6, "temperature": 1.5, "seed": 2}
    drawn = client.post("/v1/completions", json={**body, "n": 5, "logprobs": 0}).json()["choices"]
    best: list[str] = []
    for start in (0, 5):
        means = {choice["text"]: np.mean(choice["logprobs"]["token_logprobs"]) for choice in drawn[start : start + 5]}
        best += sorted(means, key=lambda text: -means[text])[:2]
    answer = client.post("/v1/completions", json={**body, "n": 2, "best_of": 5}).json()
    assert [choice["text"] for choice in answer["choices"]] == best and answer["choices"][3]["index"] == 3
    assert answer["choices"][0]["logprobs"] is None and answer["usage"]["completion_tokens"] > 2 * 2 * 6


def test_log_probabilities_and_echo(client: TestClient, runs: dict[str, Run]) -> None:
    run = runs["lm"]
    body = {"model": run.title, "prompt": "the cat is", "max_tokens": 0, "echo": True, "logprobs": 1}
    (choice,) = client.post("/v1/completions", json=body).json()["choices"]
    assert choice["text"] == "the cat is" and choice["logprobs"]["token_logprobs"][0] is None
    assert choice["logprobs"]["token_logprobs"][1:] == pytest.approx(run.score("the cat is").log_probs, abs=1e-5)
    assert "".join(choice["logprobs"]["tokens"]) == "the cat is"
    body = {"model": run.title, "prompt": "the cat", "max_tokens": 3, "logprobs": 2, "temperature": 0}
    found = client.post("/v1/completions", json=body).json()["choices"][0]["logprobs"]
    for chosen, top in zip(found["token_logprobs"], found["top_logprobs"], strict=True):
        assert max(top.values()) == pytest.approx(chosen)
