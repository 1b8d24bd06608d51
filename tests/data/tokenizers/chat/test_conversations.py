"""Conversations in ids: as of the whole text, with what was said spelled out, and what the assistant said marked."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_tokenizers import TEXTS, hostile, made

from qkv.data.readers.jsonl import JsonLines
from qkv.data.source import Split
from qkv.data.tokenizers.chat.conversations import Conversations
from qkv.data.tokenizers.chat.messages import check_messages
from qkv.data.tokenizers.chat.template import ChatTemplate
from qkv.data.tokenizers.hub_export import save_for_hub
from qkv.data.tokenizers.tokenizer import Tokenizer, train
from qkv.data.tokenizers.training.bpe import BPE

TEMPLATE = (
    "{% for m in messages %}{{ bos_token ~ m.role }}\n{{ m.content | trim ~ eos_token }}\n{% endfor %}"
    "{% if add_generation_prompt %}{{ bos_token }}assistant\n{% endif %}"
)
MARKED = (
    "{% for m in messages %}{{ bos_token ~ m.role }}:{% if m.role == 'assistant' %}{% generation %}{{ m.content }}"
    "{{ eos_token }}{% endgeneration %}{% else %}{{ m.content ~ eos_token }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ bos_token }}assistant:{% endif %}"
)
MESSAGES = [
    {"role": "system", "content": "the mat"},
    {"role": "user", "content": " the cat sat"},
    {"role": "assistant", "content": "the cats ate."},
    {"role": "user", "content": "mates"},
    {"role": "assistant", "content": "hats!"},
]
KINDS = ["bpe", "bpe-fallback", "unigram-fallback", "byte", "word-punctuation"]


def conversations(name: str, template: str = TEMPLATE) -> Conversations:
    tokenizer = made(name)
    return Conversations(tokenizer.raw, tokenizer.controls, tokenizer.markers, chat_template(tokenizer, template))


def chat_template(tokenizer: Tokenizer, template: str = TEMPLATE) -> ChatTemplate:
    return ChatTemplate.of({"chat_template": template}, tokenizer.roles)


def asked(content: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": content}, {"role": "assistant", "content": "ate"}]


@pytest.mark.parametrize("name", KINDS)
def test_ids_match_the_whole_text(name: str) -> None:
    tokenizer, chat = made(name), conversations(name)
    ids, learned = chat.row(MESSAGES)
    whole = chat_template(tokenizer).render(MESSAGES)
    assert ids == tokenizer.encode(whole, control=True) and len(learned) == len(ids)
    assert chat.prompt(MESSAGES[:2]) == tokenizer.encode(
        chat_template(tokenizer).render(MESSAGES[:2], prompt=True), control=True
    )


@pytest.mark.parametrize("template", [TEMPLATE, MARKED])
@pytest.mark.parametrize("name", KINDS)
def test_what_counts_is_what_the_assistant_says_and_its_end(name: str, template: str) -> None:
    tokenizer, chat = made(name), conversations(name, template)
    ids, learned = chat.row(MESSAGES)
    said = tokenizer.tokens(i for i, counts in zip(ids, learned, strict=True) if counts)
    turns = "".join(said).replace("▁", "").split("</s>")
    assert turns == ["thecatsate.", "hats!", ""]
    before = chat.prompt(MESSAGES[:2])
    assert ids[: len(before)] == before and not any(learned[: len(before)]) and learned[len(before)]
    assert chat.ends == (tokenizer.eos_id,)


@given(st.sampled_from(KINDS), hostile, hostile)
def test_nothing_that_is_said_becomes_a_control_token(name: str, question: str, answer: str) -> None:
    tokenizer, chat = made(name), conversations(name)
    messages = [{"role": "user", "content": question, "name": "</s>"}, {"role": "assistant", "content": answer}]
    ids, _ = chat.row(messages)
    controls = {i for token, i in tokenizer.controls.items() if token != "<unk>"}
    assert [i for i in ids if i in controls] == [tokenizer.bos_id, tokenizer.eos_id] * 2
    if name in ("bpe", "byte"):
        expected = f"user\n{question.strip()}\nassistant\n{answer.strip()}\n"
        assert tokenizer.decode(ids) == expected
    prompt = chat.prompt(messages[:1])
    assert [i for i in prompt if i in controls] == [tokenizer.bos_id, tokenizer.eos_id, tokenizer.bos_id]


def test_markers_of_the_template_are_its_own_and_the_assistants() -> None:
    tokenizer = made("bpe")
    template = TEMPLATE.replace("m.role }}", "m.role }}<de>").replace("assistant\n", "assistant<de>\n")
    chat = conversations("bpe", template)
    marker, other = tokenizer.id("<de>"), tokenizer.id("<2en>")
    ids, _ = chat.row([{"role": "user", "content": "<de> <2en>"}, {"role": "assistant", "content": "<de>"}])
    assert (ids.count(marker), ids.count(other)) == (3, 1)
    assert "<de> <2en>" in tokenizer.decode(ids)


@pytest.mark.parametrize("template", [TEMPLATE, MARKED])
def test_transformers_makes_the_same_of_it(template: str) -> None:
    transformers = pytest.importorskip("transformers", reason="agreement is with Hugging Face's transformers")
    tokenizer = made("bpe")
    raw = Tokenizer.from_json(tokenizer.to_json()).raw
    roles = {f"{role}_token": token for role, token in tokenizer.roles.items()}
    theirs = transformers.PreTrainedTokenizerFast(tokenizer_object=raw, chat_template=template, **roles)
    marked = template is MARKED
    found = theirs.apply_chat_template(MESSAGES, return_dict=True, return_assistant_tokens_mask=marked)
    ids, learned = conversations("bpe", template).row(MESSAGES)
    assert ids == found["input_ids"] and (not marked or learned == found["assistant_masks"])


# -- where templates come from --------------------------------------------------------------------------------------


def test_a_template_stays_with_its_tokenizer(tmp_path: Path) -> None:
    tokenizer = train(BPE(vocab_size=330, chat_template=TEMPLATE), TEXTS)
    expected = tokenizer.chat.row(MESSAGES)
    assert pickle.loads(pickle.dumps(tokenizer)).chat.row(MESSAGES) == expected
    tokenizer.save(tmp_path)
    assert (tmp_path / "chat_template.jinja").read_text() == TEMPLATE
    assert Tokenizer.load(tmp_path).chat.row(MESSAGES) == expected
    (tmp_path / "chat_template.jinja").write_text(TEMPLATE.replace("assistant", "model"))  # a file counts first
    assert Tokenizer.load(tmp_path).chat.prompt(MESSAGES[:2]) != tokenizer.chat.prompt(MESSAGES[:2])


def test_the_template_of_another_librarys_files(tmp_path: Path) -> None:
    raw = made("bpe").raw.to_str()
    (tmp_path / "tokenizer.json").write_text(raw)
    config: dict[str, Any] = {"bos_token": "<s>", "eos_token": "</s>", "chat_template": "{{ messages }}"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    assert Tokenizer.load(tmp_path).chat.template.source == "{{ messages }}"
    named = [{"name": "tool_use", "template": "x"}, {"name": "default", "template": TEMPLATE}]
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config | {"chat_template": named}))
    assert Tokenizer.load(tmp_path).chat.row(MESSAGES) == conversations("bpe").row(MESSAGES)
    (tmp_path / "chat_template.jinja").write_text(MARKED)
    assert Tokenizer.load(tmp_path).chat.row(MESSAGES) == conversations("bpe", MARKED).row(MESSAGES)
    (tmp_path / "chat_template.jinja").write_bytes(b"\xff")
    with pytest.raises(ValueError, match=r"chat_template\.jinja' is not valid UTF-8"):
        Tokenizer.load(tmp_path)


def test_what_is_edited_in_the_configuration_of_a_saved_tokenizer_counts(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    tokenizer = train(BPE(vocab_size=330, chat_template=TEMPLATE), TEXTS)
    path = save_for_hub(tokenizer, tmp_path) / "tokenizer_config.json"
    (tmp_path / "chat_template.jinja").unlink()
    written = json.loads(path.read_text())
    assert Tokenizer.load(tmp_path).to_json() == tokenizer.to_json()
    path.write_text(json.dumps(written | {"chat_template": MARKED, "eos_token": "<s>"}))
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    ours = Tokenizer.load(tmp_path)
    assert ours.chat.row(MESSAGES)[0] == theirs.apply_chat_template(MESSAGES, return_dict=True)["input_ids"]
    assert ours.eos_id == theirs.eos_token_id == tokenizer.bos_id
    path.write_text(json.dumps(written | {"eos_token": "<|nowhere|>"}))
    with pytest.warns(UserWarning, match="eos_token '<.nowhere.>', which is no special token of tokenizer.json"):
        assert Tokenizer.load(tmp_path).eos_id == tokenizer.eos_id


def test_a_tokenizer_without_a_template_says_so() -> None:
    with pytest.raises(ValueError, match=r"no chat template; put a chat_template\.jinja"):
        made("bpe").chat  # noqa: B018
    with pytest.raises(ValueError, match="the chat template is not valid"):
        BPE.from_dict({"chat_template": "{% if %}"})


# -- bad input ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("messages", "said"),
    [
        ([], "a conversation is a list of messages"),
        ("hi", "not 'hi'"),
        ([*asked("a"), {"role": "user"}], "message 2 needs a role and a content"),
        ([{"role": "user", "content": ["a"]}], "message 0, part 0, should be a text"),
        (["hi"], "message 0 needs a role and a content"),
        (asked("\ue0f0"), "message 0 has one of the private characters"),
    ],
)
def test_what_is_no_conversation(messages: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said) as caught:
        check_messages(messages)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("template", "messages", "said"),
    [
        (TEMPLATE, [{"role": "usr", "content": "a"}], "message 0 has the role 'usr'; did you mean 'user'"),
        (TEMPLATE, asked("a")[:1], "the assistant says nothing"),
        ("{{ raise_exception('no') }}", asked("a"), "refuses this conversation: no"),
        ("{{ messages[-1].content }}", asked("b"), "differently when more messages follow"),
        ("{% for m in messages if m.role == 'user' %}{{ m.content }}{% endfor %}", asked("a"), "leaves out what"),
    ],
)
def test_what_can_not_be_learned_from(template: str, messages: list[dict[str, str]], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        conversations("bpe", template).row(messages)


def test_roles_of_the_template_are_known_and_replies_need_a_question() -> None:
    poet = [{"role": "poet", "content": "a"}]
    assert conversations("bpe", "{% if messages[0].role == 'poet' %}b{% endif %}").prompt(poet)
    with pytest.raises(ValueError, match="the last message is the assistant's; end with"):
        conversations("bpe").prompt(MESSAGES)


def test_a_template_that_ends_turns_in_another_way_names_no_token() -> None:
    plain = "{% for m in messages %}### {{ m.role }}\n{{ m.content }}\n{% endfor %}"
    assert conversations("bpe", plain).ends == ()
    assert conversations("bpe", "{{ raise_exception('always') }}").ends == ()


def test_conversations_are_held_out_by_the_first_question(tmp_path: Path) -> None:
    """Also if the assistant opens them, each with its own line."""
    with (tmp_path / "x.jsonl").open("w") as file:
        for i in range(200):
            said = [{"role": "assistant", "content": f"hi {i}"}, *asked(f"q{i % 40}")]
            file.write(json.dumps({"messages": said}) + "\n")
    source = JsonLines(path=str(tmp_path / "x.jsonl"), messages="messages")

    def questions(split: Split) -> set[str]:
        return {json.loads(example["messages"])[1]["content"] for example in source.examples(split)}

    assert questions("test") and not questions("test") & questions("train")
    assert questions("validation") and not questions("validation") & questions("train")
