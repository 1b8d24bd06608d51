"""Code edits: `python -m bench.edits OUT_DIR --seed 0` renames a variable in functions of Python's standard library.

A source line is `function # old > new`, and the same line of the target is the function in which the parameter or variable
`old` is called `new`. Functions stand in one line, with ⏎ for its ends. The files are train, validation and test, with the
endings .source and .target; functions of one module are in one of them.
"""

from __future__ import annotations

import argparse
import ast
import io
import keyword
import sysconfig
import tokenize
import warnings
import zlib
from collections.abc import Iterator
from pathlib import Path
from random import Random

LONGEST, SHORTEST = 300, 40  # characters of a function
NAMES = 2  # edits of a function
SHARES = (("test", 3), ("validation", 3), ("train", 94))  # % of modules


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    lines: dict[str, list[tuple[str, str]]] = {name: [] for name, _ in SHARES}
    library = Path(sysconfig.get_path("stdlib"))
    random = Random(given.seed)
    for path in sorted(library.rglob("*.py")):
        name = path.relative_to(library).as_posix()
        if "site-packages" not in name and "/test" not in name and not name.startswith("test"):
            lines[split_of(name)] += edits(path, random)
    for split, pairs in lines.items():
        random.shuffle(pairs)
        for ending, texts in zip(("source", "target"), zip(*pairs, strict=True), strict=True):
            (given.out / f"{split}.{ending}").write_text("\n".join(texts) + "\n", encoding="utf-8")
        print(f"{split}: {len(pairs):,} edits")


def split_of(name: str) -> str:
    place = zlib.crc32(name.encode()) % 100
    for split, share in SHARES:
        place -= share
        if place < 0:
            return split
    raise AssertionError(name)


def edits(path: Path, random: Random) -> Iterator[tuple[str, str]]:
    """Sources and targets of the functions of a module."""
    try:
        text = path.read_text(encoding="utf-8")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return
    words = sorted({node.id for node in ast.walk(tree) if isinstance(node, ast.Name)})
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef):
            continue
        function = ast.unparse(node)
        if not SHORTEST <= len(function) <= LONGEST:
            continue
        bound = [argument.arg for argument in node.args.args if argument.arg not in ("self", "cls")]
        bound += [n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]
        inside = {token.string for token in _tokens(function)}
        free = [word for word in words if word not in inside and not keyword.iskeyword(word)]
        old = sorted(set(bound))
        for name in random.sample(old, min(NAMES, len(old))):
            if free:
                new = random.choice(free)
                edited = renamed(function, name, new)
                yield _line(f"{function} # {name} > {new}"), _line(edited)


def renamed(function: str, old: str, new: str) -> str:
    """Return the function with a variable renamed; attributes of the same name stay."""
    lines = function.splitlines(keepends=True)
    places = []
    before = ""
    for token in _tokens(function):
        if token.type == tokenize.NAME and token.string == old and before != ".":
            places.append(token.start)
        before = token.string
    for row, column in reversed(places):
        line = lines[row - 1]
        lines[row - 1] = line[:column] + new + line[column + len(old) :]
    return "".join(lines)


def _tokens(function: str) -> list[tokenize.TokenInfo]:
    return list(tokenize.generate_tokens(io.StringIO(function).readline))


def _line(text: str) -> str:
    return text.replace("\n", " ⏎ ")


if __name__ == "__main__":
    main()
