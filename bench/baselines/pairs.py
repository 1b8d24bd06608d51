"""Baselines for pairs of texts: the source itself, its beginning, or what belongs to the most similar one."""

from __future__ import annotations

import argparse
from typing import Any

from qkv.core.metrics import text as metrics
from qkv.data.readers.parallel_text import Pairs


def copied(words: list[str]) -> dict[str, Any]:
    """Two files, of which line n of the one translates line n of the other."""
    parser = argparse.ArgumentParser(prog="python -m bench.baselines copied", description=copied.__doc__)
    parser.add_argument("source")
    parser.add_argument("target")
    parser.add_argument("--tokenize", default="13a")
    given = parser.parse_args(words)
    sources, targets = _sides(given.source, given.target)
    bleu, exact = metrics.bleu(sources, targets, given.tokenize), metrics.exact_match(sources, targets)
    return {"name": "the source, unchanged", "bleu": bleu.value, "exact_match": exact.value}


def lead(words: list[str]) -> dict[str, Any]:
    """Two files, of which line n of the one sums up line n of the other: the first `--words` of it from word `--skip` on."""
    parser = argparse.ArgumentParser(prog="python -m bench.baselines lead", description=lead.__doc__)
    parser.add_argument("source")
    parser.add_argument("target")
    parser.add_argument("--words", type=int, default=3)
    parser.add_argument("--skip", type=int, default=0)
    given = parser.parse_args(words)
    sources, targets = _sides(given.source, given.target)
    said = [" ".join(source.split()[given.skip : given.skip + given.words]) for source in sources]
    return {"name": f"its words {given.skip + 1} to {given.skip + given.words}", **_rouge(said, targets)}


def nearest(words: list[str]) -> dict[str, Any]:
    """Two files to learn from and two to be judged by: the target of the most similar source, by cosines of TF-IDF."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    parser = argparse.ArgumentParser(prog="python -m bench.baselines nearest", description=nearest.__doc__)
    for name in ("source", "target", "test_source", "test_target"):
        parser.add_argument(name)
    given = parser.parse_args(words)
    (known, theirs), (sources, targets) = (
        _sides(given.source, given.target),
        _sides(given.test_source, given.test_target),
    )
    bag = TfidfVectorizer(ngram_range=(1, 2), token_pattern=r"\S+", sublinear_tf=True)
    table = bag.fit_transform(known)
    found = (bag.transform(sources) @ table.T).argmax(1).A1
    said = [theirs[i] for i in found]
    return {"name": "the name of the most similar method", **_rouge(said, targets)}


COMMANDS = {"copied": copied, "lead": lead, "nearest": nearest}


def _sides(source: str, target: str) -> tuple[list[str], list[str]]:
    table = Pairs(source=source, target=target).open("train")
    pairs = [one for i in range(len(table)) if isinstance(one := table[i], dict)]
    return [one["source"] for one in pairs], [one["target"] for one in pairs]


def _rouge(said: list[str], targets: list[str]) -> dict[str, float]:
    figures = {kind: metrics.rouge(said, targets, kind).value for kind in ("rouge1", "rougeL")}
    return {**figures, "exact_match": metrics.exact_match(said, targets).value}
