"""Hostile and broken text files: tables, JSON lines, running text, series, plain and packed.

`mutants(seed, n)` gives them by name, `check` says what is wrong with how one is met: None, or a sentence. A file is to
be read, or refused by one sentence that names it; if what is damaged may be left out, the rest is to be read.
"""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import random
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import qkv.runs.tasks  # noqa: F401  # registers the kinds of sources that tasks read
from qkv.data.source import SPLITS, Source

SECONDS = 5.0  # for one file of some kilobytes on a busy machine; a healthy one takes milliseconds
PACKINGS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": partial(gzip.compress, mtime=0),
    ".xz": lzma.compress,
    ".bz2": bz2.compress,
}
ROWS = 60


def _lines(make: Callable[[int], Any]) -> bytes:
    rows = (make(i) for i in range(ROWS))
    return "".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows).encode()


def _chat(i: int) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": f"say {i}"}, {"role": "assistant", "content": f"{i} é 😀"}]}


def _question(i: int) -> dict[str, Any]:
    return {"context": f"it is number {i} of all", "question": f"which? {i}", "answer": str(i), "start": 13}


# name of a file → its content, and what reads it
SOUND: dict[str, tuple[bytes, dict[str, Any]]] = {
    "plain.tsv": (_lines(lambda i: f'"Hi," he said {i}.\tEr sagte „{i}“.'), {"kind": "pairs"}),
    "quoted.tsv": (_lines(lambda i: f'"say ""{i}"""\t"{i}\nzwei"'), {"kind": "pairs"}),
    "pairs.csv": (b"source,target\n" + _lines(lambda i: f'"one, {i}",eins {i}'), {"kind": "pairs"}),
    "pairs.jsonl": (_lines(lambda i: {"source": f"s{i}", "target": f"t{i} é"}), {"kind": "pairs"}),
    "chat.jsonl": (_lines(_chat), {"kind": "jsonl", "messages": "messages"}),
    "text.txt": (_lines(lambda i: f"line {i} with 漢字\n" * 3), {"kind": "text"}),
    "lines.txt": (_lines(lambda i: f"line {i}"), {"kind": "text", "documents": "line"}),
    "blocks.txt": (_lines(lambda i: f"a {i}\nb {i}\n"), {"kind": "text", "documents": "block"}),
    "labelled.csv": (b"text,label\n" + _lines(lambda i: f'"film {i}, good",{i % 2}'), {"kind": "labelled"}),
    "labels.txt": (_lines(lambda i: f"{i % 2} film {i}"), {"kind": "labelled"}),
    "choices.jsonl": (_lines(lambda i: {"text": f"q{i}", "choices": ["a", "b"], "answer": i % 2}), {"kind": "choices"}),
    "tags.conllu": (_lines(lambda i: f"1\tword{i}\t_\tNOUN\n2\t.\t_\tPUNCT\n"), {"kind": "columns"}),
    "questions.jsonl": (_lines(_question), {"kind": "questions"}),
    "series.csv": (b"a,b\n" + _lines(lambda i: f"{i},{i / 7}"), {"kind": "series", "history": 4, "horizon": 2}),
}
PIECES = [
    b"\0", b"\0" * 3000, b"\xff", b"\xff\xfe", b"\xef\xbb\xbf", b"\r", b"\n", b"\t", b'"', b'""', b'\t"', b",", b"\\ud800",
    b'"\\ud800"', b"\xed\xa0\x80", b"[" * 20_000, b'{"a":' * 20_000, b"9" * 5000, b"NaN", b"1e999", b"null", b"x" * 150_000,
    "\u2028\x85\x0b".encode(), b"\xc3", b"-1", b"true", b'{"source": 1}', b"\x1b[2J", b"\x1a",
]  # fmt: skip


