"""Chat templates: what they make, which part of it is learned, and what hostile ones may not do."""

from __future__ import annotations

import pytest

from qkv.data.tokenizers.chat.template import ChatTemplate

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
