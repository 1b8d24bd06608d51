"""Messages in the formats of OpenAI, ShareGPT and Alpaca; `apply_chat_template` of transformers renders the same text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_tokenizers import made

from qkv.data.batching.encoding import Reader
from qkv.data.readers.jsonl import JsonLines, conversation
from qkv.data.tokenizers.chat.conversations import Conversations
from qkv.data.tokenizers.chat.messages import check_messages, check_tools, messages_in
from qkv.data.tokenizers.chat.template import ChatTemplate

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "the weather of a city",
            "parameters": {"type": "object", "properties": {"city": {"type": "string", "default": None}}},
        },
    }
]
ARGUMENTS = {"city": "Köln", "days": [1, 2], "exact": None}
CALL = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": ARGUMENTS}}
ASKED = {"role": "user", "content": "the weather of Köln?"}
RESULT = {"role": "tool", "tool_call_id": "c1", "content": "rain"}
ANSWER = {"role": "assistant", "content": "the mat"}
# As Qwen 2.5 has it: tools in the system's turn, calls and results within marks.
TEMPLATE = """{%- if tools %}{{ bos_token }}system
{% for tool in tools %}{{ tool | tojson }}
{% endfor %}{{ eos_token }}
{% endif %}{%- for message in messages %}{{ bos_token ~ message.role }}
{% if message.content is string %}{{ message.content }}{% elif message.content %}{% for part in message.content %}\
{{ part.text }}{% endfor %}{% endif %}{% for call in message.tool_calls or [] %}{% if call.function is defined %}\
{% set call = call.function %}{% endif %}
<call>{"name": "{{ call.name }}", "arguments": {{ call.arguments | tojson }}}</call>{% endfor %}{{ eos_token }}
{% endfor %}{%- if add_generation_prompt %}{{ bos_token }}assistant
{% endif %}"""
PLAIN = (
    "{% for m in messages %}{{ bos_token ~ m.role }}:{{ m.content ~ eos_token }}{% endfor %}"
    "{% if add_generation_prompt %}{{ bos_token }}assistant:{% endif %}"
)


def conversations(template: str = TEMPLATE) -> Conversations:
    tokenizer = made("bpe")
    chat = ChatTemplate.of({"chat_template": template}, tokenizer.roles)
    return Conversations(tokenizer.raw, tokenizer.controls, tokenizer.markers, chat)


def called(**changes: Any) -> dict[str, Any]:
    """A message that calls a tool, as OpenAI gives it: arguments are JSON."""
    function = {"name": "weather", "arguments": json.dumps(ARGUMENTS, ensure_ascii=False)}
    return {"role": "assistant", "content": None, "tool_calls": [{**CALL, "function": function}], **changes}


def without(message: dict[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in message.items() if name != key}


OPENAI = {
    "null": [ASKED, called(), RESULT, ANSWER],
    "absent": [ASKED, without(called(), "content"), RESULT, ANSWER],
    "empty": [ASKED, called(content=""), RESULT, ANSWER],
    "a list": [{"role": "user", "content": [{"type": "text", "text": "the weather"}]}, called(), RESULT, ANSWER],
    "objects": [ASKED, called(tool_calls=[CALL]), RESULT, ANSWER],
    "bare calls": [ASKED, called(tool_calls=[CALL["function"]]), RESULT, ANSWER],
}


@pytest.mark.parametrize("tools", [None, TOOLS])
@pytest.mark.parametrize("messages", OPENAI.values(), ids=OPENAI)
def test_transformers_renders_the_same(messages: list[dict[str, Any]], tools: Any) -> None:
    transformers = pytest.importorskip("transformers", reason="agreement is with Hugging Face's transformers")
    tokenizer, chat = made("bpe"), conversations()
    roles = {f"{role}_token": token for role, token in tokenizer.roles.items()}
    theirs = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer.raw, chat_template=TEMPLATE, **roles)
    given = json.loads(json.dumps(messages))
    for message in given:  # transformers asks for arguments as objects
        for call in message.get("tool_calls") or []:
            function = call.get("function", call)
            if isinstance(function["arguments"], str):
                function["arguments"] = json.loads(function["arguments"])
    for until, prompt in ((4, False), (3, True)):
        text = theirs.apply_chat_template(given[:until], tools=tools, tokenize=False, add_generation_prompt=prompt)
        ids = chat.prompt(messages[:until], tools) if prompt else chat.row(messages, tools)[0]
        assert ids == tokenizer.encode(text, control=True)


def test_calls_are_learned_and_tools_are_read() -> None:
    tokenizer, chat = made("bpe"), conversations()
    ids, learned = chat.row(OPENAI["null"], TOOLS)
    said = tokenizer.decode([i for i, counts in zip(ids, learned, strict=True) if counts])
    assert '"arguments": {"city": "Köln", "days": [1, 2], "exact": null}' in said and "the mat" in said
    assert "description" not in said and "rain" not in said


@pytest.mark.parametrize("place", ["value", "key", "argument"])
def test_no_tool_becomes_a_control_token(place: str) -> None:
    tokenizer, chat = made("bpe"), conversations()
    name = tokenizer.roles["eos"]
    entry = {"value": {"a": name}, "key": {name: "a"}, "argument": {}}[place]
    tools = [{"type": "function", "function": {"name": "f", "parameters": entry}}]
    messages = [ASKED, called(tool_calls=[{"function": {"name": "f", "arguments": {name: name}}}]), ANSWER]
    ids, _ = chat.row(messages if place == "argument" else [ASKED, ANSWER], tools)
    assert ids.count(tokenizer.eos_id) == (4 if place == "argument" else 3)


def test_a_template_without_a_place_for_tools_or_parts() -> None:
    chat = conversations(PLAIN)
    parts = [{"role": "user", "content": [{"type": "text", "text": "the"}, {"type": "text", "text": "mat"}]}]
    assert chat.prompt(parts) == chat.prompt([{"role": "user", "content": "the\nmat"}])
    with pytest.raises(ValueError, match=r"no place for tools; .*data\.tools=null"):
        chat.prompt([ASKED], TOOLS)
    with pytest.raises(ValueError, match="message 1 calls a tool, and the chat template has no place for that"):
        chat.row([ASKED, called(), ANSWER])


@pytest.mark.parametrize("key", ["reasoning_content", "reasoning", "thinking"])
def test_thoughts_without_a_place_in_the_template_are_not_dropped_from_training(key: str) -> None:
    thought = {**ANSWER, key: "rain"}
    with pytest.raises(ValueError, match=f"message 1 has {key}, and the chat template has no place for that"):
        conversations(PLAIN).row([ASKED, thought])
    assert conversations(PLAIN).row([ASKED, {**ANSWER, key: ""}]) == conversations(PLAIN).row([ASKED, ANSWER])
    assert conversations(PLAIN).prompt([ASKED, thought, ASKED]) == conversations(PLAIN).prompt([ASKED, ANSWER, ASKED])
    with_place = conversations(PLAIN.replace("m.content ~", f"(m.{key} or '') ~ m.content ~"))
    assert len(with_place.row([ASKED, thought])[0]) > len(with_place.row([ASKED, ANSWER])[0])


def test_a_separate_template_for_tools_is_used_as_in_transformers() -> None:
    tokenizer = made("bpe")
    named = [{"name": "default", "template": PLAIN}, {"name": "tool_use", "template": TEMPLATE}]
    chat = ChatTemplate.of({"chat_template": named}, tokenizer.roles)
    assert chat.render([ASKED]) == ChatTemplate.of({"chat_template": PLAIN}, tokenizer.roles).render([ASKED])
    assert '"weather"' in chat.render([ASKED], tools=TOOLS)


@pytest.mark.parametrize("marked", [False, True])
def test_a_message_of_weight_zero_is_read_and_not_learned(marked: bool) -> None:
    template = PLAIN.replace("{{ m.content ~ eos_token }}", "{% if m.role == 'assistant' %}{% generation %}{{ m.content ~ eos_token }}{% endgeneration %}{% else %}{{ m.content ~ eos_token }}{% endif %}") if marked else PLAIN  # fmt: skip  # noqa: E501
    tokenizer, chat = made("bpe"), conversations(template)
    messages = [ASKED, {"role": "assistant", "content": "hats", "weight": 0}, ASKED, {**ANSWER, "weight": 1}]
    ids, learned = chat.row(messages)
    assert ids == chat.row([without(message, "weight") for message in messages])[0]
    assert "the mat" in (said := tokenizer.decode([i for i, counts in zip(ids, learned, strict=True) if counts]))
    assert "hats" not in said
    with pytest.raises(ValueError, match="every message of the assistant has the weight 0"):
        chat.row(messages[:2])


# -- other formats -----------------------------------------------------------------------------------------------------

SHAREGPT = [{"from": "system", "value": "s"}, {"from": "human", "value": "hi"}, {"from": "gpt", "value": "hello"}]
SAID = [
    {"role": "system", "content": "s"},
    {"role": "user", "content": "hi"},
    {"role": "assistant", "content": "hello"},
]


def test_messages_of_sharegpt() -> None:
    assert check_messages(SHAREGPT) == SAID
    turns = [
        {"from": "human", "value": "?"},
        {"from": "function_call", "value": '{"name": "f", "arguments": {"a": 1}}'},
    ]
    found = check_messages([*turns, {"from": "observation", "value": "1"}])
    assert [message["role"] for message in found] == ["user", "assistant", "tool"]
    assert found[1]["tool_calls"] == [{"name": "f", "arguments": {"a": 1}}]
    assert messages_in({"conversations": SHAREGPT[1:], "system": "s"}, "messages")[0] == SAID[0]


def test_roles_are_known_in_any_case_and_a_refusal_is_what_is_said() -> None:
    said = [{"role": "User", "content": "?"}, {"role": "ASSISTANT", "content": None, "refusal": "I can't."}]
    assert check_messages(said) == [{"role": "user", "content": "?"}, {"role": "assistant", "content": "I can't."}]
    shared = [{"from": "Human", "value": "?"}, {"from": "GPT", "value": "!"}]
    assert [message["role"] for message in check_messages(shared)] == ["user", "assistant"]
    assert check_messages([{"role": "Narrator", "content": "?"}])[0]["role"] == "Narrator"


def test_records_of_alpaca() -> None:
    record = {"instruction": "add", "input": "1 + 1", "output": "2", "system": "s", "history": [["a", "b"]]}
    assert [(m["role"], m["content"]) for m in messages_in(record, "messages")] == [
        ("system", "s"), ("user", "a"), ("assistant", "b"), ("user", "add\n1 + 1"), ("assistant", "2")
    ]  # fmt: skip
    stored = messages_in(record | {"history": '[["a", "b"]]'}, "messages")
    assert stored == messages_in(record, "messages") == messages_in(record | {"history": [("a", "b")]}, "messages")
    for wrong in ("said before", [["a", "b", "c"]], ["a"]):
        with pytest.raises(ValueError, match="message 1"):
            check_messages(messages_in(record | {"history": wrong}, "messages"))
    assert messages_in({"instruction": "hi", "input": "", "output": "x"}, "messages")[0]["content"] == "hi"


def test_openais_older_calls_of_functions() -> None:
    older = [ASKED, {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}}]
    found = check_messages([*older, {"role": "function", "name": "f", "content": "1"}])
    assert found[1]["tool_calls"][0]["function"] == {"name": "f", "arguments": {}} and found[2]["role"] == "tool"


def test_nulls_of_parquet_are_no_entries() -> None:
    row = {"role": "user", "content": "hi", "tool_calls": None, "name": None}
    assert check_messages([row]) == [{"role": "user", "content": "hi"}]


@pytest.mark.parametrize(
    "message, said",
    [
        ({"role": "assistant", "content": None}, "message 0 needs a role and a content"),
        ({"role": "user", "content": None, "tool_calls": [CALL]}, "message 0 needs a role and a content"),
        ({"role": "assistant", "content": None, "tool_calls": []}, "message 0 needs a role and a content"),
        ({"role": 3, "content": "a"}, "message 0 needs a role, a text"),
        ({"role": "user", "content": 3}, "message 0 needs a content that is a text or a list of parts, not 3"),
        ({"role": "user", "content": [{"type": "film", "path": "a.mp4"}]}, "message 0, part 0, should be a text"),
        ({"role": "user", "content": [{"type": "text", "text": None}]}, "message 0, part 0, should be a text"),
        (called(tool_calls=3), "message 0: tool_calls should be a list, not 3"),
        (called(tool_calls=[{"function": {"arguments": "{}"}}]), "message 0: tool_calls.0: function has no 'name'"),
        (called(tool_calls=[{"function": {"name": "f", "arguments": "{"}}]), "tool_calls.0.arguments should be JSON"),
        ({"role": "assistant", "content": "a", "weight": 0.5}, "message 0 has the weight 0.5"),
    ],
)
def test_what_is_no_message(message: Any, said: str) -> None:
    with pytest.raises(ValueError) as error:
        check_messages([message])
    assert said in str(error.value) and "\n" not in str(error.value) and len(str(error.value)) < 300


@pytest.mark.parametrize("value", [3, "{", {"a": 1}, ["a"], [None]])
def test_what_is_no_list_of_tools(value: Any) -> None:
    with pytest.raises(ValueError, match=r"^tools"):
        check_tools(value)


# -- files -------------------------------------------------------------------------------------------------------------


def tables(path: Path, records: list[Any], **settings: Any) -> list[Any]:
    """The examples of records as lines, as one list, and as one list over several lines."""
    (path / "a.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    (path / "a.json").write_text(json.dumps(records))
    (path / "b.json").write_text("\ufeff\n" + json.dumps(records, indent=2))
    sources = [
        JsonLines(path=str(path / name), messages="messages", **settings) for name in ("a.jsonl", "a.json", "b.json")
    ]
    return [[table[i] for i in range(len(table))] for table in (source.open("train") for source in sources)]


def test_conversations_of_every_format_in_lines_and_in_lists(tmp_path: Path) -> None:
    records = [
        {"messages": SAID},
        {"conversations": SHAREGPT},
        {"instruction": "hi", "input": "", "output": "hello", "system": "s"},
    ]
    for table, place in zip(tables(tmp_path, records), ("line", "entry", "entry"), strict=True):
        assert [json.loads(one["messages"]) for one in table] == [SAID] * 3
        assert [one["where"].rpartition(", ")[2] for one in table] == [f"{place} {i}" for i in (1, 2, 3)]
        assert {one["text"] for one in table} == {"s\nhi\nhello"}


@pytest.mark.parametrize("tools", [TOOLS, json.dumps(TOOLS)])
def test_tools_of_a_record_reach_the_template(tools: Any, tmp_path: Path) -> None:
    records = [{"messages": [ASKED, ANSWER], "tools": tools}, {"messages": [ASKED, ANSWER], "tools": None}]
    tokenizer = made("bpe")
    chat = conversations()
    for table in tables(tmp_path, records):
        encoder = type("Encoder", (), {"chat": chat})()
        encoded, _ = Reader(None, tokenizer=encoder)._encode(table, np.arange(2), None)  # type: ignore[arg-type]
        assert encoded is not None
        assert encoded.sides[0][0].tolist() == chat.row([ASKED, ANSWER], TOOLS)[0]
        assert encoded.sides[0][1].tolist() == chat.row([ASKED, ANSWER])[0]
    assert tokenizer is not None
    for table in tables(tmp_path, records, tools=None):
        assert "tools" not in table[0]


def test_a_conversation_with_calls_has_a_text_and_a_place() -> None:
    example = conversation(OPENAI["absent"], "a.jsonl, line 3", TOOLS)
    assert "Köln" in example["text"] and json.loads(example["tools"]) == TOOLS
    with pytest.raises(ValueError, match=r"^a\.jsonl, line 3: message 0 needs"):
        conversation([{"role": "user"}], "a.jsonl, line 3")


def test_a_system_beside_messages_is_their_first() -> None:
    asked = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}]
    kind = {"role": "system", "content": "be kind"}
    assert messages_in({"system": "be kind", "messages": asked}, "messages") == [kind, *asked]
    assert messages_in({"system": "be rude", "messages": [kind, *asked]}, "messages") == [kind, *asked]
