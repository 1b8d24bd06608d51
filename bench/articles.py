"""Files like SQuAD's, split by article: `python -m bench.articles OUT FILE … --validation 4 --test 10`.

The last articles of the first file are for testing, and the articles before them for validation. All others are for
training; files in other languages add only articles that are not translations of the held-out ones. `contexts.txt` has
the texts that are trained on, one a line.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from qkv.data.files.compressed import open_bytes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--validation", type=int, default=4)
    parser.add_argument("--test", type=int, default=10)
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    all_ = [json.loads(bytes(open_bytes(path)))["data"] for path in given.files]
    size = len(all_[0]) - given.validation - given.test
    parts = {
        "train": [article for articles in all_ for article in articles[:size]],
        "validation": all_[0][size : size + given.validation],
        "test": all_[0][size + given.validation :],
    }
    for name, articles in parts.items():
        (given.out / f"{name}.json").write_text(json.dumps({"data": articles}), encoding="utf-8")
    contexts = [part["context"] for article in parts["train"] for part in article["paragraphs"]]
    lines = (" ".join(context.split()) + "\n" for context in contexts)
    (given.out / "contexts.txt").write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
