"""A vocabulary that grows."""

from __future__ import annotations

import pytest
import torch

import qkv
from qkv.nn.models.vocabulary import resize_vocabulary

IDS = torch.arange(9)[None]


def model(name: str, **sizes: object) -> qkv.TransformerModel:
    return qkv.build(qkv.preset(name, d_model=32, n_layers=1, n_heads=4, d_ff=48, vocab_size=60, **sizes)).eval()


@pytest.mark.parametrize("name", ["gpt2", "llama", "transformer"])
def test_old_rows_stay_and_new_ones_are_their_mean(name: str):
    before = model(name)
    after = resize_vocabulary(before, 64)
    assert after.spec == before.spec.replace(vocab_size=64)
    more = (IDS,) if before.is_encoder_decoder else ()
    with torch.no_grad():
        old, new = before(IDS, *more), after(IDS, *more)
    assert torch.equal(new[..., :60], old)
    torch.testing.assert_close(
        new[..., 60:], old.mean(-1, keepdim=True).expand(*old.shape[:-1], 4), atol=1e-5, rtol=1e-4
    )
    tied = [m.head is not None and m.head.weight is m._output.embedding.weight for m in (before, after)]
    assert tied[0] == tied[1]


def test_it_does_not_shrink():
    with pytest.raises(ValueError, match="can only grow"):
        resize_vocabulary(model("gpt2"), 59)
