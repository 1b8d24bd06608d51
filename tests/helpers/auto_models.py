"""Small models and tokenizers for transformers' Auto classes."""

from __future__ import annotations

from typing import Any

import torch

import qkv
from qkv.nn.models.transformer import Transformer

SIZES: dict[str, Any] = {"d_model": 32, "n_layers": 2, "n_heads": 2, "d_ff": 64, "vocab_size": 48}
IDS = torch.tensor([[5, 6, 7, 8, 9, 10, 11], [12, 13, 14, 15, 16, 17, 18], [20, 21, 22, 23, 24, 25, 26]])
MASK = torch.tensor([[0, 0, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1, 1], [0, 1, 1, 1, 1, 1, 1]])


def llama(**changes: Any) -> Transformer:
    return qkv.preset("llama", max_positions=64, **SIZES).replace({k.replace("__", "."): v for k, v in changes.items()})


def bert(**changes: Any) -> Transformer:
    return qkv.preset("bert-base", max_positions=64, **SIZES).replace(
        {k.replace("__", "."): v for k, v in changes.items()}
    )


def config(spec: Transformer, **options: Any) -> Any:
    from qkv.transformers import QkvConfig

    return QkvConfig(spec=spec, pad_token_id=0, bos_token_id=1, eos_token_id=2, **options)


def words() -> Any:
    """A tokenizer of transformers with 48 words."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    known = ["[PAD]", "[BOS]", "[EOS]", "[UNK]", "[MASK]", *(f"w{i}" for i in range(43))]
    made = Tokenizer(models.WordLevel({word: i for i, word in enumerate(known)}, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    names = {"pad_token": "[PAD]", "bos_token": "[BOS]", "eos_token": "[EOS]", "mask_token": "[MASK]"}
    return PreTrainedTokenizerFast(tokenizer_object=made, unk_token="[UNK]", **names)
