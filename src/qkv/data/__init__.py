"""Data: from files, CLDR or made sequences to batches. Importing it registers every kind of source and tokenizer."""

from .batching import Batching, Stream, stream
from .cldr import Localise
from .hub_datasets import Datasets
from .pairs import Pairs
from .sources import SPLITS, Counts, Example, Skipped, Source, Split, Table
from .stdlib_text import StandardLibrary
from .text import JsonLines, Text
from .tokenizer import Tokenizer
from .tokenizer import train as train_tokenizer
from .tokenizer_specs import TokenizerSpec
from .toys import Copy, Reverse, Sort

__all__ = [
    "SPLITS",
    "Batching",
    "Copy",
    "Counts",
    "Datasets",
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
    "Tokenizer",
    "TokenizerSpec",
    "stream",
    "train_tokenizer",
]
