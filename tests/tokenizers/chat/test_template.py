"""Chat templates: what they make, which part of it is learned, and what hostile ones may not do."""

from __future__ import annotations

import io
import json
import multiprocessing
import sys

import pytest

from qkv.tokenizers.chat import process as chat_process
from qkv.tokenizers.chat import sandbox as chat_sandbox
from qkv.tokenizers.chat.sandbox import MOST_STEPS
from qkv.tokenizers.chat.template import ChatTemplate

CHATML = (
    "{% for m in messages %}<|{{ m.role }}|>{{ m['content'] | trim ~ '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
MARKED = (
    "{% for m in messages %}<|{{ m.role }}|>{% if m.role == 'assistant' %}{% generation %}{{ m.content }}"
    "{% endgeneration %}{% else %}{{ m.content }}{% endif %}{% endfor %}"
)
MESSAGES = [
    {"role": "user", "content": " hi "},
    {"role": "assistant", "content": "hello"},
    {"role": "user", "content": "bye"},
    {"role": "assistant", "content": "so long"},
]


def test_a_conversation_is_one_text():
    template = ChatTemplate(CHATML)
    assert template.render(MESSAGES[:1], prompt=True) == "<|user|>hi\n<|assistant|>"
    assert (
        ChatTemplate("{{ bos_token }}{{ x | tojson }}", {"bos_token": "<s>"}).render([], x={"a": "é<"})
        == '<s>{"a": "é<"}'
    )


@pytest.mark.parametrize(("template", "end"), [(CHATML, "\n"), (MARKED, "")])
def test_only_what_the_assistant_says_is_learned(template: str, end: str):
    parts = ChatTemplate(template).parts(MESSAGES)
    assert [part.text for part in parts if part.learned] == [f"hello{end}", f"so long{end}"]
    assert "".join(part.text for part in parts) == ChatTemplate(template).render(MESSAGES)


FORGETTING = (  # as Qwen 3's: thoughts of answers before the last question are left out, and it answers after a thought
    "{%- set last = namespace(i=0) %}"
    "{%- for m in messages %}{% if m.role == 'user' %}{% set last.i = loop.index0 %}{% endif %}{% endfor %}"
    "{%- for m in messages %}<|{{ m.role }}|>"
    "{%- if m.role == 'assistant' %}"
    "{%- set said = m.content.split('</think>')[-1].lstrip('\n') %}"
    "{%- if loop.index0 > last.i %}<think>{{ m.content.split('</think>')[0].removeprefix('<think>') }}</think>{% endif %}"
    "{{- said }}{%- else %}{{ m.content }}{% endif %}<|end|>{% endfor %}"
    "{%- if add_generation_prompt %}<|assistant|>{% endif %}"
)
THINKING = [
    {"role": "user", "content": "hi"},
    {"role": "assistant", "content": "<think>greet</think>hello"},
    {"role": "user", "content": "bye"},
    {"role": "assistant", "content": "<think>look up</think>one moment"},
    {"role": "tool", "content": "five o'clock"},
    {"role": "assistant", "content": "<think>part</think>so long"},
]


def test_turns_that_a_template_rewrites_are_read_and_those_since_the_last_question_learned():
    """What is learned follows exactly what the model reads when it is asked."""
    template = ChatTemplate(FORGETTING)
    parts = template.parts(THINKING)
    assert "".join(part.text for part in parts) == template.render(THINKING)
    assert [part.text for part in parts if part.learned] == [
        "<think>look up</think>one moment<|end|>",
        "<think>part</think>so long<|end|>",
    ]
    before = "".join(part.text for part in parts[:-1])
    assert before == template.render(THINKING[:5], prompt=True) and "greet" not in before
    assert [part.text for part in template.parts(THINKING[:2]) if part.learned] == ["<think>greet</think>hello<|end|>"]
    with pytest.raises(
        ValueError, match=r"message 1 .* differently when more messages follow.* end the conversation there"
    ):
        template.parts(THINKING[:3])


def test_a_template_that_rewrites_all_turns_is_refused():
    rewriting = "{% for m in messages %}{{ m.content if loop.last else '' }}{% endfor %}"
    with pytest.raises(ValueError, match="differently when more messages follow"):
        ChatTemplate(rewriting).parts(MESSAGES)


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ("{{ ''.__class__.__mro__ }}", "no template may"),
        ("{{ messages.__init__.__globals__ }}", "no template may|fails"),
        ("{{ '%s'.format(1) }}", "no template may"),
        ("{% include 'x' %}", "fails|not valid"),
        ("{% if %}", "not valid"),
        ("{{ 'a' | center(999999999) }}", "not valid|fails"),
        ("{{ 'a' * 999999999 }}", "stopped"),
        ("{{ 9 ** 999999999 }}", "stopped"),
        ("{{ raise_exception('roles must alternate') }}", "refuses this conversation: roles must alternate"),
        ("{% set n = namespace(s='ab') %}{% for i in range(60) %}{% set n.s = n.s ~ n.s %}{% endfor %}", "stopped"),
        ("{% set n = namespace(s='ab') %}{% for i in range(60) %}{% set n.s = n.s + n.s %}{% endfor %}", "stopped"),
        ("{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}", f"{MOST_STEPS:,} steps"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "stopped"),
        ("x" * (1 << 19), "more than any template"),
    ],
)
def test_hostile_templates_are_refused_in_one_sentence(template: str, said: str):
    with pytest.raises(ValueError, match=said) as caught:
        ChatTemplate(template).render(MESSAGES)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("{{ messages[0].content | trim | indent(2, first=true) }}", "  hi"),
        ("{{ 2.567 | round(1) }} {{ [1, 2, 3] | sum }} {{ -3 | abs }} {{ [1, 5] | max }}", "2.6 6 3 5"),
        ("{% set l = [] %}{% for m in messages %}{% set _ = l.append(m.role) %}{% endfor %}{{ l | length }}", "4"),
        ("{{ '=' * 5 }}", "====="),
        ("{{ {'b': 1, 'a': [2]} | tojson(sort_keys=true, separators=(',', ':')) }}", '{"a":[2],"b":1}'),
        ("{{ strftime_now('%Y') | int > 2000 }}", "True"),
        ("{% set d = {} %}{% set _ = d.update({'a': 1}) %}{{ d.a }}", "1"),
    ],
)
def test_templates_use_what_those_of_transformers_do(template: str, text: str):
    assert ChatTemplate(template).render(MESSAGES) == text


