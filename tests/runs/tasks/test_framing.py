"""What stands around texts, by the tokenizer's own template or by ours, and what is cut if there is no room."""

from __future__ import annotations

from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import processors

from qkv.data.tokenizers.tokenizer import Tokenizer, train
from qkv.data.tokenizers.training.spec import TokenizerSpec
from qkv.runs.tasks.framing import framed

BERT = processors.TemplateProcessing(
    single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
)
ROBERTA = processors.RobertaProcessing(("</s>", 3), ("<s>", 2))


@cache
def tokenizer(template: str = "", **roles: str | None) -> Tokenizer:
    names = {"bos": "[CLS]", "eos": "[SEP]"} if template == "bert" else {}
    made = train(TokenizerSpec.from_dict({"kind": "word", "vocab_size": 50, **names, **roles}), ["a b c d e f"])
    if template:
        made.raw.post_processor = {"bert": BERT, "roberta": ROBERTA}[template]
    return made


def test_without_a_template_texts_stand_between_beginning_and_end() -> None:
    one, two = framed(tokenizer(), [5, 6]), framed(tokenizer(), [5, 6], [7])
    assert (one.ids.tolist(), one.token_types.tolist(), one.spans) == ([2, 5, 6, 3], [0, 0, 0, 0], ((1, 3),))
    assert (two.ids.tolist(), two.token_types.tolist()) == ([2, 5, 6, 3, 7, 3], [0, 0, 0, 0, 1, 1])
    assert two.spans == ((1, 3), (4, 5))


@pytest.mark.parametrize("template", ["bert", "roberta"])
@pytest.mark.parametrize(("a", "b"), [("a b", None), ("a b c", "d"), ("f", "e e")])
def test_a_template_is_the_librarys(template: str, a: str, b: str | None) -> None:
    made = tokenizer(template)
    (theirs,) = made.with_template([a], None if b is None else [b])
    ours = framed(made, made.encode(a), None if b is None else made.encode(b))
    assert (ours.ids.tolist(), ours.token_types.tolist()) == (theirs.ids, theirs.types)
    for text, (start, stop) in zip((a, b), ours.spans, strict=False):
        assert text is not None and ours.ids[start:stop].tolist() == made.encode(text)


@given(st.integers(0, 12), st.integers(0, 12), st.integers(5, 30), st.sampled_from(["", "bert"]))
def test_the_longer_text_gives_way_first(a: int, b: int, room: int, template: str) -> None:
    found = framed(tokenizer(template), [5] * a, [6] * b, room=room)
    kept = [stop - start for start, stop in found.spans]
    assert len(found.ids) == min(room, a + b + 3) and found.cut == a + b - sum(kept)
    if found.cut:
        assert abs(kept[0] - kept[1]) <= 1 or kept[0 if a < b else 1] == min(a, b)


@given(st.integers(1, 12), st.integers(0, 12), st.integers(6, 20), st.sampled_from(["bert", "roberta"]))
def test_texts_are_cut_as_the_library_cuts_them(a: int, b: int, room: int, template: str) -> None:
    """`enable_truncation`, longest first, which transformers uses."""
    made, texts = tokenizer(template), (" ".join("abcdef"[i % 6] for i in range(n)) for n in (a, b))
    first, second = texts
    if room < 4 + 2 * (template == "roberta") or made.raw.num_special_tokens_to_add(True) + 2 > room:
        return
    made.raw.enable_truncation(room)
    try:
        theirs = made.raw.encode(first, second) if b else made.raw.encode(first)
    finally:
        made.raw.no_truncation()
    ours = framed(made, made.encode(first), made.encode(second) if b else None, room=room)
    assert ours.ids.tolist() == theirs.ids and ours.token_types.tolist() == theirs.type_ids


def test_one_text_alone_can_be_cut() -> None:
    found = framed(tokenizer(), [5] * 4, [6] * 4, room=9, cut="second")
    assert found.ids.tolist() == [2, 5, 5, 5, 5, 3, 6, 6, 3] and found.cut == 2
    with pytest.raises(ValueError, match="4 tokens of text with 3 around them don't fit 6; give them more room"):
        framed(tokenizer(), [5] * 3, [6], room=6, cut="second")


def test_two_texts_need_something_between_them() -> None:
    with pytest.raises(
        ValueError,
        match=r"separated by an end-of-sequence token, and this tokenizer has none; give it one as tokenizer\.eos",
    ):
        framed(tokenizer(eos=None), [5], [6])
    assert framed(tokenizer(eos=None), [5]).ids.tolist() == [2, 5]
