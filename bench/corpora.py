"""The texts that some tables train on, and the forms of them that contenders read, made under bench/.data/.

`QKV_BENCH_DATA` names the folder that holds `multi30k/` (train, val and test_2016_flickr in en and de, gzip) and
`tinyshakespeare/input.txt.gz`; by default that is ../shared/data beside this repository.
"""

from __future__ import annotations

import gzip
import json
import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path

HERE = Path(__file__).resolve().parent
MADE = HERE / ".data"
VARIABLE = "QKV_BENCH_DATA"
MULTI30K, SHAKESPEARE = "multi30k", "tinyshakespeare"
SPLITS = {"": "train", "validation_": "val", "test_": "test_2016_flickr"}


def folder(name: str) -> Path:
    """Where a corpus is, or would be."""
    return Path(os.environ.get(VARIABLE) or HERE.parent.parent / "shared" / "data") / name


def missing(name: str) -> str:
    """Why a corpus can't be used, as a sentence; empty if it is there."""
    place = folder(name)
    return "" if place.is_dir() else f"{place} is missing: set {VARIABLE} to a folder that holds {name}"


@dataclass(frozen=True)
class Pairs:
    """Sentence pairs as token ids, for those who have no tokenizer of ours.

    ids:      a file with one JSON list [source ids, target ids] a line.
    source, target: the same, one sentence a line, every id its own word ("17 803 …").
    words:    the vocabulary of these words, a line each, in the order of the ids; the first four are
              <pad>, <unk>, <s> and </s>.
    settings: settings of the recipe `translate` with which qkv reads the same pairs.
    rows:     sentences in a batch of `tokens` slots, on average over an epoch of qkv's own batches.
    """

    ids: str
    source: str
    target: str
    words: str
    settings: tuple[str, ...]
    vocab_size: int
    tokens: int
    rows: int


@cache
def multi30k(vocab_size: int, tokens: int, sentences: int | None = None) -> Pairs:
    """English → German, with one vocabulary of subwords as the recipe `translate` makes it; `sentences`: the first few."""
    place = MADE / f"{MULTI30K}-{vocab_size}-{tokens}{f'-{sentences}' if sentences else ''}"
    place.mkdir(parents=True, exist_ok=True)
    # Every token drawn the same way every time, since the others have one segmentation.
    settings = [f"tokenizer.vocab_size={vocab_size}", "tokenizer.dropout=0.0", f"batching.tokens={tokens}"]
    for prefix, split in SPLITS.items():
        for side, language in (("source", "en"), ("target", "de")):
            lines = gzip.decompress((folder(MULTI30K) / f"{split}.{language}.gz").read_bytes()).decode().splitlines()
            (place / f"{split}.{language}").write_text("\n".join(lines[:sentences]) + "\n", encoding="utf-8")
            settings.append(f"data.{prefix}{side}={place / f'{split}.{language}'}")
    return _tokenized(place, tuple(settings), tokens)


def _tokenized(place: Path, settings: tuple[str, ...], tokens: int) -> Pairs:
    from qkv.data.loader.stream import stream
    from qkv.runs.recipes.recipe import Recipe
    from qkv.runs.train.tokenizer import make

    recipe = Recipe.load("translate", settings)
    tokenizer = make(recipe)
    special = [tokenizer.pad_id, tokenizer.unk_id, tokenizer.bos_id, tokenizer.eos_id]
    assert special == [0, 1, 2, 3], f"<pad>, <unk>, <s> and </s> are expected first, not as {special}"
    examples = list(recipe.data.examples("train", shuffle=False))
    sides = [tokenizer.encode_batch([example[side] for example in examples]) for side in ("source", "target")]
    (place / "train.ids").write_text(
        "".join(json.dumps([list(s), list(t)]) + "\n" for s, t in zip(*sides, strict=True))
    )
    for name, side in zip(("train.source", "train.target"), sides, strict=True):
        (place / name).write_text("".join(" ".join(map(str, ids)) + "\n" for ids in side))
    words = ["<pad>", "<unk>", "<s>", "</s>", *map(str, range(4, tokenizer.vocab_size))]
    (place / "words").write_text("\n".join(words) + "\n")
    with stream(recipe.data, tokenizer, recipe.batching, seq2seq=True, epochs=1) as batches:
        counted = [(len(batch.labels), batch.counts["loss"]) for batch in batches if batch.labels is not None]
    rows, labels = (sum(counts) for counts in zip(*counted, strict=True))
    given = sum(len(target) + 1 for target in sides[1])
    assert (rows, labels) == (len(examples), given), (
        f"qkv trains on {labels} target tokens of {rows} pairs, and the others are given {given} of {len(examples)}"
    )
    return Pairs(
        ids=str(place / "train.ids"),
        source=str(place / "train.source"),
        target=str(place / "train.target"),
        words=str(place / "words"),
        settings=settings,
        vocab_size=tokenizer.vocab_size,
        tokens=tokens,
        rows=round(rows / len(counted)),
    )


@dataclass(frozen=True)
class Characters:
    """tinyshakespeare in nanoGPT's two parts: the first nine tenths to train on, the rest to validate on."""

    train: str
    validation: str


@cache
def shakespeare(characters: int | None = None) -> Characters:
    """`characters`: the first so many only."""
    text = gzip.decompress((folder(SHAKESPEARE) / "input.txt.gz").read_bytes()).decode()[:characters]
    place = MADE / (SHAKESPEARE + (f"-{characters}" if characters else ""))
    place.mkdir(parents=True, exist_ok=True)
    cut = int(len(text) * 0.9)
    for name, part in (("train.txt", text[:cut]), ("validation.txt", text[cut:])):
        (place / name).write_text(part, encoding="utf-8")
    return Characters(str(place / "train.txt"), str(place / "validation.txt"))
