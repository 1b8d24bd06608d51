"""Calls as in transformers give what `PreTrainedTokenizerFast` gives on the same tokenizer.json."""

from __future__ import annotations

import itertools
import pickle
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch

from qkv.data.tokenizers.tokenizer import Tokenizer, train

transformers = pytest.importorskip("transformers", reason="the results are compared with it")

TEXTS = ["the cat sat on the mat", "a dog", "", "the mat <mask> the cat </s> sat, on 2 mats!", "Über naïve cafés ☕"]
PAIRS = ["it is a cat", "the dog ate the cat on the mat", "b", "</s> a", "é"]
TEMPLATE = (
    "{{ bos_token }}{% if tools %}{% for t in tools %}[{{ t.function.name }}]{% endfor %}{% endif %}"
    "{% for m in messages %}<{{ m.role }}>"
    "{% if m.role == 'assistant' %}{% generation %}{{ m.content }}{% for c in m.tool_calls or [] %}"
    "call {{ c.function.name }} {{ c.function.arguments | tojson }}{% endfor %}{{ eos_token }}{% endgeneration %}"
    "{% else %}{{ m.content }}{% endif %}{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"
)


def made(kind: str, **spec: Any) -> Tokenizer:
    from qkv.data.tokenizers import from_file  # noqa: F401
    from qkv.data.tokenizers.training.spec import TokenizerSpec

    usual = TokenizerSpec.from_dict({"kind": kind, "vocab_size": 300, **spec})
    return train(usual, [*TEXTS, *PAIRS] * 3)


KINDS: dict[str, Any] = {
    "bpe": lambda: made("bpe", chat_template=TEMPLATE),
    "bpe with a template": lambda: made("bpe").templated(),
    "wordpiece with a template": lambda: made("wordpiece").templated(),
    "unigram": lambda: made("unigram", vocab_size=120),
}


def both(name: str, folder: Path) -> tuple[Tokenizer, Any]:
    from qkv.data.tokenizers.hub_export import save_for_hub

    made_one: Tokenizer = KINDS[name]()
    save_for_hub(made_one, folder, max_length=9)
    return Tokenizer.load(folder), transformers.AutoTokenizer.from_pretrained(folder)


def same(found: Any, wanted: Any) -> None:
    assert dict(found).keys() == dict(wanted).keys()
    for key, value in wanted.items():
        if isinstance(value, torch.Tensor):
            torch.testing.assert_close(found[key], value)
        elif isinstance(value, numpy.ndarray):
            numpy.testing.assert_array_equal(found[key], value)
        else:
            assert found[key] == value, key


INPUTS: tuple[tuple[Any, ...], ...] = ((TEXTS[0],), (TEXTS,), (TEXTS[3], PAIRS[3]), (TEXTS, PAIRS), ([TEXTS[1]],))
PADDING = (False, True, "max_length", "longest")
CUTTING: tuple[dict[str, Any], ...] = (
    {},
    {"truncation": True},
    {"truncation": True, "max_length": 6},
    {"truncation": "only_first", "max_length": 7},
    {"max_length": 8, "truncation": False},
    {"max_length": 5},
)
MORE: tuple[dict[str, Any], ...] = (
    {},
    {"add_special_tokens": False, "return_offsets_mapping": True},
    {"return_token_type_ids": True, "return_special_tokens_mask": True, "return_length": True},
    {"padding_side": "left", "return_attention_mask": False},
    {"split_special_tokens": True},
    {"truncation": True, "max_length": 6, "stride": 1, "return_overflowing_tokens": True},
    {"return_tensors": "pt", "padding": True, "truncation": True},
    {"return_tensors": "np", "padding": "max_length", "truncation": True, "max_length": 8, "pad_to_multiple_of": 4},
)


