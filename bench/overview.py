"""The summary of docs/performance.md: every peer's time by qkv's, as a plot and as a table, from the newest results."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from .dots import Axis, Dot, dots
from .results import RESULTS, Record, Result, latest
from .tables.decode import title
from .tables.multi30k import advantages
from .tables.table import markdown

OURS, FIGURE = "qkv", "performance.svg"
GROUPS = {"transformers": ("Hugging Face", "transformers"), "x-transformers": ("x-transformers",)}
PLAIN = ("nanoGPT", "nn.", "bare", "loop")
LEGEND = (*GROUPS, "plain PyTorch: nanoGPT, nn.Transformer, bare loops", "timm, eole, JoeyNMT")
AXIS = Axis("the peer's time ÷ qkv's (right of 1: qkv is faster)", (0.7, 1, 1.5, 2, 3, 5), "×", 1, log=True)


@dataclass(frozen=True)
class Comparison:
    """One benchmark: each peer's time by qkv's, round by round."""

    title: str
    ratios: dict[str, list[float]]


def comparisons(folder: Path = RESULTS) -> list[Comparison]:
    """Every benchmark that has a peer, in the order of the tables."""
    return [
        found for table, read in _TABLES.items() if (path := latest(table, folder)) for found in read(Result.read(path))
    ]


def _times(title: Callable[[dict[str, Any]], str], **key: Any) -> Callable[[Result], Iterator[Comparison]]:
    """Of a table whose records have qkv beside its peers."""

    def read(result: Result) -> Iterator[Comparison]:
        for record in result.records(**key):
            yield Comparison(title(record.key), {peer: record.ratios(peer, OURS) for peer in _peers(record)})

    return read


def _peers(record: Record) -> list[str]:
    return [name for name in record.names if name != OURS and OURS in record.names]


def _multi30k(result: Result) -> Iterator[Comparison]:
    for record in map(Record, result.cases):
        peers = [name for name in _peers(record) if "allocator" not in name]
        yield Comparison(
            f"train: Multi30k, {record.key['precision']}", {peer: advantages(record, peer) for peer in peers}
        )


def _shakespeare(result: Result) -> Iterator[Comparison]:
    for record in map(Record, result.cases):
        pairs = zip(*(record.told(name, "train_s") for name in ("nanoGPT", "qkv, the same settings")), strict=True)
        yield Comparison("train: tinyshakespeare, fp32", {"nanoGPT": [theirs / ours for theirs, ours in pairs]})


def _families(result: Result) -> Iterator[Comparison]:
    """The median over the families of each."""
    for what in result.keys("what"):
        records = [record for record in result.records(what=what) if _peers(record)]
        ratios = [median(record.ratios("transformers", OURS)) for record in records]
        yield Comparison(f"{len(ratios)} families: {what}, fp32", {"transformers": ratios})


def _gpt(key: dict[str, Any]) -> str:
    return f"train: GPT, vocabulary {key['vocab_size']:,}, {_how(key)}"


def _how(key: dict[str, Any]) -> str:
    return key["precision"] + (", compiled" if key["mode"] == "compiled" else "")


_TABLES: dict[str, Callable[[Result], Iterable[Comparison]]] = {
    "train": _times(_gpt, allocator="own"),
    "rows": _times(lambda key: f"train: encoder–decoder, full rows, {_how(key)}", allocator="own"),
    "multi30k": _multi30k,
    "shakespeare": _shakespeare,
    "vit": _times(lambda key: f"train: ViT-S/16, {_how(key)}", allocator="own"),
    "recurrent": _times(lambda key: f"train: {key['what']}, fp32"),
    "decode": _times(lambda key: f"decode: {title(key)}"),
    "families": _families,
}


def render(folder: Path = RESULTS) -> str:
    """The plot and its numbers as Markdown."""
    rows = [
        [one.title, ", ".join(f"{peer} {_bold(median(ratios))}" for peer, ratios in one.ratios.items())]
        for one in comparisons(folder)
    ]
    picture = f"![Every peer's time divided by qkv's, one row a benchmark]({FIGURE})"
    return f"{picture}\n\n{markdown(['benchmark', 'the peer’s time ÷ qkv’s (medians)'], rows)}\n"


def _bold(ratio: float) -> str:
    """Where qkv is behind stands out."""
    return f"{ratio:.2f}" if ratio >= 1 else f"**{ratio:.2f}**"


def figure(folder: Path = RESULTS) -> dict[str, str]:
    rows = [(one.title, [_dot(*found) for found in one.ratios.items()]) for one in comparisons(folder)]
    return {FIGURE: dots("Time of the peers by qkv's, medians and ranges", rows, LEGEND, AXIS) + "\n"} if rows else {}


def _dot(peer: str, ratios: list[float]) -> Dot:
    return Dot(median(ratios), peer, _group(peer), f"{median(ratios):.2f}×", min(ratios), max(ratios))


def _group(peer: str) -> int:
    for i, prefixes in enumerate((*GROUPS.values(), PLAIN)):
        if any(word in peer if prefixes is PLAIN else peer.startswith(word) for word in prefixes):
            return i
    return len(LEGEND) - 1
