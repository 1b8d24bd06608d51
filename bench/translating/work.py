"""What is translated and by what: models with random weights in the Hub's format, and batches with real lengths."""

from __future__ import annotations

import gzip
import json
import random
import re
import shutil
from pathlib import Path
from statistics import median_low
from typing import Any

import torch
from torch import nn

from ..contenders.loading import FOLDER
from ..corpora import MULTI30K, folder

SENTENCES = "test_2016_flickr.en.gz"
ROWS = 32  # sentences in a batch
END = 0  # </s>, as in OPUS-MT; its <pad>, from which decoding starts, is the last entry of the vocabulary

SHARED: dict[str, Any] = {
    "model_type": "marian",
    "d_model": 512,
    "encoder_layers": 6,
    "decoder_layers": 6,
    "encoder_attention_heads": 8,
    "decoder_attention_heads": 8,
    "encoder_ffn_dim": 2048,
    "decoder_ffn_dim": 2048,
    "max_position_embeddings": 512,
    "scale_embedding": True,
}
TINY: dict[str, Any] = {
    "d_model": 64,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_ffn_dim": 128,
    "decoder_ffn_dim": 128,
    "vocab_size": 512,
}
SHAPES: dict[str, dict[str, Any]] = {
    "Transformer-base": {**SHARED, "vocab_size": 37000, "activation_function": "relu"},
    "Marian": {**SHARED, "vocab_size": 58101, "activation_function": "swish"},
}

# With weights as they are drawn, most rows repeat one token. Multiplied by these, outputs depend on source and position.
FACTORS = (
    (r"\.embedding\.", 2.0),
    (r"\.(attention|cross)\.[qk]\.", 6.0),
    (r"\.cross\.(v|out)\.", 4.0),
    (r"\.feedforward\.", 1.5),
)


def settings(shape: str, tiny: bool) -> dict[str, Any]:
    """The configuration of the Hub's format, without what follows from the vocabulary."""
    return SHAPES[shape] | (TINY if tiny else {})


def model(shape: str, tiny: bool = False) -> Path:
    """The directory of the Hub of a shape; it is made if it isn't there yet."""
    place = FOLDER / "translating" / (shape.lower() + ("-tiny" if tiny else ""))
    if not (place / "config.json").exists():
        from qkv.io.directories.build import build
        from qkv.io.families import FAMILIES

        config = settings(shape, tiny)
        module = build(FAMILIES["marian"].spec(config), seed=0)
        spread(module, pad=config["vocab_size"] - 1)
        unfinished = place.with_name(place.name + ".unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        module.save(unfinished, to="hub")
        written = json.loads((unfinished / "config.json").read_text())
        last = config["vocab_size"] - 1
        ids = {"pad_token_id": last, "decoder_start_token_id": last, "eos_token_id": END, "bos_token_id": END}
        (unfinished / "config.json").write_text(json.dumps(written | ids, indent=2))
        unfinished.rename(place)
    return place


@torch.no_grad()
def spread(module: nn.Module, pad: int) -> None:
    """Multiply weights so that outputs vary; the vector of <pad> is 0 as in OPUS-MT, since CTranslate2 starts from 0."""
    for name, parameter in module.named_parameters():
        for pattern, factor in FACTORS:
            if parameter.ndim == 2 and re.search(pattern, f".{name}"):
                parameter.mul_(factor)
        if name == "encoder.embedding.weight":
            parameter[pad] = 0.0


def lengths(sentences: int) -> list[int]:
    """How many tokens the first sentences of Multi30k's English test set have: words, marks and </s>."""
    text = gzip.decompress((folder(MULTI30K) / SENTENCES).read_bytes()).decode()
    return [len(re.findall(r"\w+|[^\w\s]", line)) + 1 for line in text.splitlines()[:sentences]]


def batches(counts: list[int], vocab_size: int) -> list[dict[str, Any]]:
    """Rows of random ids with these lengths, sorted by length, and for each batch the number of new tokens of its rows.

    That number is the median length of the batch's sources: none of the libraries has limits for each row of a call.
    """
    draw, made = random.Random(0), []
    counts = sorted(counts)
    for start in range(0, len(counts), ROWS):
        part = counts[start : start + ROWS]
        rows = [[*(draw.randrange(2, vocab_size - 1) for _ in range(count - 1)), END] for count in part]
        made.append({"rows": rows, "new": median_low(part)})
    return made
