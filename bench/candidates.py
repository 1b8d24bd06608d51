"""Multiple choice from parallel text: `python -m bench.candidates OUT.jsonl SOURCE TARGET --among 4 --seed 0`.

Each line of SOURCE is a text, and the same line of TARGET its translation. The other choices are about as long, so
lengths do not reveal it.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from random import Random

from qkv.data.files.compressed import open_bytes

_ALIKE = (
    200  # of the translations in the order of their lengths, how many around the right one the others are drawn from
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--among", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    sources, targets = (bytes(open_bytes(path)).decode("utf-8").splitlines() for path in (given.source, given.target))
    random = Random(given.seed)
    given.out.parent.mkdir(parents=True, exist_ok=True)
    with given.out.open("w", encoding="utf-8") as out:
        for i, others in enumerate(as_long(targets, given.among - 1, random)):
            choices = [targets[i], *others]
            random.shuffle(choices)
            line = {"text": sources[i], "choices": choices, "answer": targets[i]}
            out.write(json.dumps(line, ensure_ascii=False) + "\n")


def as_long(texts: list[str], count: int, random: Random) -> list[list[str]]:
    """For each text `count` others of about its length."""
    order = sorted(range(len(texts)), key=lambda i: (len(texts[i]), i))
    drawn: dict[int, list[str]] = {}
    for place, i in enumerate(order):
        around = order[max(0, place - _ALIKE // 2) : place + _ALIKE // 2]
        different = sorted({texts[j] for j in around} - {texts[i]})
        drawn[i] = random.sample(different, count)
    return [drawn[i] for i in range(len(texts))]


if __name__ == "__main__":
    main()