@pytest.mark.parametrize("step", [13, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", KINDS)
def test_calls_give_the_same(name: str, step: int, tmp_path: Path) -> None:
    ours, theirs = both(name, tmp_path)
    compared, every = 0, itertools.product(INPUTS, PADDING, CUTTING, MORE)
    for given, padding, cutting, more in itertools.islice(every, 0, None, step):
        options = {"padding": padding, **cutting, **more, "verbose": False}
        try:
            wanted = theirs(*given, **options)
        except BaseException as error:  # pyo3's panics are not Exceptions
            with pytest.raises(ValueError):
                ours(*given, **options)
            assert not isinstance(error, KeyboardInterrupt)
            continue
        same(ours(*given, **options), wanted)
        compared += 1
    assert compared > 500 / step


@pytest.mark.parametrize("name", KINDS)
def test_names_and_texts_are_the_same(name: str, tmp_path: Path) -> None:
    ours, theirs = both(name, tmp_path)
    for role in ("pad", "unk", "bos", "eos", "cls", "sep", "mask"):
        assert getattr(ours, f"{role}_token_id") == getattr(theirs, f"{role}_token_id")
        assert getattr(ours, f"{role}_token") == getattr(theirs, f"{role}_token")
    for key in ("padding_side", "truncation_side", "model_max_length", "model_input_names"):
        assert getattr(ours, key) == getattr(theirs, key)
    assert len(ours) == len(theirs) and ours.get_vocab() == theirs.get_vocab()
    assert sorted(ours.all_special_ids) == sorted(theirs.all_special_ids)
    rows = theirs(TEXTS)["input_ids"]
    for skip in (False, True):
        assert ours.batch_decode(rows, skip_special_tokens=skip) == theirs.batch_decode(rows, skip_special_tokens=skip)
    tokens = ours.convert_ids_to_tokens(rows[0])
    assert tokens == theirs.convert_ids_to_tokens(rows[0]) and ours.convert_tokens_to_ids(tokens) == rows[0]
    assert ours(TEXTS).word_ids(0) == theirs(TEXTS).word_ids(0)
    same(ours.to_transformers()(TEXTS), theirs(TEXTS))
    same(pickle.loads(pickle.dumps(ours))(TEXTS), theirs(TEXTS))


ASKED = [{"role": "user", "content": "the cat"}]
SAID = [*ASKED, {"role": "assistant", "content": "sat on"}, {"role": "user", "content": "a"}]
CALLED = [
    *ASKED,
    {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "mat", "arguments": {"a": 2}}}]},
    {"role": "tool", "content": "2 mats"},
    {"role": "assistant", "content": "the mat"},
]
TOOLS = [{"type": "function", "function": {"name": "mat", "description": "a mat", "parameters": {}}}]


def test_conversations_give_the_same(tmp_path: Path) -> None:
    ours, theirs = both("bpe", tmp_path)
    for talk, tools, prompt in itertools.product((ASKED, SAID, CALLED), (None, TOOLS), (False, True)):
        options: dict[str, Any] = {"tools": tools, "add_generation_prompt": prompt}
        assert ours.apply_chat_template(talk, tokenize=False, **options) == theirs.apply_chat_template(
            talk, tokenize=False, **options
        )
        same(ours.apply_chat_template(talk, **options), theirs.apply_chat_template(talk, **options))
    padded: dict[str, Any] = {"padding": True, "return_tensors": "pt"}
    same(ours.apply_chat_template([SAID, CALLED], **padded), theirs.apply_chat_template([SAID, CALLED], **padded))


def test_tokens_that_training_counts_are_those_of_transformers(tmp_path: Path) -> None:
    ours, theirs = both("bpe", tmp_path)
    for talk in (SAID, CALLED):
        found = ours.apply_chat_template(talk, tools=TOOLS, return_assistant_tokens_mask=True)
        same(found, theirs.apply_chat_template(talk, tools=TOOLS, return_assistant_tokens_mask=True))
        assert (found.input_ids, found.assistant_masks) == ours.chat.row(talk, TOOLS)


def test_control_tokens_in_messages_are_spelled_out(tmp_path: Path) -> None:
    ours, theirs = both("bpe", tmp_path)
    talk = [{"role": "user", "content": "the </s> cat"}]
    ids = ours.apply_chat_template(talk, return_dict=False)
    assert ours.eos_id not in ids and ours.eos_id in theirs.apply_chat_template(talk, return_dict=False)
    assert ours.decode(ids) == "<user>the </s> cat"


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda t: t.without("pad")(TEXTS, padding=True), "has no padding token"),
        (lambda t: t(TEXTS, padding="longst"), "there is no padding 'longst'"),
        (lambda t: t(TEXTS, return_tensors="pt"), "rows of unequal length make no tensor; give padding=True"),
        (lambda t: t(TEXTS, return_tensors="tf"), "return_tensors is 'pt', 'np' or None"),
        (lambda t: t(TEXTS, PAIRS[:2]), "there are 5 texts and 2 beside them"),
        (lambda t: t(3), "give a text or a list of texts, not 3"),
        (lambda t: t(TEXTS, paddin=True), "did you mean 'padding'"),
        (lambda t: t("a").labels, "there is no 'labels'"),
        (lambda t: t.decode([1], skip_special_tokens=True), "it is skip_special of decode"),
        (lambda t: t.encode("a", add_special_tokens=False), "encode takes bos, eos and control"),
        (lambda t: t.apply_chat_template(ASKED, tools="x"), "tools"),
    ],
)
def test_wrong_calls_are_told(call: Any, said: str) -> None:
    with pytest.raises((ValueError, AttributeError)) as error:
        call(KINDS["bpe"]())
    assert said in str(error.value) and "\n" not in str(error.value)
