"""Embeddings in the place of ids, positions and masks beside a cache, and the token table, behind Auto classes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from auto_models import IDS, MASK, SIZES, bert, config, llama

import qkv

pytestmark = pytest.mark.slow  # importing transformers' models takes seconds

SPECS: dict[str, Any] = {
    "llama": llama,
    "scaled and normed": lambda: llama(decoder__embedding=qkv.Embedding(scale="sqrt", norm=qkv.LayerNorm())),
    "projected": lambda: llama(decoder__embedding=qkv.Embedding(width=16), head__tied=False),
    "gpt2": lambda: qkv.preset("gpt2", max_positions=64, **{k: v for k, v in SIZES.items() if k != "d_ff"}),
}


def causal(name: str = "llama") -> Any:
    from transformers import AutoModelForCausalLM

    import qkv.transformers

    assert qkv.transformers
    return AutoModelForCausalLM.from_config(config(SPECS[name]())).eval()


@pytest.mark.parametrize("name", SPECS)
@torch.no_grad()
def test_embeddings_in_the_place_of_ids_give_the_same(name: str) -> None:
    model = causal(name)
    vectors = model.get_input_embeddings()(IDS)
    wanted = model(input_ids=IDS, attention_mask=MASK, output_hidden_states=True)
    found = model(inputs_embeds=vectors, attention_mask=MASK, output_hidden_states=True)
    torch.testing.assert_close(found.logits, wanted.logits)
    torch.testing.assert_close(found.hidden_states, wanted.hidden_states)
    options: dict[str, Any] = {"attention_mask": MASK, "max_new_tokens": 6, "do_sample": False}
    torch.testing.assert_close(
        model.generate(inputs_embeds=vectors, **options), model.generate(IDS, **options)[:, IDS.shape[1] :]
    )


@torch.no_grad()
def test_embeddings_reach_encoders_and_both_stacks() -> None:
    import transformers

    encoder = transformers.AutoModelForMaskedLM.from_config(config(bert())).eval()
    vectors = encoder.get_input_embeddings()(IDS)
    torch.testing.assert_close(
        encoder(inputs_embeds=vectors, attention_mask=MASK).logits, encoder(IDS, attention_mask=MASK).logits
    )
    spec = qkv.preset("transformer", max_positions=32, **SIZES)
    both = transformers.AutoModelForSeq2SeqLM.from_config(config(spec, decoder_start_token_id=1)).eval()
    table = both.get_input_embeddings()
    wanted = both(input_ids=IDS, attention_mask=MASK, decoder_input_ids=IDS[:, :4]).logits
    given = {"inputs_embeds": table(IDS), "decoder_inputs_embeds": table(IDS[:, :4])}
    torch.testing.assert_close(both(attention_mask=MASK, **given).logits, wanted)


def test_gradients_reach_embeddings_that_are_given() -> None:
    model = causal()
    vectors = model.get_input_embeddings()(IDS).detach().requires_grad_()
    model(inputs_embeds=vectors, labels=IDS).loss.backward()
    assert vectors.grad is not None and vectors.grad.abs().sum() > 0


@torch.no_grad()
def test_positions_and_masks_beside_a_cache_act_or_are_refused() -> None:
    from qkv.transformers import QkvCache

    model = causal()
    whole = model(IDS, attention_mask=MASK).logits
    for positions in (None, (MASK.cumsum(1) - 1).clamp(min=0)):
        cache, parts = QkvCache(), []
        for part in (slice(0, 4), slice(4, 7)):
            given = {} if positions is None else {"position_ids": positions[:, part]}
            parts.append(
                model(IDS[:, part], attention_mask=MASK[:, : part.stop], past_key_values=cache, **given).logits
            )
        torch.testing.assert_close(torch.cat(parts, 1)[MASK.bool()], whole[MASK.bool()])
    with pytest.raises(ValueError, match="position_ids differ from the positions after the tokens in the cache"):
        model(IDS, past_key_values=cache, position_ids=torch.arange(7)[None])
    cache = QkvCache()
    model(IDS, past_key_values=cache)
    with pytest.raises(ValueError, match="the attention mask has the 7 new tokens alone, and padding among them"):
        model(IDS, attention_mask=MASK, past_key_values=cache)
    model(IDS, attention_mask=torch.ones_like(MASK), past_key_values=cache)


@pytest.mark.parametrize("name", SPECS)
def test_peft_adapts_the_token_table(name: str) -> None:
    peft = pytest.importorskip("peft")
    model = qkv.build(SPECS[name]()).eval()
    before = model(IDS)
    adapted = peft.get_peft_model(model, peft.LoraConfig(target_modules=["embedding"], r=4))
    torch.testing.assert_close(adapted(IDS), before)
    table = adapted.base_model.model.decoder.embedding
    assert isinstance(table.base_layer, torch.nn.Embedding)
    with torch.no_grad():
        table.lora_embedding_A["default"].normal_()
    found = adapted(IDS)
    assert (found - before).norm() > 1e-2 * before.norm()
    merged = adapted.merge_and_unload()
    if not getattr(model.spec.head, "tied", False):
        torch.testing.assert_close(merged(IDS), found, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "give input_ids or inputs_embeds"),
        ({"input_ids": IDS, "inputs_embeds": torch.zeros(3, 7, 32)}, "not both"),
        ({"inputs_embeds": torch.zeros(3, 7, 30)}, "have the width 32 here, not 30"),
        ({"input_ids": "abc"}, "token ids are a tensor (batch, length), not 'abc', a str"),
        ({"input_ids": torch.arange(3)}, "token ids are a tensor (batch, length), not of the shape (3,)"),
        ({"input_ids": IDS, "attention_mask": MASK[:2]}, "the attention mask has 2 rows, and the ids 3"),
        ({"input_ids": IDS, "attention_mask": MASK[:, :5]}, "the attention mask has 5 columns for 0 + 7 tokens"),
        ({"input_ids": IDS, "position_ids": MASK[:, :5]}, "position_ids have the shape (3, 5), and the ids (3, 7)"),
        ({"input_ids": IDS, "labels": IDS[:, :3]}, "labels have the shape (3, 2) and outputs (3, 6)"),
    ],
)
def test_wrong_inputs_are_told(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError) as error:
        causal()(**given)
    assert said in str(error.value) and "\n" not in str(error.value)
