"""Byte-level BPE in GGUF (`tokenizer.ggml.model` = "gpt2"): tokens, ranked merges and the name of a pre-tokenizer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .....core.spec import brief, nearest
from .pre_tokenizers import NAMES, adds_bos, name_of, pipeline_of
from .vocabulary import ADD_BOS, ADD_EOS, MERGES, MODEL, PRE, flag

PUBLISHED = ("gpt-2", "smollm", "qwen2", "llama-bpe", "gpt-4o", "falcon", "bloom")
DECODER = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}


def fits(data: Mapping[str, Any]) -> bool:
    """Whether the content of a tokenizer.json is byte-level BPE."""
    return data["model"]["type"] == "BPE" and '"ByteLevel"' in repr(data.get("decoder")).replace("'", '"')


def to_metadata(data: Mapping[str, Any], notes: list[str]) -> dict[str, Any]:
    """The metadata beside tokens and roles. Raises ValueError naming what llama.cpp can't do; `notes` get what differs."""
    model = data["model"]
    for key, what in (
        ("continuing_subword_prefix", "a prefix of pieces that continue a word"),
        ("end_of_word_suffix", "an ending of pieces that end a word"),
    ):
        if model.get(key):
            raise ValueError(
                f"llama.cpp's byte-level BPE has no {key} ({what}), and this tokenizer has {brief(model[key])}"
            )
    normalizer = data.get("normalizer")
    if normalizer is not None and normalizer.get("type") == "Sequence" and len(normalizer["normalizers"]) == 1:
        normalizer = normalizer["normalizers"][0]
    if normalizer is not None and normalizer.get("type") != "NFC":
        raise ValueError(
            f"llama.cpp's byte-level BPE doesn't change text before it cuts it, and this tokenizer does, by "
            f"{_steps(normalizer)}; train one with normalization: none and lowercase: false"
        )
    if normalizer is not None:
        notes.append("llama.cpp doesn't compose characters (NFC), as this tokenizer does: give it composed text")
    name = name_of(data.get("pre_tokenizer"), bool(model.get("ignore_merges")))
    if name is None:
        raise ValueError(
            f"qkv writes GGUF of tokenizers that cut words as {', '.join(PUBLISHED)} do, and this one cuts them otherwise; "
            "BPE that is trained here with split_digits: false cuts as gpt-2"
        )
    merges = [pair if isinstance(pair, str) else " ".join(pair) for pair in model["merges"]]
    return {MODEL: "gpt2", PRE: name, MERGES: merges}


def _steps(normalizer: Mapping[str, Any]) -> str:
    steps = normalizer.get("normalizers") or [normalizer]
    return ", ".join(str(step.get("type")) for step in steps)


def from_metadata(metadata: Mapping[str, Any], tokens: list[str]) -> dict[str, Any]:
    """The content of a tokenizer.json, without added tokens. Raises ValueError naming the key that isn't known."""
    name = metadata.get(PRE, "default")
    if name not in NAMES:
        raise ValueError(f"{PRE} is {brief(name)}, which is not read here; {nearest(str(name)[:80], NAMES)}")
    merges = metadata.get(MERGES)
    if not isinstance(merges, list):
        raise ValueError(f"{MERGES} must be a list of strings, not {brief(merges)}")
    vocabulary = {token: i for i, token in enumerate(tokens)}
    pairs = [_pair(merge, i) for i, merge in enumerate(merges)]
    for left, right in pairs:
        for piece in (left, right, left + right):
            if piece not in vocabulary:
                raise ValueError(
                    f"{MERGES} joins {brief(left)} and {brief(right)}, and the vocabulary has no {brief(piece)}"
                )
    return {
        "normalizer": None,
        "pre_tokenizer": pipeline_of(name),
        "decoder": DECODER,
        "model": {
            "type": "BPE",
            "vocab": vocabulary,
            "merges": pairs,
            "ignore_merges": NAMES[name].ignore_merges,
        },
    }


def _pair(merge: str, index: int) -> tuple[str, str]:
    left, space, right = merge[1:].partition(" ")  # a piece is never empty, so it may be a space
    if not space or not right:
        raise ValueError(f"{MERGES}[{index}] is {brief(merge)}, which is not two pieces with a space between")
    return merge[0] + left, right


def around(metadata: Mapping[str, Any]) -> tuple[bool, bool]:
    """Whether a text begins with bos and ends with eos."""
    name = str(metadata.get(PRE, "default"))
    return flag(metadata, ADD_BOS, adds_bos(name)), flag(metadata, ADD_EOS, False)
