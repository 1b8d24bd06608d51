"""What chat templates may do, and what they may not."""

from __future__ import annotations

import io
import json
import sys

import pytest

from qkv.data.tokenizers.chat import sandbox as chat_sandbox
from qkv.data.tokenizers.chat.sandbox import MOST_STEPS
from qkv.data.tokenizers.chat.template import ChatTemplate

MESSAGES = [
    {"role": "user", "content": " hi "},
    {"role": "assistant", "content": "hello"},
    {"role": "user", "content": "bye"},
    {"role": "assistant", "content": "so long"},
]


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ("{{ ''.__class__.__mro__ }}", "templates may not use"),
        ("{{ messages.__init__.__globals__ }}", "templates may not use|fails"),
        ("{{ '%s'.format(1) }}", "templates may not use"),
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
def test_templates_may_use_what_transformers_allows(template: str, text: str):
    assert ChatTemplate(template).render(MESSAGES) == text


def test_what_a_template_changes_is_its_own():
    template = ChatTemplate("{% set _ = messages.append(messages[0]) %}{{ messages | length }}")
    assert [template.render(MESSAGES) for _ in range(2)] == ["5", "5"] and len(MESSAGES) == 4


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
