"""Data: from files, CLDR or made sequences to batches. Importing this room registers every kind of `Source`."""

from .batching import Batching, Stream, stream
from .cldr import Localise
from .pairs import Pairs
from .sources import SPLITS, Counts, Example, Skipped, Source, Split, Table
from .stdlib_text import StandardLibrary
from .text import JsonLines, Text
from .toys import Copy, Reverse, Sort

__all__ = [
    "SPLITS",
    "Batching",
    "Copy",
    "Counts",
    "Example",
    "JsonLines",
    "Localise",
    "Pairs",
    "Reverse",
    "Skipped",
    "Sort",
    "Source",
    "Split",
    "StandardLibrary",
    "Stream",
    "Table",
    "Text",
    "stream",
]
