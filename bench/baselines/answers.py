"""A baseline for questions about a text: the words beside those that the question has."""

from __future__ import annotations

import argparse
import math
import re
from collections import Counter
from typing import Any

from qkv.core.metrics.squad import exact, token_f1
from qkv.data.readers.squad import Questions

_WORD = re.compile(r"\w+")
_NEAR = 8  # words on either side in which the question's are looked for


def overlap(words: list[str]) -> dict[str, Any]:
    """The stretch of `--words` words without a word of the question that has most of them near, each by how rare it is."""
    parser = argparse.ArgumentParser(prog="python -m bench.baselines overlap", description=overlap.__doc__)
    parser.add_argument("test")
    parser.add_argument("--words", type=int, default=2)
    given = parser.parse_args(words)
    source = Questions(path=given.test, test_path=given.test, validation_path=given.test)
    test = list(source.examples("test", shuffle=False))
    contexts = {example["context"] for example in test}
    found_in = Counter(word for context in contexts for word in set(_words(context)))
    weights = {word: math.log(len(contexts) / n) + 0.1 for word, n in found_in.items()}
    pairs = [(_best(one["context"], one["question"], weights, given.words), one["answers"]) for one in test]
    return {
        "name": "the words nearest to words of the question",
        "exact": sum(exact(*pair) for pair in pairs) / len(pairs),
        "token_f1": sum(token_f1(*pair) for pair in pairs) / len(pairs),
    }


COMMANDS = {"overlap": overlap}


def _words(text: str) -> list[str]:
    return [word.lower() for word in _WORD.findall(text)]


def _best(context: str, question: str, weights: dict[str, float], size: int) -> str:
    places = list(_WORD.finditer(context))
    words = [place[0].lower() for place in places]
    asked = set(_words(question))
    best, answer = -1.0, ""
    for i in range(len(places) - size + 1):
        inside = words[i : i + size]
        if asked & set(inside):
            continue
        near = {*words[max(0, i - _NEAR) : i], *words[i + size : i + size + _NEAR]} & asked
        score = sum(weights[word] for word in near) + 0.1 * sum(weights[word] for word in inside)
        if score > best:
            best, answer = score, context[places[i].start() : places[i + size - 1].end()]
    return answer
