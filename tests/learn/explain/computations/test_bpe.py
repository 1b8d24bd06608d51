"""The merges of `qkv explain bpe`."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

from run_untrained import of

from qkv.data.tokenizers.tokenizer import train
from qkv.data.tokenizers.training.spec import TokenizerSpec
from qkv.learn.explain.computations import bpe
from qkv.learn.explain.of_run import subject


def test_each_merge_is_the_most_frequent_pair():
    explanation = bpe.example()
    corpus = [list(word) for word in ("cats", "mats", "mate", "ate")]
    for step in explanation.steps[1:-1]:
        counts = Counter(pair for word in corpus for pair in pairwise(word))
        pairs, after = step.tables
        shown = {tuple(row.split(" + ")): value for row, (value,) in zip(pairs.rows, pairs.values, strict=True)}
        assert shown == {pair: float(count) for pair, count in counts.items()}
        left, right = pairs.rows[0].split(" + ")
        assert counts[left, right] == max(counts.values()) and step.title.endswith(f"{left} + {right} → {left}{right}")
        corpus = [f" {' '.join(word)} ".replace(f" {left} {right} ", f" {left}{right} ").split() for word in corpus]
        assert [symbols for (symbols,) in after.values] == [" ".join(word) for word in corpus]
    assert explanation.steps[1].title == "Merge 1: a + t → at" and explanation.steps[1].tables[0].values[0] == (4.0,)
    assert explanation.steps[-1].tables[0].values[-1] == ("m + at", "mat e s")


def test_a_run_shows_its_own_merges():
    for kind, title in (("bpe", "BPE"), ("wordpiece", "WordPiece"), ("unigram", "Unigram")):
        spec = TokenizerSpec.from_dict(
            {"kind": kind, "vocab_size": 60 if kind != "bpe" else 280, "min_frequency": 1}
            if kind != "unigram"
            else {"kind": kind, "vocab_size": 40}
        )
        tokenizer = train(spec, iter(["the cat sat on the mat", "the cats and mats"] * 20))
        run = of("gpt2", tokenizer, "continue", max_positions=32)
        explanation = bpe.of(subject(run, "the mats"))
        assert explanation.title.startswith(title)
        pieces = " ".join(str(row[0]) for row in explanation.steps[0].tables[0].values).split()
        assert pieces == tokenizer.raw.encode("the mats", add_special_tokens=False).tokens
        said = [one for step in explanation.steps[1:] for one in step.text.partition(": ")[2].removesuffix(".").split()]
        assert said == pieces
