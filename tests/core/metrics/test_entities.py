"""Entities as the shared tasks count them; the constants are what seqeval 1.2.2 gives (mode="strict" but for conll)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qkv.core.metrics.entities import Entity, Scheme, agreement, entities, misfit, scheme_of

IOB2 = (
    [
        ["O", "B-PER", "I-PER", "O", "B-LOC", "I-ORG", "B-LOC"],
        ["I-PER", "B-ORG", "I-ORG", "O", "B-MISC"],
        ["B-LOC", "B-LOC", "I-LOC", "O"],
    ],
    [
        ["O", "B-PER", "I-PER", "I-PER", "B-LOC", "O", "I-LOC"],
        ["B-PER", "B-ORG", "I-ORG", "I-ORG", "B-MISC"],
        ["B-LOC", "I-LOC", "I-LOC", "B-PER"],
    ],
)
IOBES = (
    [["S-PER", "O", "B-LOC", "E-LOC", "B-ORG", "I-ORG", "E-ORG"], ["B-PER", "I-PER", "O", "S-LOC", "E-LOC"]],
    [["S-PER", "O", "B-LOC", "I-LOC", "B-ORG", "I-ORG", "E-ORG"], ["B-PER", "E-PER", "O", "S-LOC", "S-LOC"]],
)


@pytest.mark.parametrize(
    ("scheme", "rows", "precision", "recall", "f1"),
    [
        ("iob2", IOB2, 0.2857142857, 0.2857142857, 0.2857142857),
        ("conll", IOB2, 0.5, 0.4444444444, 0.4705882353),
        ("iobes", IOBES, 0.6, 0.75, 0.6666666667),
    ],
)
def test_agreement_is_what_seqeval_finds(
    scheme: Scheme, rows: tuple[list[list[str]], list[list[str]]], precision: float, recall: float, f1: float
) -> None:
    true, predicted = rows
    found = agreement(predicted, true, scheme)
    assert (found.precision, found.recall, found.f1) == pytest.approx((precision, recall, f1))


def test_what_is_not_whole_is_no_entity() -> None:
    assert entities(["I-X", "B-X", "I-Y", "B-X"], "iob2") == [Entity("X", 1, 2), Entity("X", 3, 4)]
    assert entities(["B-X", "I-X", "O", "S-Y", "E-Y", "B-X", "E-X"], "iobes") == [Entity("Y", 3, 4), Entity("X", 5, 7)]
    assert entities(["I-X", "I-X", "I-Y", "B-Y"], "conll") == [Entity("X", 0, 2), Entity("Y", 2, 3), Entity("Y", 3, 4)]
    assert entities(["NOUN", "VERB"], "plain") == []


@pytest.mark.parametrize(
    ("tags", "scheme"),
    [
        ("O B-PER I-PER B-LOC", "iob2"),
        ("O I-PER B-PER I-LOC", "conll"),
        ("O S-PER B-LOC E-LOC", "iobes"),
        ("O U-PER B-LOC L-LOC I-LOC", "bilou"),
        ("O B-PER M-PER E-PER S-PER", "iobes"),
        ("O B I", "iob2"),
        ("O B I E S", "iobes"),
        ("O B_PER I_PER", "iob2"),
        ("o b-per i-per b-loc", "iob2"),
        ("O b-per l-per u-loc", "bilou"),
        ("o b i", "iob2"),
        ("O PER-B PER-I LOC-B", "iob2"),
        ("o per_b per_e loc_s", "iobes"),
        ("B-PER I-PER b-loc", "plain"),
        ("PER-B B-LOC", "plain"),
        ("s_noun e_verb", "plain"),  # no entity begins
        ("B E S T G H I C", "plain"),  # secondary structure
        ("H E C", "plain"),
        ("I O", "plain"),
        ("B B-PER O", "plain"),
        ("NOUN VERB O", "plain"),
        ("O", "plain"),
    ],
)
def test_the_scheme_is_read_from_the_tags(tags: str, scheme: Scheme) -> None:
    assert scheme_of(tags.split()) == scheme


PARTS = st.lists(st.tuples(st.sampled_from(["PER", "LOC", ""]), st.integers(1, 4)), max_size=6)


@given(PARTS, st.sampled_from(["iob2", "iobes", "conll"]))
def test_entities_that_were_spelled_are_found_again(parts: list[tuple[str, int]], scheme: Scheme) -> None:
    tags: list[str] = []
    wanted = []
    for kind, size in parts:
        start = len(tags)
        if not kind:
            tags += ["O"] * size
            continue
        wanted.append(Entity(kind, start, start + size))
        if scheme == "iobes":
            tags += [f"S-{kind}"] if size == 1 else [f"B-{kind}", *[f"I-{kind}"] * (size - 2), f"E-{kind}"]
        else:
            tags += [f"B-{kind}", *[f"I-{kind}"] * (size - 1)]
    assert entities(tags, scheme) == wanted
    assert agreement([tags], [tags], scheme).f1 == (1.0 if wanted else 0.0)


def test_iob1_is_told_from_iob2_by_sentences_and_counted_as_conlleval_does() -> None:
    tags = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC")
    iob1 = [["I-PER", "I-PER", "O", "I-LOC"], ["I-LOC", "B-LOC", "I-LOC", "O", "I-PER"]]
    iob2 = [["B-PER", "I-PER", "O", "B-LOC"], ["B-LOC", "B-LOC", "I-LOC", "O", "B-PER"]]
    assert scheme_of(tags, iob1) == "iob1" and scheme_of(tags, iob2) == "iob2" == scheme_of(tags)
    for one, other in zip(iob1, iob2, strict=True):
        assert entities(one, "iob1") == entities(other, "iob2")


def test_letters_of_other_schemes_and_bare_ones_are_read() -> None:
    expected = [Entity("PER", 0, 1), Entity("LOC", 2, 5)]
    for text, scheme in (
        ("S-PER O B-LOC I-LOC E-LOC", "iobes"),
        ("U-PER O B-LOC I-LOC L-LOC", "bilou"),
        ("W-PER O B-LOC M-LOC E-LOC", "iobes"),
        ("S_PER O B_LOC M_LOC E_LOC", "iobes"),
    ):
        assert entities(text.split(), scheme) == expected  # type: ignore[arg-type]
    assert entities(["B", "I", "O", "B"], "iob2") == [Entity("", 0, 2), Entity("", 3, 4)]


@pytest.mark.parametrize(
    ("scheme", "tags", "said"),
    [
        ("iob2", "O S-PER B-LOC E-LOC", "'E-LOC' is a tag of iobes"),
        ("iobes", "O B-PER I-PER", "no entity ends in them"),
        ("iob2", "NOUN VERB", "'NOUN' is no tag of an entity"),
        ("iob2", "O B I", None),
        ("conll", "O I-PER B-PER", None),
        ("bilou", "O U-PER", None),
        ("plain", "O B-PER", None),
    ],
)
def test_a_scheme_that_does_not_fit_the_tags_is_told(scheme: Scheme, tags: str, said: str | None) -> None:
    found = misfit(scheme, tags.split())
    assert found == said if said is None else said in str(found)


@pytest.mark.parametrize("scheme", ["iob2", "iobes", "conll"])
@pytest.mark.parametrize(
    "written",
    [str.lower, lambda tag: "-".join(tag.split("-")[::-1]), lambda tag: "_".join(tag.split("-")[::-1]).lower()],
)
def test_letters_in_lower_case_or_at_the_end_count_the_same(scheme: Scheme, written: Callable[[str], str]) -> None:
    for rows in (IOB2, IOBES):
        one, other = ([[written(tag) for tag in row] for row in part] for part in rows)
        assert agreement(other, one, scheme) == agreement(rows[1], rows[0], scheme)


def test_what_a_scheme_refuses_is_told_in_either_case() -> None:
    assert misfit("iob2", ["b-X", "i-X", "o"]) is None and misfit("iob2", ["X-B", "X-I"]) is None
    assert misfit("iob2", ["u-X", "b-X"]) == "'u-X' is a tag of bilou"
    assert misfit("bilou", ["b-X", "i-X"]) == "no entity ends in them (E-X, S-X)"
