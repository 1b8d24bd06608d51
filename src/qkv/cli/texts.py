"""Texts from the command line or from standard input, for the commands that use a run."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterable, Iterator
from typing import Annotated, TypeVar

import typer

CHUNK = 512  # lines read before they are worked on: enough to batch by length, few enough to keep nothing waiting long

T = TypeVar("T")

Device = Annotated[str, typer.Option(metavar="auto|cpu|cuda|mps", help="Where to compute.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON object a line.")]


def read(texts: list[str] | None, at_once: int = CHUNK) -> Iterator[list[str]]:
    """The texts in chunks: those given, or the lines of standard input. Invalid UTF-8 is an error naming the line."""
    if texts:
        yield texts
        return
    if sys.stdin.isatty():
        typer.echo("Type a line and press Enter; Ctrl-D ends.", err=True)
        at_once = 1
    yield from chunks(_lines(), at_once)


def _lines() -> Iterator[str]:
    for number, line in enumerate(sys.stdin.buffer, 1):
        try:
            yield line.decode("utf-8").rstrip("\r\n")
        except UnicodeDecodeError as error:
            raise ValueError(f"standard input, line {number} is not UTF-8 (byte {error.start})") from None


def chunks(items: Iterable[T], size: int) -> Iterator[list[T]]:
    iterator = iter(items)
    while chunk := list(itertools.islice(iterator, size)):
        yield chunk
