"""BPE-dropout in C++ draws what Python draws."""

from __future__ import annotations

import math
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qkv.data.tokenizers.subword_regularization import MergeDropout, packed
from qkv.nn.kernels.native import bpe_dropout
from qkv.nn.kernels.native.bpe_dropout import BPEDropout

PIECES = ["a", "b", "c", "ab", "bc", "abc", "abab", "ca"]
MERGES = [("a", "b"), ("b", "c"), ("ab", "c"), ("a", "bc"), ("ab", "ab"), ("c", "a")]
VOCAB = {piece: i for i, piece in enumerate(PIECES)}
UNSPLIT = 9  # an added token, above the vocabulary
words = st.lists(st.lists(st.sampled_from([*VOCAB.values(), UNSPLIT]), min_size=1, max_size=5), max_size=6)


def both(p: float) -> tuple[MergeDropout, BPEDropout]:
    model = {"vocab": VOCAB, "merges": MERGES, "continuing_subword_prefix": None}
    python = MergeDropout(model, p, {UNSPLIT, VOCAB["ca"]})
    if python._kernel is None:
        pytest.skip("no C++ compiler, and no prebuilt kernel")
    return python, python._kernel


@given(
    texts=st.lists(st.tuples(words, st.one_of(st.integers(0, 9), st.integers(0, 2**64 - 1))), max_size=5),
    p=st.sampled_from([1e-12, 0.1, 0.5, 0.99]),
)
def test_draws_what_python_draws(texts: list[tuple[list[list[int]], int]], p: float) -> None:
    python, kernel = both(p)
    flat = [
        packed([i for word in text for i in word], [n for n, word in enumerate(text) for _ in word])
        for text, _ in texts
    ]
    expected = [python.sample([tuple(word) for word in text], Random(seed)) for text, seed in texts]
    assert kernel.sample(flat, [seed for _, seed in texts]) == expected


def test_a_long_text_needs_more_than_the_generator_holds() -> None:
    """Python's generator makes 624 words at a time, two for each draw."""
    python, kernel = both(0.9)
    text = [tuple(VOCAB[piece] for piece in ("abab", "abc"))] * 2000
    flat = packed([i for word in text for i in word], [n for n, word in enumerate(text) for _ in word])
    assert kernel.sample([flat], [2**40 + 1]) == [python.sample(text, Random(2**40 + 1))]


def test_without_a_kernel_python_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    python, kernel = both(0.5)
    text, seeds = packed([VOCAB["abab"], VOCAB["abc"]], [0, 1]), [*range(20)]
    drawn = kernel.sample([text] * 20, seeds)
    monkeypatch.setattr(bpe_dropout, "library", lambda name: None)
    alone = MergeDropout(
        {"vocab": VOCAB, "merges": MERGES, "continuing_subword_prefix": None}, 0.5, {UNSPLIT, VOCAB["ca"]}
    )
    assert alone._kernel is None and alone.sample_texts([text] * 20, seeds) == drawn
    assert python.sample_texts([text], [-3]) == [python.sample([(VOCAB["abab"],), (VOCAB["abc"],)], Random(-3))]


def test_a_piece_that_contains_itself_is_refused() -> None:
    both(0.5)
    assert BPEDropout.of([(0, 1)], [1], [True], math.log1p(-0.5)) is None
    assert BPEDropout.of([], [], [], math.log1p(-0.5)) is not None


@pytest.mark.parametrize("text", [[1, 5, 0, 1], [3, 2, 0, 1], [1, -1, 0], [-1], [1, 1, 0, 0], []], ids=str)
def test_texts_of_another_form_are_refused(text: list[int]) -> None:
    kernel = BPEDropout.of([(0, 1)], [2], [True], -0.1)
    if kernel is None:
        pytest.skip("needs a C++ compiler or prebuilt kernels")
    with pytest.raises(ValueError, match="the number of its words"):
        kernel.sample([np.array(text, np.int32).tobytes()], [0])
    with pytest.raises(ValueError, match="1 texts need a seed each; got 0"):
        kernel.sample([np.array([1, 2, 0, 1], np.int32).tobytes()], [])
