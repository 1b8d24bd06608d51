"""Data: from files, CLDR or made sequences to batches. Importing it registers every kind of source and tokenizer."""

from ..tokenizers.kinds import TokenizerSpec
from ..tokenizers.tokenizer import Tokenizer
from ..tokenizers.tokenizer import train as train_tokenizer
from .batching.batching import Batching, Stream, stream
from .readers.hub_datasets import Datasets
from .readers.pairs import Pairs
from .readers.stdlib_text import StandardLibrary
from .readers.text import JsonLines, Text
from .source import SPLITS, Counts, Example, Skipped, Source, Split, Table
from .synthetic.localise import Localise
from .synthetic.toys import Copy, Reverse, Sort

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
