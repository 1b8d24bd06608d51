"""Java methods and their names, for summarizing: `python -m bench.methods OUT FILE …`, a method a line of each file.

`NAME.body` has each method with its words apart and its name left out, `NAME.name` the words of its name, after each file's
NAME: `train.java-cs.txt.java.gz` gives `train.body`. To name a method is to sum up what it does, extremely (Allamanis et al.
2016, "A Convolutional Attention Network for Extreme Summarization of Source Code").

    public int size() {return mSize;}      ->      public int _ ( ) { return m size ; }      size
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from qkv.data.files.compressed import open_bytes

_DECLARED = re.compile(r"([A-Za-z_]\w*)\s*\(")
_TOKEN = re.compile(r"[A-Za-z]+|\d+|\S")
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|\S")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("files", type=Path, nargs="+")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    for file in given.files:
        lines = bytes(open_bytes(file)).decode("utf-8").splitlines()
        pairs = [pair for line in lines if (pair := summed_up(line)) is not None]
        for side, part in (("body", 0), ("name", 1)):
            text = "".join(f"{pair[part]}\n" for pair in pairs)
            (given.out / f"{file.name.split('.')[0]}.{side}").write_text(text, encoding="utf-8")


def summed_up(method: str) -> tuple[str, str] | None:
    """The method without its name, and its name, in words; None for what declares nothing."""
    found = _DECLARED.search(method)
    if found is None:
        return None
    name = found[1]
    hidden = re.sub(rf"\b{name}\b", " _ ", method)
    return in_words(hidden), in_words(name.replace("_", " "))


def in_words(code: str) -> str:
    """Identifiers fall into the words that capitals set apart; everything in small letters."""
    return " ".join(word for token in _TOKEN.findall(code) for word in _WORD.findall(token)).lower()


if __name__ == "__main__":
    main()
