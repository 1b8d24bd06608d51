"""Make the files that a reproduction trains on from the published files: splits, cut-offs, generated pairs."""

from __future__ import annotations

import gzip
import lzma
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from random import Random

import numpy as np

from ...core.atomic import make_folder, write_file
from ...data.synthetic.listops import Tree, value, write
from ...io.directories.layout import write_json

LISTS = {"train": 16_000, "validation": 2_000, "test": 2_000}  # of the Long Range Arena; there 96,000 for training
SHORTEST, LONGEST, DEPTH, ARGUMENTS = 500, 2_000, 10, 10  # of these lists; lengths exclude both limits
FIRST_OPERATOR = "first_operator.json"
CUTOFF = 26  # actions in the longest SCAN command of the training split


def tinyshakespeare(files: Mapping[str, Path], out: Path) -> None:
    """The first nine tenths of the text for training, the last for validation, as nanoGPT divides it."""
    text = _read(files["input.txt"])
    first = int(0.9 * len(text))
    _write(out / "train.txt", text[:first])
    _write(out / "validation.txt", text[first:])


def reverse(files: Mapping[str, Path], out: Path) -> None:
    """Numbers below 50 and the same in reverse order, drawn as in JoeyNMT's tutorial from one generator with the seed
    42. There are 50,000 sequences of 1 to 25 for training, then 1,000 of 1 to 30 for validation and 1,000 for
    testing."""
    random = np.random.RandomState(42)
    for split, number, longest in (("train", 50_000, 25), ("validation", 1_000, 30), ("test", 1_000, 30)):
        lines = []
        for _ in range(number):
            words = [str(n) for n in random.randint(0, 50, random.randint(1, longest + 1))]
            lines.append(f"{' '.join(words)}\t{' '.join(reversed(words))}\n")
        _write(out / f"{split}.tsv", "".join(lines))


def listops(files: Mapping[str, Path], out: Path) -> None:
    """Lists drawn as the script of the Long Range Arena draws them: one that is too short or too long is drawn again, and no
    two are the same. `FIRST_OPERATOR` keeps how many test lists the first operator alone gives away."""
    lists = _lists(Random(0))
    drawn = {split: [next(lists) for _ in range(number)] for split, number in LISTS.items()}
    for split, rows in drawn.items():
        _write(out / f"{split}.tsv", "text\tlabel\n" + "".join(f"{text}\t{result}\n" for text, result in rows))
    write_json(out / FIRST_OPERATOR, {"accuracy": _first_operator(drawn["train"], drawn["test"])})


def scan(files: Mapping[str, Path], out: Path) -> None:
    """All commands of SCAN, divided by length: up to `CUTOFF` actions for training (one in twenty of them held out for
    validation), longer ones for testing."""
    pairs = []
    for path in files.values():
        for line in _read(path).splitlines():
            command, _, actions = line.removeprefix("IN: ").partition(" OUT: ")
            pairs.append((command, actions))
    short = [pair for pair in pairs if len(pair[1].split()) <= CUTOFF]
    long = [pair for pair in pairs if len(pair[1].split()) > CUTOFF]
    held_out = set(np.random.RandomState(0).permutation(len(short))[: len(short) // 20].tolist())
    splits = {
        "train": [pair for i, pair in enumerate(short) if i not in held_out],
        "validation": [pair for i, pair in enumerate(short) if i in held_out],
        "test": long,
    }
    for split, chosen in splits.items():
        _write(out / f"{split}.tsv", "".join(f"{command}\t{actions}\n" for command, actions in chosen))


PREPARATIONS: dict[str, Callable[[Mapping[str, Path], Path], None]] = {
    "tinyshakespeare": tinyshakespeare,
    "listops": listops,
    "reverse": reverse,
    "scan": scan,
}


def _lists(random: Random) -> Iterator[tuple[str, int]]:
    """Different lists with their values, without end."""
    seen = set()
    while True:
        tree, size = _tree(random, 1, LONGEST)
        if SHORTEST < size < LONGEST and (text := write(tree)) not in seen:
            seen.add(text)
            yield text, value(tree)


def _first_operator(train: Sequence[tuple[str, int]], test: Sequence[tuple[str, int]]) -> float:
    """The share of test lists whose value is the most frequent one that their first operator has in the training lists."""
    counts: dict[str, Counter[int]] = {}
    for text, result in train:
        counts.setdefault(text.split(" ", 1)[0], Counter())[result] += 1
    guesses = {operator: count.most_common(1)[0][0] for operator, count in counts.items()}
    return sum(guesses.get(text.split(" ", 1)[0]) == result for text, result in test) / len(test)


def _tree(random: Random, depth: int, room: int) -> tuple[Tree, int]:
    """A digit, or with probability 1/4 an operation on 2 to `ARGUMENTS` of them, and its size. An operation is given up once
    it has `room` tokens: it is too long then, whatever follows."""
    if depth == DEPTH or random.random() > 0.25:
        return random.randrange(10), 1
    size, arguments = 2, list[Tree]()
    for _ in range(random.randint(2, ARGUMENTS)):
        argument, more = _tree(random, depth + 1, room - size)
        arguments.append(argument)
        size += more
        if size >= room:
            break
    return (random.choice(("MIN", "MAX", "MED", "SM")), arguments), size


def _read(path: Path) -> str:
    content = path.read_bytes()
    if path.suffix == ".gz":
        content = gzip.decompress(content)
    elif path.suffix == ".xz":
        content = lzma.decompress(content)
    return content.decode("utf-8")


def _write(path: Path, text: str) -> None:
    """Write a file, which is the same each time. Raises ValueError if there is another of its name."""
    make_folder(path.parent)
    content = text.encode("utf-8")
    if path.exists() and path.read_bytes() != content:
        raise ValueError(f"{path} holds something else than the published data give, and is kept; choose another --out")
    write_file(path, content)
