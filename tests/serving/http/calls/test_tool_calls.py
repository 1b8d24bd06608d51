"""Calls of tools: forms of templates, grammars on a model's own output, OpenAI's shape whole and streamed."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

import qkv.serve
from qkv.runs.inference.run import load

PLACES = {"type": "object", "properties": {"place": {"enum": ["Oslo", "Rome"]}, "days": {"enum": [1, 2]}}}
PLACES |= {"required": ["place", "days"], "additionalProperties": False}
TOOLS = [
    {"type": "function", "function": {"name": "weather", "description": "of a place", "parameters": PLACES}},
    {"type": "function", "function": {"name": "now"}},
]
ASKED: dict[str, Any] = {
    "messages": [{"role": "user", "content": "Rome?"}],
    "tools": TOOLS,
    "temperature": 1.0,
    "max_tokens": 130,
}


@pytest.fixture(scope="module")
def client(paths: dict[str, Path]) -> Iterator[TestClient]:
    app = qkv.serve.app([load(path, device="cpu") for path in paths.values()], max_tokens_in_flight=4000)
    with TestClient(app, "http://127.0.0.1", raise_server_exceptions=False) as client:
        yield client


def ask(client: TestClient, **changes: Any) -> dict[str, Any]:
    answer = client.post("/v1/chat/completions", json=ASKED | changes)
    assert answer.status_code == 200, answer.text
    return dict(answer.json()["choices"][0])


def joined(client: TestClient, **changes: Any) -> dict[str, Any]:
    """The same, put together from a stream."""
    content, calls, finish = "", dict[int, dict[str, str]](), None
    for line in client.post("/v1/chat/completions", json=ASKED | changes | {"stream": True}).text.split("\n\n"):
        if not line.startswith("data: {"):
            continue
        (choice,) = json.loads(line[6:])["choices"]
        content += choice["delta"].get("content") or ""
        for call in choice["delta"].get("tool_calls", ()):
            known = calls.setdefault(call["index"], {"name": call["function"].get("name", ""), "arguments": ""})
            assert ("id" in call) == (known["arguments"] == "")
            known["arguments"] += call["function"]["arguments"]
        finish = choice["finish_reason"] or finish
    return {"content": content, "calls": [tuple(calls[i].values()) for i in sorted(calls)], "finish": finish}


def called(choice: dict[str, Any]) -> list[tuple[str, str]]:
    calls = choice["message"].get("tool_calls", [])
    return [(call["function"]["name"], call["function"]["arguments"]) for call in calls]


@pytest.mark.parametrize("name", ["hermes", "llama", "mistral"])
def test_a_required_call_fits_the_schema_and_streams_the_same(name: str, client: TestClient) -> None:
    found = set()
    for seed in range(5):
        asked = {"model": name, "tool_choice": "required", "parallel_tool_calls": False, "seed": seed}
        choice = ask(client, **asked)
        ((function, arguments),) = called(choice)
        given = json.loads(arguments)
        assert given == {} if function == "now" else given["place"] in ("Oslo", "Rome") and given["days"] in (1, 2)
        assert choice["finish_reason"] == "tool_calls" and choice["message"]["content"] is None
        assert re.fullmatch("call_[0-9a-f]{24}", choice["message"]["tool_calls"][0]["id"])
        assert joined(client, **asked) == {"content": "", "calls": called(choice), "finish": "tool_calls"}
        found.add(function)
    assert found == {"weather", "now"}


def test_one_function_is_called_if_it_is_named(client: TestClient) -> None:
    named = {"type": "function", "function": {"name": "weather"}}
    for seed in range(3):
        assert called(ask(client, model="hermes", tool_choice=named, seed=seed))[0][0] == "weather"


def test_several_calls_and_a_reply_that_is_cut_off(client: TestClient) -> None:
    replies = [ask(client, model="mistral", tool_choice="required", seed=seed) for seed in range(4)]
    assert any(len(called(each)) > 1 for each in replies)
    cut = ask(client, model="hermes", tool_choice="required", seed=0, max_tokens=40)
    assert cut["finish_reason"] == "length"


@pytest.mark.parametrize("name", ["hermes", "llama", "mistral"])
def test_a_free_reply_is_text_or_calls_and_streams_the_same(name: str, client: TestClient) -> None:
    for seed in range(3):
        choice = ask(client, model=name, seed=seed, max_tokens=20)
        streamed = joined(client, model=name, seed=seed, max_tokens=20)
        assert streamed["content"] == (choice["message"]["content"] or "")
        assert streamed["calls"] == called(choice) and streamed["finish"] == choice["finish_reason"]


def test_results_of_tools_come_back(client: TestClient) -> None:
    call = {"id": "call_1", "type": "function", "function": {"name": "now", "arguments": "{}"}}
    turns = [
        *ASKED["messages"],
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "noon"},
    ]
    for name in ("hermes", "llama", "mistral"):
        assert ask(client, model=name, messages=turns, max_tokens=4)["finish_reason"] in ("length", "stop")


def test_variables_of_the_template(client: TestClient) -> None:
    def tokens(**changes: Any) -> int:
        answer = client.post("/v1/chat/completions", json=ASKED | {"model": "hermes", "max_tokens": 1} | changes)
        return int(answer.json()["usage"]["prompt_tokens"])

    assert tokens(chat_template_kwargs={"shouts": True}) == tokens() + 1 == tokens(chat_template_kwargs={}) + 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": "none"}, "no place for tools"),
        ({"model": "unknown"}, "a form that is not known here"),
        ({"tools": None, "tool_choice": "required"}, "the request has no tools"),
        ({"tool_choice": {"type": "function", "function": {"name": "wether"}}}, "weather"),
        ({"tool_choice": {"type": "custom"}}, "tool_choice is"),
        ({"tool_choice": "maybe"}, "tool_choice"),
        ({"tools": [TOOLS[1], TOOLS[1]]}, "two tools are called now"),
        ({"tools": [{"type": "web_search"}]}, "tools.0 is"),
        ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "a name of 1 to 64"),
        ({"tools": [{"type": "function", "function": {"name": "a", "parameters": {"type": "array"}}}]}, "type object"),
        ({"tools": [{"type": "function", "function": {"name": "a", "parameters": 3}}]}, "JSON schema"),
        ({"response_format": {"type": "json_object"}}, "not served together"),
        ({"chat_template_kwargs": {"whispers": True}}, "no variable 'whispers'"),
        ({"chat_template_kwargs": {"messages": []}}, "is set here"),
    ],
)
def test_what_can_not_be_asked_of_tools_is_one_sentence(
    changes: dict[str, Any], message: str, client: TestClient
) -> None:
    answer = client.post("/v1/chat/completions", json=ASKED | {"model": "hermes"} | changes)
    error = answer.json()["error"]["message"]
    assert answer.status_code == 400 and message in error and "\n" not in error, error


def test_tools_without_a_choice_of_them_are_left_out(client: TestClient) -> None:
    choice = ask(client, model="hermes", tool_choice="none", max_tokens=3)
    assert "tool_calls" not in choice["message"]
