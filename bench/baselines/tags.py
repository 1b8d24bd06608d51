"""Baselines for tags of words and of symbols: the commonest tag, the commonest of each word, and a window of neighbors."""

from __future__ import annotations

import argparse
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from qkv.core.metrics.entities import agreement, scheme_of
from qkv.data.source import Example, Source

Tags = list[str]


def word_tags(words: list[str]) -> dict[str, Any]:
    """Each word gets the tag that it has most often in the training data, an unknown one the commonest tag of rare words."""
    source = _source(words)
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for example in source.examples("train", shuffle=False):
        for word, tag in zip(example["words"], example["tags"], strict=True):
            counts[word][tag] += 1
    rare = Counter(tag for tags in counts.values() if tags.total() == 1 for tag in tags)
    unknown = rare.most_common(1)[0][0]
    best = {word: tags.most_common(1)[0][0] for word, tags in counts.items()}
    test = list(source.examples("test", shuffle=False))
    found = [[best.get(word, unknown) for word in example["words"]] for example in test]
    return {"name": "the most frequent tag of each word", **_figures(found, test)}


def window_tags(words: list[str]) -> dict[str, Any]:
    """Logistic regression on the words themselves, their forms and ends, and the words beside them."""
    from sklearn.feature_extraction import DictVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    source = _source(words)
    train, test = (list(source.examples(split, shuffle=False)) for split in ("train", "test"))
    model = make_pipeline(DictVectorizer(), LogisticRegression(C=1, max_iter=100))
    model.fit([seen for example in train for seen in _seen(example["words"])], [t for e in train for t in e["tags"]])
    found = [model.predict(list(_seen(example["words"]))).tolist() for example in test]
    return {"name": "logistic regression on a word's form and neighbors", **_figures(found, test)}


def commonest_symbol(words: list[str]) -> dict[str, Any]:
    """The commonest label of the training data everywhere."""
    source = _source(words)
    counts = Counter(tag for example in source.examples("train", shuffle=False) for tag in example["tags"] if tag)
    test = list(source.examples("test", shuffle=False))
    found = [[counts.most_common(1)[0][0]] * len(example["tags"]) for example in test]
    return {"name": "the most frequent label", **_figures(found, test)}


def window_symbols(words: list[str], reach: int = 7, most: int = 150_000) -> dict[str, Any]:
    """Logistic regression on the symbol and its `reach` neighbors on either side, one-hot, from `most` places."""
    from sklearn.linear_model import LogisticRegression

    source = _source(words)
    train, test = (list(source.examples(split, shuffle=False)) for split in ("train", "test"))
    symbols = {symbol: i for i, symbol in enumerate(sorted({s for e in train for s in e["words"]}), 1)}
    pairs = [(_windows(example["words"], symbols, reach), example["tags"]) for example in train]
    seen, tags = np.concatenate([p[0] for p in pairs]), np.array([tag for _, own in pairs for tag in own])
    known = np.random.default_rng(0).permutation(np.flatnonzero(tags != ""))[:most]
    model = LogisticRegression(max_iter=60).fit(_one_hot(seen[known], len(symbols)), tags[known])
    found = [
        model.predict(_one_hot(_windows(example["words"], symbols, reach), len(symbols))).tolist() for example in test
    ]
    return {"name": f"logistic regression on {2 * reach + 1} neighbors", **_figures(found, test)}


COMMANDS = {
    "word-tags": word_tags,
    "window-tags": window_tags,
    "commonest-symbol": commonest_symbol,
    "window-symbols": window_symbols,
}


def _source(words: list[str]) -> Source:
    """The source of a recipe, in JSON: `{"kind": "columns", "path": …, "test_path": …}`."""
    parser = argparse.ArgumentParser(prog="python -m bench.baselines", description=_source.__doc__)
    parser.add_argument("source", type=json.loads)
    from qkv.runs import tasks  # noqa: F401  # the kinds of sources

    return Source.from_dict(parser.parse_args(words).source)


def _figures(found: Sequence[Tags], test: Sequence[Example]) -> dict[str, float]:
    true = [example["tags"] for example in test]
    pairs = [
        (mine, theirs) for a, b in zip(found, true, strict=True) for mine, theirs in zip(a, b, strict=True) if theirs
    ]
    figures = {"accuracy": sum(mine == theirs for mine, theirs in pairs) / len(pairs)}
    scheme = scheme_of({tag for tags in true for tag in tags})
    return figures if scheme == "plain" else figures | {"entity_f1": agreement(found, true, scheme).f1}


def _seen(words: Sequence[str]) -> Iterable[dict[str, Any]]:
    """What a linear model knows of each word."""
    around = ["<s>", *words, "</s>"]
    for i, word in enumerate(words, 1):
        yield {
            **{f"{at}={around[i + at].lower()}": 1 for at in (-1, 0, 1)},
            **{f"end {word[-n:].lower()}": 1 for n in (2, 3)},
            **{f"capital {at}": around[i + at][:1].isupper() for at in (-1, 0, 1)},
            "digit": any(c.isdigit() for c in word),
            "upper": word.isupper(),
            "first": i == 1,
            "sign": word[:1],
        }


def _windows(words: Sequence[str], symbols: dict[str, int], reach: int) -> np.ndarray:
    """(n, 2 reach + 1) numbers of the symbols around each place, 0 beyond the ends."""
    padded = np.pad([symbols.get(symbol, 0) for symbol in words], reach)
    return np.lib.stride_tricks.sliding_window_view(padded, 2 * reach + 1)


def _one_hot(seen: np.ndarray, symbols: int) -> Any:
    from scipy.sparse import csr_matrix

    rows, width = seen.shape
    columns = (seen + np.arange(width) * (symbols + 1)).ravel()
    return csr_matrix(
        (np.ones(seen.size, np.float32), columns, np.arange(0, seen.size + 1, width)), (rows, width * (symbols + 1))
    )
