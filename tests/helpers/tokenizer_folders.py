"""Folders as the Hub has them, written from the published tokenizer files in the shared data."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

CONFIGS: dict[str, dict[str, Any]] = {
    "bert-uncased": {"tokenizer_class": "BertTokenizer", "do_lower_case": True},
    "bert-cased": {"tokenizer_class": "BertTokenizer", "do_lower_case": False},
    "gpt2": {"tokenizer_class": "GPT2Tokenizer"},
    "clip": {"tokenizer_class": "CLIPTokenizer"},
    "sentencepiece": {},
}


def write(name: str, shared: Path, to: Path) -> Path:
    """One folder; returns it."""
    folder = to / name
    folder.mkdir()
    (folder / "tokenizer_config.json").write_text(json.dumps(CONFIGS[name]))
    if name.startswith("bert"):
        (folder / "vocab.txt").write_bytes(unpacked(shared / "bert" / f"{name.removeprefix('bert-')}_en_vocab.txt.gz"))
    elif name == "gpt2":
        (folder / "vocab.json").write_bytes(unpacked(shared / "gpt2" / "encoder.json.gz"))
        (folder / "merges.txt").write_bytes(unpacked(shared / "gpt2" / "vocab.bpe.gz"))
    elif name == "clip":
        write_clip(unpacked(shared / "clip" / "bpe_simple_vocab_16e6.txt.gz").decode().split("\n"), folder)
    else:
        (folder / "tokenizer.model").write_bytes((shared / "sentencepiece" / "sp_test_model.model").read_bytes())
    return folder


def write_clip(lines: list[str], folder: Path) -> None:
    """The vocabulary that OpenAI's `simple_tokenizer.py` makes of its merges, which it cuts at 49,152 − 256 − 2."""
    merges = lines[1 : 49152 - 256 - 2 + 1]
    symbols = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    alphabet = [chr(byte) for byte in symbols] + [chr(0x100 + i) for i in range(256 - len(symbols))]
    pieces = [*alphabet, *(f"{c}</w>" for c in alphabet), *(merge.replace(" ", "") for merge in merges)]
    vocabulary = {piece: i for i, piece in enumerate([*pieces, "<|startoftext|>", "<|endoftext|>"])}
    (folder / "vocab.json").write_text(json.dumps(vocabulary))
    (folder / "merges.txt").write_text("\n".join(["#version: 0.2", *merges]) + "\n", encoding="utf-8")


def unpacked(path: Path) -> bytes:
    """A .gz file, packed twice as CLIP's is, or once."""
    data = path.read_bytes()
    while data[:2] == b"\x1f\x8b":
        data = gzip.decompress(data)
    return data
