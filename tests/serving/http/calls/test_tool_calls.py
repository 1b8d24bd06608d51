"""Calls of tools: forms of templates, grammars on a model's own output, OpenAI's shape whole and streamed."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

import qkv.serve
from qkv.data.tokenizers.tokenizer import Tokenizer
from qkv.runs.inference.run import load
from qkv.serving.http.calls.forms import CallForm, ToolCall, functions
from qkv.serving.http.calls.streams import CallStream, JsonEnd

CALLS = {
    "hermes": """{% if message.content %}{{ message.content }}{% endif %}{% for call in message.tool_calls or [] %}
<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>{% endfor %}""",
    "llama": """{% if message.tool_calls %}
{%- if message.tool_calls | length > 1 %}{{ raise_exception("one call") }}{% endif %}
{%- set call = message.tool_calls[0].function %}{"name": "{{ call.name }}", "parameters": {{ call.arguments | tojson }}}
{%- else %}{{ message.content }}{% endif %}""",
    "mistral": """{% if message.tool_calls %}[TOOL_CALLS][{% for call in message.tool_calls %}
{%- set own = call.function %}{"name": "{{ own.name }}", "arguments": {{ own.arguments | tojson }}, "id": "{{ call.id }}"}
{%- if not loop.last %}, {% endif %}{% endfor %}]{% else %} {{ message.content }}{% endif %}""",
    "none": "{{ message.content }}",
    "unknown": "{{ message.content }}{% for c in message.tool_calls %}<call>{{ c.function }}{% endfor %}{# tools #}",
}
LISTED = "{% if tools %}{% for tool in tools %}{{ tool.function.name }} {% endfor %}{% endif %}"
AROUND = """{% for message in messages %}{{ message.role }}: CALLS{{ eos_token }}
{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}{% if shouts %}!{% endif %}"""
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
def paths(tmp_path_factory: pytest.TempPathFactory, trained_lm: Path) -> dict[str, Path]:
    """The same language model with templates that write calls in several forms."""
    folder, made = tmp_path_factory.mktemp("templates"), {}
    for name, call in CALLS.items():
        made[name] = folder / name
        shutil.copytree(trained_lm, made[name])
        template = ("" if name == "none" else LISTED) + AROUND.replace("CALLS", call)
        (made[name] / "chat_template.jinja").write_text(template, encoding="utf-8")
    return made


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


def test_forms_are_read_from_templates(paths: dict[str, Path]) -> None:
    forms = {name: CallForm.of(Tokenizer.load(paths[name])) for name in ("hermes", "llama", "mistral")}
    assert {name: form.trigger for name, form in forms.items()} == {
        "hermes": "<tool_call>",
        "llama": "",
        "mistral": "[TOOL_CALLS][",
    }
    assert forms["mistral"].between == ", " and forms["mistral"].closing == "]" and forms["llama"].between is None
    text = 'Wait.\n<tool_call>\n{"name": "f", "arguments": {"a": {"b": "}"}}}\n</tool_call>\n'
    text += '<tool_call>\n{"name": "g", "arguments": {"c'
    calls = [ToolCall("f", '{"a": {"b": "}"}}'), ToolCall("g", '{"c')]
    assert forms["hermes"].read(text) == ("Wait.", calls)
    assert forms["llama"].read('{"name": "f", "parameters": {}}') == ("", [ToolCall("f", "{}")])
    assert forms["llama"].read('{"names": 1}')[1] == []
    assert functions([{"function": {"name": "f"}}])[0].parameters["additionalProperties"] is False


REPLIES = {
    "hermes": [
        'Wait.\n<tool_call>\n{"name": "f", "arguments": {"a": {"b": "}\\"é"}}}\n</tool_call>\n'
        '<tool_call>\n{"name": "g", "arguments": {"c": [1, {"d": "\\\\"}]}}\n</tool_call>',
        "a < b, and a <tool is no call  \n",
        'I ask. <tool_call>{"name": "f", "arguments": {"a": "cut of',
    ],
    "llama": ['{"name": "f", "parameters": {"a": 1}}', '{"names": 1}', " plain text ", '{"name": "f", "parame'],
    "mistral": ['[TOOL_CALLS][{"name": "f", "arguments": {}}, {"name": "g", "arguments": {"x": "[]"}}]', "[TOOL"],
}


@pytest.mark.parametrize("name", list(REPLIES))
@pytest.mark.parametrize("stop", [(), ("cut", "}}]")])
def test_a_stream_tells_what_the_whole_reply_says(name: str, stop: tuple[str, ...], paths: dict[str, Path]) -> None:
    words = Tokenizer.load(paths[name])
    form = CallForm.of(words)
    for text in REPLIES[name]:
        ids = words.encode(text)
        said, calls = form.read(form.spelled(words, ids, stop))
        for size in (1, 3, 1000):
            stream, content, told = CallStream(form, words, stop), "", list[list[str]]()
            pieces = [(ids[i : i + size], False) for i in range(0, len(ids), size)]
            for piece, is_end in [*pieces, (ids, True)]:
                before = content
                delta = stream.delta(piece, is_end)
                content += delta.get("content", "")
                for change in delta.get("tool_calls", []):
                    if change["index"] == len(told):
                        told.append([change["function"]["name"], ""])
                    told[change["index"]][1] += change["function"]["arguments"]
            assert said.startswith(before) and content == said, (text, size)
            assert [ToolCall(*one) for one in told] == calls and stream.calls == len(calls), (text, size)


def test_a_streamed_call_costs_time_in_proportion_to_its_length(
    paths: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    words, decoded = Tokenizer.load(paths["hermes"]), [0]
    form, decode = CallForm.of(words), Tokenizer.decode
    counted = lambda self, ids, *rest: decoded.__setitem__(0, decoded[0] + len(ids)) or decode(self, ids, *rest)  # noqa: E731
    monkeypatch.setattr(Tokenizer, "decode", counted)
    text = '<tool_call>\n{"name": "f", "arguments": {"a": "' + "the cat " * 500
    ids, stream = words.encode(text), CallStream(form, words, ())
    told = [stream.delta([token], False) for token in ids]
    assert "".join(c["function"]["arguments"] for d in told for c in d.get("tool_calls", [])).endswith("the cat ")
    assert decoded[0] < 8 * len(ids)
    assert all(len(held) < 3000 for held in (stream._pending, stream._spelling._held))


def test_the_end_of_a_value_is_found_in_pieces() -> None:
    for text, length in (('{"a": "}\\"\\\\"}, x', 14), ('"a, b" ', 6), ("[[], {}]]", 8), ("12, ", 2), ('{"a', 3)):
        for cut in range(1, len(text)):
            end = JsonEnd()
            first, is_whole = end.of(text[:cut])
            second = 0 if is_whole else end.of(text[cut:])[0]
            assert first + second == length, (text, cut)
