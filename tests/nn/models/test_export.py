"""`torch.export` of whole models: a batch with padding is exported, and the program serves other padding too."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from fast_subset import diagonals

import qkv

SMALL: dict[str, Any] = {"d_model": 16, "n_layers": 1, "n_heads": 2, "vocab_size": 20}
MODELS: dict[str, dict[str, Any]] = {
    "gpt2": {"max_positions": 16},
    "bert-base": {"d_ff": 24, "max_positions": 16},
    "llama": {"d_ff": 24},
    "bloom-560m": {},
    "t5-small": {"d_ff": 24, "d_head": 8},
}


def mask(*lengths: int, left: bool) -> torch.Tensor:
    made = (torch.arange(7)[None] < torch.tensor(lengths)[:, None]).long()
    return made.flip(1) if left else made


@torch.no_grad()
@pytest.mark.parametrize(("name", "left"), diagonals(MODELS, [False, True], every=2))
def test_a_padded_batch_is_exported(name: str, left: bool) -> None:
    model = qkv.build(qkv.preset(name, **SMALL, **MODELS[name]), seed=3).eval()
    ids = torch.randint(20, (2, 7))
    texts = (ids, ids) if model.is_encoder_decoder else (ids,)
    names = ["attention_mask", *(["target_mask"] if model.is_encoder_decoder else [])]
    program = torch.export.export(model, texts, dict.fromkeys(names, mask(7, 4, left=left)))
    for lengths in ((7, 4), (3, 6), (7, 7)):
        given = mask(*lengths, left=left)
        out = program.module()(*texts, **dict.fromkeys(names, given))
        wanted = model(*texts, **dict.fromkeys(names, given))
        torch.testing.assert_close(out[given.bool()], wanted[given.bool()], rtol=1e-5, atol=1e-5)
