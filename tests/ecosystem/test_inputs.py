"""Embeddings in the place of ids, positions and masks beside a cache, and the token table, behind Auto classes."""

from __future__ import annotations

from pathlib import Path
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


@pytest.mark.parametrize("kind", ["prompt", "encoder"])
def test_peft_tunes_vectors_before_the_text(kind: str, tmp_path: Path) -> None:
    """Prompt tuning and P-tuning: the logits are those of the vectors and the text's rows of the table."""
    peft = pytest.importorskip("peft")
    usual: dict[str, Any] = {"task_type": "CAUSAL_LM", "num_virtual_tokens": 4}
    made = {
        "prompt": lambda: peft.PromptTuningConfig(**usual),
        "encoder": lambda: peft.PromptEncoderConfig(**usual, encoder_hidden_size=16),
    }
    adapted: Any = peft.get_peft_model(causal("gpt2"), made[kind]())
    adapted(input_ids=IDS, attention_mask=MASK, labels=IDS).loss.backward()
    changed = {
        name.split(".")[0] for name, p in adapted.named_parameters() if p.grad is not None and bool(p.grad.any())
    }
    assert changed == {"prompt_encoder"}
    adapted.eval()
    with torch.no_grad():
        found = adapted(input_ids=IDS, attention_mask=torch.ones_like(IDS)).logits
        alone: Any = causal("gpt2")
        rows = torch.cat([adapted.get_prompt(3), alone.get_input_embeddings()(IDS)], 1)
        torch.testing.assert_close(found, alone(inputs_embeds=rows).logits, atol=1e-5, rtol=1e-5)
    given = {"input_ids": IDS, "attention_mask": torch.ones_like(IDS), "max_new_tokens": 5, "do_sample": False}
    expected = adapted.generate(**given)
    adapted.save_pretrained(tmp_path)
    again: Any = peft.PeftModel.from_pretrained(causal("gpt2"), tmp_path).eval()
    assert torch.equal(again.generate(**given), expected)
    prefixed: Any = peft.get_peft_model(causal("gpt2"), peft.PrefixTuningConfig(**usual))
    with pytest.raises(ValueError, match="past_key_values of a qkv model are a QkvCache, not a DynamicCache"):
        prefixed(input_ids=IDS)


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
        ({"input_ids": IDS, "labels": IDS[:, :3]}, "labels have the shape (3, 3), not (3, 7)"),
        ({"input_ids": IDS, "labels": [1]}, "labels are a tensor of the shape (3, 7), not [1], a list"),
        ({"input_ids": IDS, "labels": IDS + 90}, "labels range from 96 to 116, and there are 48 classes; give 0 to 47"),
        ({"input_ids": IDS, "labels": IDS.float()}, "labels are integers, not float32"),
        ({"input_ids": IDS[None]}, "token ids are a tensor (batch, length), not of the shape (1, 3, 7)"),
        (
            {"input_ids": IDS, "attention_mask": "yes"},
            "an attention mask is a tensor (batch, length), not 'yes', a str",
        ),
        ({"input_ids": IDS, "position_ids": [1]}, "position_ids are a tensor (batch, length), not [1], a list"),
    ],
)
def test_wrong_inputs_are_told(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError) as error:
        causal()(**given)
    assert said in str(error.value) and "\n" not in str(error.value)


def test_wrong_labels_of_texts_and_specs_are_told() -> None:
    from transformers import AutoModelForSequenceClassification

    from qkv.transformers import QkvConfig

    model: Any = AutoModelForSequenceClassification.from_config(config(bert(), num_labels=3)).eval()
    column = torch.tensor([[0], [2], [1]])
    torch.testing.assert_close(model(IDS, labels=column).loss, model(IDS, labels=column[:, 0]).loss)
    for labels, said in (
        (torch.tensor([5, 0, 1]), "labels range from 0 to 5, and there are 3 classes; give 0 to 2"),
        (torch.tensor([1, 0]), r"labels have the shape \(2,\), not \(3,\); give each text one"),
        (torch.rand(3, 2), r"labels have the shape \(3, 2\), not \(3, 3\); give each class of each text one"),
        ([1, 0, 2], r"labels are a tensor of the shape \(3,\), not \[1, 0, 2\], a list"),
    ):
        with pytest.raises(ValueError, match=said):
            model(IDS, labels=labels)
    with pytest.raises(ValueError, match=r"the spec of a QkvConfig is a Transformer, such as .*, not 'llama', a str"):
        QkvConfig(spec="llama")
