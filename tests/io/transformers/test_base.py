"""What models of all tasks share: attention weights, embeddings that grow, dtypes, recomputation."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from auto_models import IDS, config, llama, loaded_again

pytestmark = pytest.mark.slow  # importing transformers' models takes seconds


def test_weights_are_those_of_the_layers() -> None:
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_config(config(llama())).eval()
    seen = model(IDS, output_attentions=True).attentions
    assert len(seen) == 2 and seen[0].shape == (3, 2, 7, 7)
    torch.testing.assert_close(seen[0].sum(-1), torch.ones(3, 2, 7))
    assert not seen[1].triu(1).any()


def test_other_conveniences_of_transformers_work(tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_config(config(llama())).eval()
    before = model(IDS).logits
    model.resize_token_embeddings(50)
    assert model.config.vocab_size == 50 and torch.allclose(model(IDS).logits[..., :48], before)
    again = loaded_again(AutoModelForCausalLM, model, tmp_path)
    assert torch.equal(again(IDS).logits, model(IDS).logits)
    half = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.bfloat16, device_map="cpu")
    assert half.dtype == torch.bfloat16 and half(IDS).logits.dtype == torch.bfloat16
    model.train()
    loss = model(IDS, labels=IDS).loss
    model.gradient_checkpointing_enable()
    assert model.is_gradient_checkpointing
    torch.testing.assert_close(model(IDS, labels=IDS).loss, loss)
    model.gradient_checkpointing_disable()
    with pytest.raises(ValueError, match="past_key_values of a qkv model are a QkvCache, not a DynamicCache"):
        from transformers import DynamicCache

        model(IDS, past_key_values=DynamicCache())
