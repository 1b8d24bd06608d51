"""Small files of many kinds, for which recipes are guessed."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path

WORDS = ("the", "a", "red", "blue", "old", "dog", "cat", "house", "tree", "river", "sees", "likes", "finds", "today")


def texts(n: int, seed: int = 0) -> list[str]:
    draw = random.Random(seed)
    return [" ".join(draw.choices(WORDS, k=draw.randint(4, 9))) for _ in range(n)]


def write(path: Path, content: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content, encoding="utf-8")
    return path


def pairs_tsv(folder: Path) -> Path:
    rows = zip(texts(200), texts(200, 1), strict=True)
    return write(folder / "pairs.tsv", "english\tgerman\n" + "".join(f"{a}\t{b}\n" for a, b in rows))


def reviews_csv(folder: Path) -> Path:
    rows = (f"{i},{text},{'good' if i % 3 else 'bad'}\n" for i, text in enumerate(texts(200)))
    return write(folder / "reviews.csv", "id,text,sentiment\n" + "".join(rows))


def conversations(folder: Path) -> Path:
    turns = (
        [{"role": r, "content": t} for r, t in zip(("user", "assistant"), texts(2, i), strict=True)] for i in range(60)
    )
    return write(folder / "chats.jsonl", "".join(json.dumps({"conversation": turn}) + "\n" for turn in turns))


def tagged(folder: Path) -> Path:
    lines = ("".join(f"{w} {'B-COL' if w in ('red', 'blue') else 'O'}\n" for w in t.split()) for t in texts(200))
    return write(folder / "colors.txt", "\n".join(lines))


def labelled_lines(folder: Path) -> Path:
    return write(folder / "train.txt", "".join(f"{len(text) % 2} {text}\n" for text in texts(200)))


def plain(folder: Path) -> Path:
    return write(folder / "book.txt", "".join(f"{text}.\n" for text in texts(400)))


def series(folder: Path) -> Path:
    rows = (
        f"2024-01-{1 + i // 24:02}T{i % 24:02}:00,{math.sin(i / 4):.4f},{math.cos(i / 7):.4f}\n" for i in range(600)
    )
    return write(folder / "sensors.csv", "when,inside,outside\n" + "".join(rows))
