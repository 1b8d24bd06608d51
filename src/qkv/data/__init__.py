"""Data: sources that read files or generate examples, tokenizers, and batches. Names are loaded when they are first used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

_HOME = {
    "Batching": ("batching.settings", "Batching"),
    "Copy": ("synthetic.copy_reverse_sort", "Copy"),
    "Counts": ("source", "Counts"),
    "Datasets": ("readers.hub_datasets", "Datasets"),
    "Example": ("source", "Example"),
    "JsonLines": ("readers.jsonl", "JsonLines"),
    "Localise": ("synthetic.localise", "Localise"),
    "Pairs": ("readers.parallel_text", "Pairs"),
    "Reverse": ("synthetic.copy_reverse_sort", "Reverse"),
    "SPLITS": ("source", "SPLITS"),
    "Skipped": ("source", "Skipped"),
    "Sort": ("synthetic.copy_reverse_sort", "Sort"),
    "Source": ("source", "Source"),
    "Split": ("source", "Split"),
    "StandardLibrary": ("readers.python_stdlib", "StandardLibrary"),
    "Stream": ("loader.stream", "Stream"),
    "Table": ("source", "Table"),
    "Text": ("readers.text", "Text"),
    "Tokenizer": ("tokenizers.tokenizer", "Tokenizer"),
    "TokenizerSpec": ("tokenizers.training.spec", "TokenizerSpec"),
    "stream": ("loader.stream", "stream"),
    "train_tokenizer": ("tokenizers.tokenizer", "train"),
}

__all__ = sorted(_HOME)

if TYPE_CHECKING:
    from .batching.settings import Batching as Batching
    from .loader.stream import Stream as Stream
    from .loader.stream import stream as stream
    from .readers.hub_datasets import Datasets as Datasets
    from .readers.jsonl import JsonLines as JsonLines
    from .readers.parallel_text import Pairs as Pairs
    from .readers.python_stdlib import StandardLibrary as StandardLibrary
    from .readers.text import Text as Text
    from .source import SPLITS as SPLITS
    from .source import Counts as Counts
    from .source import Example as Example
    from .source import Skipped as Skipped
    from .source import Source as Source
    from .source import Split as Split
    from .source import Table as Table
    from .synthetic.copy_reverse_sort import Copy as Copy
    from .synthetic.copy_reverse_sort import Reverse as Reverse
    from .synthetic.copy_reverse_sort import Sort as Sort
    from .synthetic.localise import Localise as Localise
    from .tokenizers.tokenizer import Tokenizer as Tokenizer
    from .tokenizers.tokenizer import train as train_tokenizer
    from .tokenizers.training.spec import TokenizerSpec as TokenizerSpec
else:

    def __getattr__(name: str) -> Any:
        if name not in _HOME:
            raise AttributeError(f"module 'qkv.data' has no attribute {name!r}")
        module, leaf = _HOME[name]
        globals()[name] = value = getattr(import_module(f".{module}", __name__), leaf)
        return value
