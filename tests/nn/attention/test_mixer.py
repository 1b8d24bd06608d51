"""What kinds of mixers declare of themselves."""

from __future__ import annotations

import pytest

from qkv.nn.attention.bigbird import BlockSparseAttention
from qkv.nn.attention.linear import LinearAttention
from qkv.nn.attention.linformer import Linformer
from qkv.nn.attention.mixer import NoMixer
from qkv.nn.attention.multi_head import Attention
from qkv.nn.attention.performer import Performer
from qkv.nn.attention.scores import Additive


@pytest.mark.parametrize(
    ("mixer", "supports", "divides", "keeps_keys"),
    [
        (Attention(n_heads=4), {"scores", "weightings", "heads"}, "keys", True),
        (BlockSparseAttention(n_heads=4), set(), "whole", True),
        (LinearAttention(n_heads=4), set(), "sums", False),
        (Performer(n_heads=4), set(), "whole", False),
        (Linformer(n_heads=4, rank=4, max_positions=16), set(), "whole", False),
    ],
)
def test_a_kind_with_another_module_inherits_nothing_that_describes_it(
    mixer: Attention, supports: set[str], divides: str, keeps_keys: bool
) -> None:
    assert (mixer.supports, mixer.divides, mixer.keeps_keys) == (supports, divides, keeps_keys)


def test_a_kind_on_attention_keeps_what_it_says_of_its_module() -> None:
    class Renamed(Attention, kind="renamed-attention-test"):
        """With the module of attention."""

    assert Renamed(n_heads=4, score=Additive()).supports == Attention.supports and Renamed.keeps_keys
    with pytest.raises(ValueError, match="linear-attention has scaled dot products only"):
        LinearAttention(n_heads=4, score=Additive())
    assert not NoMixer().supports and not NoMixer().keeps_keys
