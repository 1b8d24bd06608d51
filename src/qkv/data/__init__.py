"""Data: sources that read files or generate examples, and batches of them."""

from ..tokenizers.tokenizer import Tokenizer
from ..tokenizers.tokenizer import train as train_tokenizer
from ..tokenizers.training.spec import TokenizerSpec
from .batching.settings import Batching
from .loader.stream import Stream, stream
from .readers.hub_datasets import Datasets
from .readers.jsonl import JsonLines
from .readers.parallel_text import Pairs
from .readers.python_stdlib import StandardLibrary
from .readers.text import Text
from .source import SPLITS, Counts, Example, Skipped, Source, Split, Table
from .synthetic.copy_reverse_sort import Copy, Reverse, Sort
from .synthetic.localise import Localise

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
