"""Streamed calls: what a stream tells is what the whole reply says, in time linear in its length."""

from __future__ import annotations

from pathlib import Path

import pytest

from qkv.data.tokenizers.tokenizer import Tokenizer
from qkv.serving.http.calls.forms import CallForm, ToolCall
from qkv.serving.http.calls.streams import CallStream, JsonEnd

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
