"""A word compared between texts by the model that comes with the package."""

from __future__ import annotations

from functools import cache

import pytest
import torch
from torch.nn.functional import cosine_similarity

import qkv
from qkv.nn.activations import record
from qkv.runs.inference.look.comparing import compare
from qkv.runs.inference.run import Run

SENSES = [
    "He began to run down the road",
    "They run a small shop in the town",
    "The colors run in the wash",
    "a long run of bad luck",
]


@cache
def english() -> Run:
    return qkv.load("small-english", "cpu")


def test_four_senses_of_run_move_apart_and_each_has_its_movers() -> None:
    found = compare(english(), SENSES, "run")
    alike = found.measured.alike
    assert found.names == ("1", "2", "3", "4") and alike.shape == (5, 4, 4)
    torch.testing.assert_close(alike[0], torch.ones(4, 4)), "the static vector is the same in all"
    mean = [float(alike[layer].triu(1).sum()) / 6 for layer in range(5)]
    assert mean == sorted(mean, reverse=True) and mean[-1] < 0.85
    assert found.movers(2)[0][0] == "colors" and {word for word, *_ in found.movers(2)[:2]} == {"colors", "The"}
    assert all(moved < 1e-6 for word, moved, _ in found.movers(2) if word in ("in", "wash")), "words after it"


def test_a_word_of_several_tokens_is_their_mean_and_that_is_said() -> None:
    run, texts = english(), ["a fluffy blue creature ran", "an old creature slept"]
    found = compare(run, texts)
    assert found.word == "creature" and found.tokens == (("▁creat", "ure"),) * 2
    vectors = []
    for text, place in zip(texts, ([6, 7], [3, 4]), strict=True):
        ids = torch.tensor([run.encode(text)])
        with torch.no_grad(), record(run.model, "decoder.layers.3.output") as seen:
            run.model(ids)
        vectors.append(seen["decoder.layers.3.output"][0, place].mean(0))
    expected = cosine_similarity(*vectors, dim=0)
    torch.testing.assert_close(found.measured.alike[-1, 0, 1], expected, atol=1e-5, rtol=1e-4)
    assert {word for word, *_ in found.movers(0)[:2]} == {"fluffy", "blue"}
    figure = run.look(texts, compare=True)
    assert "creature is 2 tokens (▁creat ure); its vector is their mean" in figure.views[0].notes
    assert figure.views[1].focus == {"text": [3, 4]}
    titles = [panel["title"] for panel in figure.views[1].panels]
    assert titles[:4] == [
        "How alike creature is in its contexts",
        "How near creature stays to its static vector",
        "The words that move creature most",
        "What moves creature in context 2",
    ]
    assert "creature (2) is moved most by" in dict(figure.views[1].facts)


def test_every_place_of_a_word_is_a_context() -> None:
    assert compare(english(), "we run and they run", "run").names == ("1.1", "1.2")


@pytest.mark.parametrize(
    ("texts", "word", "said"),
    [
        (
            ["the bank", "the shore"],
            "bank",
            "the word 'bank' does not occur in 'the shore'; compare texts that all have it",
        ),
        (["a cat", "the dog"], None, "the texts have no word in common; name one that all have"),
        ([], "bank", "there are no texts to compare a word between; give two"),
        (["the bank"], "bank", "a word is compared between 2 and 8 places; 'bank' occurs in 1 here"),
    ],
    ids=str,
)
def test_what_cannot_be_compared_is_said(texts: list[str], word: str | None, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        compare(english(), texts, word)
