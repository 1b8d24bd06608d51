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


DECODERS: dict[str, Callable[[], Transformer]] = {
    "ALiBi Llama": lambda: llama(decoder__position=qkv.ALiBi()),
    "tied GPT-2": lambda: qkv.preset("gpt2", max_positions=64, **{k: v for k, v in SIZES.items() if k != "d_ff"}),
    "window": lambda: llama(**{"decoder__blocks__*__attention__pattern": qkv.Causal() & qkv.Window(size=3)}),
    "mixture": lambda: qkv.preset("mixtral-8x7b", n_experts=4, n_kv_heads=2, max_positions=64, **SIZES),
    "latent attention": lambda: llama(
        **{"decoder__blocks__*__attention": qkv.LatentAttention(n_heads=2, d_latent=16, d_head=16, d_rotary=8)}
    ),
}


def loaded_again(auto: Any, model: Any, path: Path) -> Any:
    model.save_pretrained(path)
    again, told = auto.from_pretrained(path, output_loading_info=True)
    assert not (told["missing_keys"] or told["unexpected_keys"] or told["mismatched_keys"])
    return again.eval()


def until_end(rows: Tensor) -> list[list[int]]:
    return [row[: row.index(2) + 1] if 2 in row else row for row in rows.tolist()]
