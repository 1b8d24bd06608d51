"""ListOps: expressions have the value that they say, the lengths that were asked for, and the files' form."""

from __future__ import annotations

import gzip
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qkv.data.synthetic.listops import ListOps, Tree, binary, read, size, value, write

FILES = Path(__file__).parents[4] / "shared" / "data" / "listops"


@pytest.mark.parametrize(
    "text, answer",
    [
        ("[MAX 2 9 [MIN 4 7 ] 0 ]", 9),
        ("[MED 3 1 2 ]", 2),
        ("[MED 1 2 5 8 ]", 3),
        ("[SM 9 8 7 ]", 4),
        ("[FIRST 8 [LAST 1 2 ] ]", 8),
        ("( ( ( [MAX 2 ) ( ( ( [FIRST 9 ) 6 ) ] ) ) ] )", 9),
        ("7", 7),
    ],
)
def test_expressions_have_their_values(text: str, answer: int) -> None:
    assert value(read(text)) == answer


trees = st.recursive(
    st.integers(0, 9),
    lambda inner: st.tuples(st.sampled_from(["MIN", "MAX", "MED", "SM"]), st.lists(inner, min_size=1, max_size=4)),
    max_leaves=20,
)


@given(trees)
def test_both_forms_read_back(tree: Tree) -> None:
    assert read(write(tree)) == tree == read(binary(tree))
    assert size(tree) == len(write(tree).split())


@pytest.mark.parametrize("text", ["", "[MAX 1 2", "1 ]", "[MAX ]", "[MOX 1 ]", "12", "1 2", "[MAX 1 ] [MIN 2 ]"])
def test_what_is_no_expression(text: str) -> None:
    with pytest.raises(ValueError, match="ListOps"):
        read(text)


@pytest.mark.parametrize("sizes", [(4, 30, 3, 4), (200, 400, 10, 10), (500, 600, 10, 10)])
def test_examples_have_the_sizes_asked_for(sizes: tuple[int, int, int, int]) -> None:
    shortest, longest, depth, arguments = sizes
    source = ListOps(shortest=shortest, longest=longest, depth=depth, arguments=arguments, train=20)
    for example in source.examples("train"):
        tree = read(example["source"])
        assert shortest <= size(tree) <= longest and deep(tree) <= depth
        assert str(value(tree)) == example["target"] and fewest(tree) >= 1


def deep(tree: Tree) -> int:
    return 0 if isinstance(tree, int) else 1 + max(map(deep, tree[1]))


def fewest(tree: Tree) -> int:
    return 9 if isinstance(tree, int) else min(len(tree[1]), *map(fewest, tree[1]), 9)


def test_splits_share_nothing_and_seeds_differ() -> None:
    source = ListOps(longest=12, depth=2, arguments=3, train=300, validation=50, test=50)
    splits = [{e["source"] for e in source.examples(split)} for split in ("train", "validation", "test")]
    assert len(splits[1]) == len(splits[2]) == 50
    assert not splits[0] & splits[1] and not splits[0] & splits[2] and not splits[1] & splits[2]
    assert [*source.examples("train", seed=1)] != [*source.examples("train", seed=2)]
    assert source.draw(Random(3), "test") == source.draw(Random(3), "test")


@pytest.mark.parametrize(
    "fields, said",
    [
        ({"operations": ["MUX"]}, "did you mean 'MAX'"),
        ({"operations": []}, "some of MIN"),
        ({"shortest": 20, "longest": 10}, "less than shortest"),
        ({"shortest": 50, "depth": 1, "arguments": 5}, "lower shortest to 7"),
    ],
)
def test_sizes_that_cannot_be(fields: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        ListOps(**fields)


@pytest.mark.skipif(not FILES.is_dir(), reason="the published files are not there (../shared/data/listops)")
@pytest.mark.parametrize("name", ["test_d8.tsv.gz", "test_d20s.tsv.gz"])
def test_the_published_labels_are_the_values(name: str) -> None:
    with gzip.open(FILES / name, "rt") as lines:
        for _, line in zip(range(2000), lines, strict=False):
            label, text = line.rstrip("\n").split("\t")
            assert str(value(read(text))) == label, text
            assert binary(read(text)) == text.strip()


def test_any_depth_is_met_at_once() -> None:
    assert ListOps(depth=10**9, arguments=2**40).depth == 10**9
    with pytest.raises(ValueError, match="lower shortest to 4 or raise depth"):
        ListOps(depth=1, arguments=2, shortest=5)
