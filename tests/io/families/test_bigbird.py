"""BigBird draws blocks in training as transformers does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from hub_cases import transformers
from hub_sizes import SIZES

from qkv.runs.inference.run import load


@pytest.mark.parametrize(
    "width, sizes",
    [
        (45, {"max_position_embeddings": 64, "block_size": 2, "num_random_blocks": 2}),
        (1024, {"max_position_embeddings": 1088, "num_hidden_layers": 1}),  # drawn as the paper's code did
    ],
)
def test_big_bird_draws_as_transformers_does_in_training(width: int, sizes: dict[str, int], tmp_path: Path) -> None:
    """In evaluation its every random block is the first; in training it draws, each layer with its number as the seed."""
    torch.manual_seed(6)
    dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    hub: Any = transformers.BigBirdForMaskedLM(transformers.BigBirdConfig(**{**SIZES, **dropout, **sizes}))
    with torch.no_grad():
        for parameter in hub.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    hub.save_pretrained(tmp_path)
    mine: Any = load(tmp_path, device="cpu").model
    ids = torch.randint(6, 90, (1, width))
    first = mine(ids)
    torch.testing.assert_close(first, hub.eval()(ids).logits, rtol=1e-4, atol=1e-4)
    found, expected = mine.train()(ids), hub.train()(ids).logits
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    assert not torch.allclose(found, first, atol=1e-3)
    found.square().sum().backward()
    expected.square().sum().backward()
    own, other = mine.encoder.blocks[0].attention, hub.bert.encoder.layer[0].attention.self
    for a, b in ((own.q, other.query), (own.k, other.key), (own.v, other.value)):
        assert (a.weight.grad - b.weight.grad).norm() <= 1e-4 * b.weight.grad.norm()