def test_what_a_template_changes_is_its_own():
    template = ChatTemplate("{% set _ = messages.append(messages[0]) %}{{ messages | length }}")
    assert [template.render(MESSAGES) for _ in range(2)] == ["5", "5"] and len(MESSAGES) == 4


def test_templates_run_in_a_forked_process_too():
    """A data loader may fork; the parent's conversation with its process must not be mixed up with the child's."""
    template = ChatTemplate("{{ messages[0].content }}")
    with multiprocessing.get_context("fork").Pool(2) as pool:
        numbers = [str(i) for i in range(40)]
        there = pool.map_async(_rendered, numbers)
        assert [_rendered(number) for number in numbers] == numbers == there.get(60)
    assert template.render(MESSAGES) == " hi "


def _rendered(content: str) -> str:
    return ChatTemplate("{{ messages[0].content }}").render([{"role": "user", "content": content}])


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


def test_the_process_answers_in_lines_that_end_alike_on_every_system(monkeypatch: pytest.MonkeyPatch):
    """On Windows the text layer of stdout ends lines by \\r\\n."""
    request = json.dumps({"source": "{{ 1 + 1 }}", "values": {}}).encode() + b"\n"
    said = io.BytesIO()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(request)))
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(said, newline="\r\n", write_through=True))
    for name in ("limit_memory", "renew_time"):
        monkeypatch.setattr(chat_sandbox, name, lambda: None)
    monkeypatch.setattr(chat_sandbox.signal, "signal", lambda *_: None)
    chat_sandbox.main()
    assert said.getvalue() == chat_sandbox.READY + b'{"text": "2"}\n'
