"""Forms of calls, as chat templates write them."""

from __future__ import annotations

from pathlib import Path

from qkv.data.tokenizers.tokenizer import Tokenizer
from qkv.serving.http.calls.forms import CallForm, ToolCall, functions


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
