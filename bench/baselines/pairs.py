"""A baseline for pairs: the source itself in place of its translation."""

from __future__ import annotations

import argparse
from typing import Any

from qkv.data.pairs import Pairs
from qkv.run import metrics


def copied(words: list[str]) -> dict[str, Any]:
    """Two files, of which line n of the one translates line n of the other."""
    parser = argparse.ArgumentParser(prog="python -m bench.baselines copied", description=copied.__doc__)
    parser.add_argument("source")
    parser.add_argument("target")
    parser.add_argument("--tokenize", default="13a")
    given = parser.parse_args(words)
    table = Pairs(source=given.source, target=given.target).open("train")
    pairs = [one for i in range(len(table)) if isinstance(one := table[i], dict)]
    sources, targets = ([one[side] for one in pairs] for side in ("source", "target"))
    bleu, exact = metrics.bleu(sources, targets, given.tokenize), metrics.exact_match(sources, targets)
    return {"name": "the source as it stands", "bleu": bleu.value, "exact_match": exact.value}


COMMANDS = {"copied": copied}