def mutants(seed: int, n: int) -> Iterator[tuple[str, bytes]]:
    """The same for the same seed: names of `SOUND` with a packing's ending, and what stands in such a file."""
    chance = random.Random(seed)
    names = sorted(SOUND)
    for _ in range(n):
        name, packing = chance.choice(names), chance.choice(["", "", "", *PACKINGS])
        content = SOUND[name][0]
        for _ in range(chance.choice([1, 1, 2, 5])):
            content = _mutated(content, chance)
        packed = PACKINGS[packing](content)
        if packing and chance.random() < 0.6:
            packed = chance.choice([_cut, _flipped])(packed, chance)
        yield name + packing, packed


def _mutated(content: bytes, chance: random.Random) -> bytes:
    return chance.choice([_cut, _flipped, _put, _put, _put, _swapped, _recoded])(content, chance)


def _cut(content: bytes, chance: random.Random) -> bytes:
    return content[: chance.randrange(len(content) + 1)]


def _flipped(content: bytes, chance: random.Random) -> bytes:
    made = bytearray(content)
    for _ in range(chance.choice([1, 3, 30]) if made else 0):
        made[chance.randrange(len(made))] ^= 1 << chance.randrange(8)
    return bytes(made)


def _put(content: bytes, chance: random.Random) -> bytes:
    at = chance.choice([0, chance.randrange(len(content) + 1), len(content)])
    return content[:at] + chance.choice(PIECES) + content[at + chance.choice([0, 0, 1, 9]) :]


def _swapped(content: bytes, chance: random.Random) -> bytes:
    lines = content.split(b"\n")
    chance.shuffle(lines)
    return chance.choice([b"\n", b"\r\n", b"\r", b""]).join(lines[: chance.randrange(1, len(lines) + 1)])


def _recoded(content: bytes, chance: random.Random) -> bytes:
    whole = content.decode("utf-8", "replace")
    return whole.encode(
        chance.choice(["utf-16", "utf-16-le", "utf-32", "utf-8-sig", "latin-1", "shift_jis"]), "replace"
    )


def check(name: str, content: bytes, folder: Path) -> str | None:
    """What is wrong with how a file is met, if anything is."""
    path = folder / name
    path.write_bytes(content)
    options = SOUND[_sound(name)][1]
    ways: list[dict[str, Any]] = [{}]
    if options["kind"] != "series":
        ways = [{}, {"on_error": "skip"}, {"validation_path": str(path), "test_path": str(path)}]
    for way in ways:
        begin = time.perf_counter()
        wrong = _read(source_of(path, way), path)
        if wrong is None and time.perf_counter() - begin > SECONDS:
            wrong = f"{time.perf_counter() - begin:.1f} s"
        if wrong is not None:
            return f"{name}, {way}: {wrong}"
    return None


def source_of(path: Path, way: dict[str, Any]) -> Source:
    """What reads a file of such a name."""
    return Source.from_dict({**SOUND[_sound(path.name)][1], **way, "path": str(path)})


def _sound(name: str) -> str:
    return next(sound for sound in SOUND if name.startswith(sound))


def _read(source: Source, path: Path) -> str | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            source.notes()
            for split in SPLITS:
                for example in source.examples(split):
                    _is_text(example)
    except UnicodeError:
        return traceback.format_exc(limit=-3)
    except ValueError as error:
        said = str(error)
        named = path.name in said or "split has" in said  # of a series that is too short
        return None if named and "\n" not in said and len(said) < 1000 else f"says {said[:300]!r}"
    except Exception:
        return traceback.format_exc(limit=-3)
    return None


def _is_text(value: Any) -> None:
    """Raises UnicodeError if a text has half of a character."""
    if isinstance(value, str):
        value.encode()
    elif isinstance(value, dict | list | tuple):
        for item in value.values() if isinstance(value, dict) else value:
            _is_text(item)


if __name__ == "__main__":
    count, first = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0
    with tempfile.TemporaryDirectory() as place:
        found = [wrong for name, content in mutants(first, count) if (wrong := check(name, content, Path(place)))]
    print("\n".join(found[:20]))
    print(f"{count:,} files, {len(found):,} met wrongly")
    sys.exit(bool(found))
