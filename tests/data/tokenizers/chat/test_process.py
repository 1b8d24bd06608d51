"""The child process that runs chat templates."""

from __future__ import annotations

import multiprocessing

import pytest

from qkv.data.tokenizers.chat import process as chat_process
from qkv.data.tokenizers.chat.template import ChatTemplate

MESSAGES = [
    {"role": "user", "content": " hi "},
    {"role": "assistant", "content": "hello"},
    {"role": "user", "content": "bye"},
    {"role": "assistant", "content": "so long"},
]


def _rendered(content: str) -> str:
    return ChatTemplate("{{ messages[0].content }}").render([{"role": "user", "content": content}])


def test_templates_run_in_a_forked_process_too():
    """A data loader may fork; the parent's conversation with its process must not be mixed up with the child's."""
    template = ChatTemplate("{{ messages[0].content }}")
    with multiprocessing.get_context("fork").Pool(2) as pool:
        numbers = [str(i) for i in range(40)]
        there = pool.map_async(_rendered, numbers)
        assert [_rendered(number) for number in numbers] == numbers == there.get(60)
    assert template.render(MESSAGES) == " hi "


def test_an_interrupted_conversation_does_not_answer_the_next(monkeypatch: pytest.MonkeyPatch):
    template = ChatTemplate("{{ messages[0].content }}")

    def interrupt(text: bytes) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(chat_process.json, "loads", interrupt)
        with pytest.raises(KeyboardInterrupt):
            template.render(MESSAGES)
    assert template.render(MESSAGES[1:]) == "hello"


def test_what_is_no_json_is_refused():
    with pytest.raises(ValueError, match="texts, numbers, lists and mappings"):
        ChatTemplate("x").render([{"role": "user", "content": object()}])


HOARDER = (
    "{% set ns = namespace(a=[]) %}{% for i in range(9000) %}{% set _ = ns.a.append(range(10000)|list) %}{% endfor %}x"
)


def test_memory_is_bounded_where_the_system_ignores_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """macOS ignores RLIMIT_AS and Windows has none: there the parent watches the process."""
    unlimited = "import resource; resource.setrlimit = lambda *_: None; "
    monkeypatch.setattr(chat_process, "BEGIN", unlimited + chat_process.BEGIN)
    monkeypatch.setattr(chat_process, "WATCHED", True)
    child = chat_process.Child()
    asked = {"source": HOARDER, "values": {"messages": MESSAGES}}
    with pytest.raises(ValueError, match="or more than 256 MiB of memory, so it was stopped"):
        child.ask(asked)
    answer = {"source": "{{ messages[0].content }}", "values": {"messages": MESSAGES}}
    assert child.ask(answer) == " hi "  # by a new process
    child._end()
