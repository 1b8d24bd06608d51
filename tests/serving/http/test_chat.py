"""Chat completions, whole and streamed."""

from __future__ import annotations

from server_events import events
from starlette.testclient import TestClient

from qkv.runs.inference.chat import chat
from qkv.runs.inference.run import Run


def test_a_chat_is_the_reply_of_the_run_whole_and_streamed(client: TestClient, runs: dict[str, Run]) -> None:
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
