"""The ASGI application in this process: every endpoint answers, and what can't be answered is one sentence."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import run_tiny
from starlette.testclient import TestClient

import qkv
import qkv.serve
from qkv.runs.inference.chat import chat
from qkv.runs.inference.run import Run, load
from qkv.serving.http.served import ENDPOINTS


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, trained: Path, trained_lm: Path) -> dict[str, Run]:
    assistant = run_tiny.assistant(tmp_path_factory.mktemp("served"))
    paths = {"lm": trained_lm, "mt": trained, "chat": assistant, "en": "small-english"}
    return {name: load(path, device="cpu") for name, path in paths.items()}


@pytest.fixture(scope="module")
def client(runs: dict[str, Run]) -> Iterator[TestClient]:
    app = qkv.serve.app(list(runs.values()), max_tokens_in_flight=2000)
    with TestClient(app, "http://127.0.0.1", raise_server_exceptions=False) as client:
        yield client


def names(runs: dict[str, Run]) -> dict[str, str]:
    return {key: run.title for key, run in runs.items()}


def events(text: str) -> list[Any]:
    lines = [line.removeprefix("data: ") for line in text.split("\n\n") if line]
    assert lines.pop() == "[DONE]"
    return [json.loads(line) for line in lines]


def test_models_name_what_they_do(client: TestClient, runs: dict[str, Run]) -> None:
    found = {one["id"]: one["endpoints"] for one in client.get("/v1/models").json()["data"]}
    assert list(found) == [run.title for run in runs.values()]
    assert "/v1/completions" in found[runs["lm"].title] and "/v1/translate" in found[runs["mt"].title]
    assert "/v1/chat/completions" in found[runs["chat"].title] and "/v1/completions" not in found[runs["mt"].title]
    assert client.get(f"/v1/models/{runs['lm'].title}").json()["max_model_len"] == runs["lm"].model.max_positions
    assert client.get("/v1/models/other").status_code == 404


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


def test_chats(client: TestClient, runs: dict[str, Run]) -> None:
    run = runs["chat"]
    messages = [{"role": "user", "content": "1 + 1?"}]
    body = {"model": run.title, "messages": messages, "logprobs": True, "top_logprobs": 2}
    answer = client.post("/v1/chat/completions", json=body).json()
    said = answer["choices"][0]["message"]["content"]
    assert said == chat(run, messages)
    first = answer["choices"][0]["logprobs"]["content"][0]
    assert len(first["top_logprobs"]) == 2 and first["logprob"] <= 0
    streamed = events(client.post("/v1/chat/completions", json={**body, "stream": True}).text)
    assert streamed[0]["choices"][0]["delta"]["role"] == "assistant"
    assert "".join(e["choices"][0]["delta"].get("content", "") for e in streamed) == said
    body = {"model": run.title, "messages": messages, "stream": True, "stream_options": {"include_usage": True}}
    assert events(client.post("/v1/chat/completions", json=body).text)[-1]["usage"]["prompt_tokens"] > 0


def test_responses_by_openais_client(client: TestClient, runs: dict[str, Run]) -> None:
    openai = pytest.importorskip("openai")
    run = runs["chat"]
    asked = openai.OpenAI(base_url="http://127.0.0.1/v1", api_key="none", http_client=client, max_retries=0).responses
    found = asked.create(model=run.title, input="1 + 1?")
    assert found.output_text == chat(run, [{"role": "user", "content": "1 + 1?"}])
    assert found.usage.output_tokens > 0 and found.status in ("completed", "incomplete")
    turns = [{"role": "user", "content": "1 + 1?"}, found.output[0].model_dump(), {"role": "user", "content": "2 + 1?"}]
    again = asked.create(model=run.title, input=turns, instructions="Add.")
    messages = [{"role": "system", "content": "Add."}, turns[0], {"role": "assistant", "content": found.output_text}]
    assert again.output_text == chat(run, [*messages, turns[2]])
    events = list(asked.create(model=run.title, input="1 + 1?", stream=True))
    assert "".join(e.delta for e in events if e.type == "response.output_text.delta") == found.output_text
    assert events[0].type == "response.created" and events[-1].response.output_text == found.output_text
    assert [event.sequence_number for event in events] == list(range(len(events)))
    for wrong in ({"previous_response_id": "x"}, {"input": [{"type": "image"}]}, {"tools": [{"type": "web_search"}]}):
        with pytest.raises(openai.BadRequestError):
            asked.create(**{"model": run.title, "input": "a"} | wrong)


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


def test_outputs_in_a_given_form(client: TestClient, runs: dict[str, Run]) -> None:
    schema = {
        "type": "object",
        "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 99}},
        "required": ["n"],
        "additionalProperties": False,
    }
    form = {"type": "json_schema", "json_schema": {"name": "number", "schema": schema}}
    body = {"model": runs["en"].title, "prompt": "He said", "max_tokens": 60, "seed": 1, "response_format": form}
    (choice,) = client.post("/v1/completions", json=body).json()["choices"]
    assert isinstance(json.loads(choice["text"])["n"], int) and choice["finish_reason"] == "stop"
    itself = {"type": "json_schema", "json_schema": {"name": "itself", "schema": {"$ref": "#"}}}
    for wrong in ({"type": "xml"}, {"type": "json_schema"}, {"type": "regex", "regex": "("}, itself):
        answer = client.post("/v1/completions", json=body | {"response_format": wrong})
        assert answer.status_code == 400 and "\n" not in answer.json()["error"]["message"]


def test_the_page_needs_nothing_from_elsewhere(client: TestClient) -> None:
    page = client.get("/")
    assert page.status_code == 200 and "default-src 'self'" in page.headers["content-security-policy"]
    assert page.headers["content-type"].startswith("text/html")
    for name in ("/page.css", "/page.js"):
        assert f'="{name}"' in page.text
        own = client.get(name).text
        assert own and not [url for url in re.findall(r"https?://[^\s\"'`)]+", own) if "www.w3.org/2000/svg" not in url]
    endpoints = set(re.findall(r'^  "(/v1/[a-z/]+)": \{', client.get("/page.js").text, re.MULTILINE))
    assert endpoints == {each for paths in ENDPOINTS.values() for each in paths} - {"/v1/score", "/v1/responses"} | {
        "/v1/tag"
    }


def test_health_readiness_and_metrics(client: TestClient) -> None:
    assert client.get("/health").json() == {"status": "ok", "crashes": 0} and client.get("/ready").status_code == 200
    text = client.get("/metrics").text
    from prometheus_client.parser import text_string_to_metric_families

    families = {family.name: family for family in text_string_to_metric_families(text)}
    assert families["qkv_generated_tokens"].samples[0].value > 0
    assert families["qkv_first_token_seconds"].type == "histogram"


LM = {"prompt": "the cat", "max_tokens": 2}
REFUSED: list[tuple[str, Any, int, str]] = [
    ("completions", b"{", 400, "is not JSON"),
    ("completions", b"\xff\xfe", 400, "not UTF-8"),
    ("completions", b"[" * 100_000, 400, "nested too deeply"),
    ("completions", b'{"temperature": NaN}', 400, "NaN is no JSON number"),
    ("completions", [], 400, "has to be a JSON object"),
    ("completions", {**LM, "prompt": 3}, 400, "prompt"),
    ("completions", {**LM, "prompt": []}, 400, "prompt"),
    ("completions", {**LM, "prompt": [[10**9]]}, 400, "the vocabulary is"),
    ("completions", {**LM, "promt": "a"}, 400, "did you mean 'prompt'"),
    ("completions", {**LM, "model": "gpt-4"}, 404, "there is no model 'gpt-4'"),
    ("completions", {**LM, "max_tokens": 20, "n": 120, "temperature": 1}, 400, "room for 2,000"),
    ("completions", {**LM, "prompt": "the cat " * 4000}, 400, "the model's context of"),
    ("completions", {**LM, "stop": ["x"] * 10_000}, 400, "at most 16 stop strings"),
    ("completions", {**LM, "stop": ""}, 400, "stop string"),
    ("completions", {**LM, "suffix": "end"}, 400, "suffix is not served"),
    ("completions", {**LM, "best_of": 7}, 400, "best_of is not served"),
    ("completions", {**LM, "temperature": -1}, 400, "temperature"),
    ("completions", {**LM, "logit_bias": {"999999": 1}}, 400, "logit_bias names the token 999999"),
    ("completions", {**LM, "prompt": "\ud800"}, 400, "half a character"),
    ("chat/completions", {"messages": [{"role": "user"}]}, 400, "message 0"),
    ("chat/completions", {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, 400, "only text"),
    ("chat/completions", {"messages": []}, 400, "messages"),
    ("embeddings", {"input": []}, 400, "input"),
    ("embeddings", {"input": [""] * 999}, 400, "at most 256"),
    ("embeddings", {"input": "a", "dimensions": 10**6}, 400, "dimensions"),
    ("translate", {"input": "a", "options": {"beams": 3}}, 400, "num_beams"),
    ("translate", {"input": "a", "options": {"self": 3}}, 400, "self"),
    ("translate", {"input": "a", "options": {"num_beams": 4, "max_new_tokens": 10**9}}, 400, "room for 2,000"),
    ("translate", {"input": ["a"] * 50, "options": {"num_samples": 99, "do_sample": True}}, 400, "fewer texts"),
    ("translate", {"input": "a", "\ud800": 3}, 400, r"there is no field '\ud800'"),
    ("translate", {"input": "a", "model": "\ud800"}, 404, r"there is no model '\ud800'"),
    ("responses", {"input": []}, 400, "input: list should have at least 1 item"),
    ("responses", {"input": "a", "text": {"format": 3}}, 400, "text.format: input should be"),
    ("classify", {"input": "a"}, 404, "does not serve"),
    ("predict", {"input": "/etc/passwd"}, 404, "does not serve"),
]


@pytest.mark.parametrize(("path", "body", "status", "message"), REFUSED)
def test_what_can_not_be_answered_is_one_sentence(
    path: str, body: Any, status: int, message: str, client: TestClient, runs: dict[str, Run]
) -> None:
    kinds = {"chat/completions": "chat", "responses": "chat", "translate": "mt"}
    if isinstance(body, dict):
        body = {"model": runs[kinds.get(path, "lm")].title, **body}
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    answer = client.post(f"/v1/{path}", content=content)
    error = answer.json()["error"]
    assert answer.status_code == status and message in error["message"], error
    assert "\n" not in error["message"] and "Traceback" not in answer.text and len(error["message"]) < 600


def test_what_the_model_refuses_at_its_beginning_is_the_clients_error(
    client: TestClient, runs: dict[str, Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise ValueError(f"{runs['lm'].name} reads 3 tokens at most")

    monkeypatch.setattr(type(runs["lm"].model), "start", refuse)
    message = "lm reads 3 tokens at most"
    answer = client.post("/v1/completions", json={"model": "lm", **LM})
    assert answer.status_code == 400 and answer.json()["error"]["message"] == message
    (said,) = events(client.post("/v1/completions", json={"model": "lm", **LM, "stream": True}).text)
    assert said["error"] == answer.json()["error"]


def test_a_request_without_a_model_takes_the_only_one_that_can(client: TestClient) -> None:
    assert client.post("/v1/translate", json={"input": "a"}).status_code == 200
    answer = client.post("/v1/completions", json=LM)
    assert answer.status_code == 400 and "name the model" in answer.json()["error"]["message"]
    assert client.get("/nowhere").status_code == 404 and client.put("/health").status_code == 405


@pytest.mark.parametrize(
    ("header", "value"),
    [
        ("host", "evil.example"),
        ("host", "127.0.0.1.evil.example"),
        ("origin", "https://evil.example"),
        ("origin", "null"),
        ("sec-fetch-site", "cross-site"),
    ],
)
def test_pages_of_other_sites_are_refused(header: str, value: str, client: TestClient) -> None:
    answer = client.post("/v1/translate", json={"input": "a"}, headers={header: value})
    assert answer.status_code == 403 and answer.json()["error"]["message"]
    own = {"origin": "http://127.0.0.1", "sec-fetch-site": "same-origin"}
    assert client.post("/v1/translate", json={"input": "a"}, headers=own).status_code == 200


def test_keys_rates_and_large_bodies(runs: dict[str, Run]) -> None:
    key = "0123456789abcdef-key"
    app = qkv.serve.app(runs["mt"], keys=[key], requests_per_minute=3)
    with TestClient(app, "http://localhost") as client:
        for wrong in ({}, {"authorization": "Bearer no"}, {"authorization": key}):
            answer = client.get("/v1/models", headers=wrong)
            assert answer.status_code == 401 and answer.headers["www-authenticate"] == "Bearer"
        right = {"authorization": f"Bearer {key}"}
        assert client.get("/health").status_code == 200
        answer = client.post("/v1/translate", content=b" " * (9 << 20), headers=right)
        assert answer.status_code == 413 and "bytes" in answer.json()["error"]["message"]
        statuses = [client.get("/v1/models", headers=right).status_code for _ in range(4)]
        assert statuses == [200, 200, 429, 429]


def test_two_runs_of_one_name_are_refused(runs: dict[str, Run]) -> None:
    with pytest.raises(ValueError, match="two runs are called"):
        qkv.serve.app([runs["mt"], runs["mt"]])
