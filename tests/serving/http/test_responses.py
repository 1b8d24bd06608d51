"""The Responses endpoint, by OpenAI's client."""

from __future__ import annotations

import pytest
from starlette.testclient import TestClient

from qkv.runs.inference.chat import chat
from qkv.runs.inference.run import Run


def test_openais_client_gets_the_replies_of_the_chat(client: TestClient, runs: dict[str, Run]) -> None:
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
    for wrong, said in (
        ({"previous_response_id": "x"}, "previous_response_id"),
        ({"input": [{"type": "image"}]}, "image"),
        ({"tools": [{"type": "web_search"}]}, "tools are served by /v1/chat/completions"),
    ):
        with pytest.raises(openai.BadRequestError, match=said):
            asked.create(**{"model": run.title, "input": "a"} | wrong)
