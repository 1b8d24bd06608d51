"""Decoders and encoder–decoders of transformers' Auto classes generate as qkv alone does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from auto_models import DECODERS, IDS, MASK, SIZES, bert, config, loaded_again, until_end

import qkv

pytestmark = pytest.mark.slow  # importing transformers' models takes seconds


@pytest.mark.parametrize("name", DECODERS)
def test_decoders_are_saved_loaded_and_generate_as_by_qkv_alone(name: str, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    spec = DECODERS[name]()
    alone = qkv.build(spec, seed=0).eval()
    model = loaded_again(AutoModelForCausalLM, AutoModelForCausalLM.from_config(config(spec)), tmp_path)
    with torch.no_grad():
        assert torch.equal(model(IDS, attention_mask=MASK).logits, alone(IDS, attention_mask=MASK))
        for beams in (1, 3):
            theirs = model.generate(IDS, attention_mask=MASK, max_new_tokens=8, num_beams=beams, do_sample=False)
            plain = model.generate(
                IDS, attention_mask=MASK, max_new_tokens=8, num_beams=beams, do_sample=False, use_cache=False
            )
            ours = alone.generate(IDS, attention_mask=MASK, max_new_tokens=8, num_beams=beams, eos_id=2)
            for row, (one, other) in enumerate(zip(theirs.tolist(), plain.tolist(), strict=True)):
                assert one == other, row
            if beams == 1:
                assert until_end(theirs[:, 7:]) == until_end(ours[:, 7:])


def test_encoders_and_encoder_decoders_compute_as_by_qkv_alone(tmp_path: Path) -> None:
    from transformers import AutoModel, AutoModelForMaskedLM, AutoModelForSeq2SeqLM

    spec = bert(**{"encoder__blocks__*__attention": qkv.Performer(n_heads=2)})
    alone = qkv.build(spec, seed=0).eval()
    model = loaded_again(AutoModelForMaskedLM, AutoModelForMaskedLM.from_config(config(spec)), tmp_path / "masked")
    with torch.no_grad():
        torch.testing.assert_close(model(IDS, attention_mask=MASK).logits, alone(IDS, attention_mask=MASK))
        headless = AutoModel.from_pretrained(tmp_path / "masked").eval()
        hidden = headless(IDS, attention_mask=MASK, output_hidden_states=True)
        torch.testing.assert_close(hidden.last_hidden_state, alone.hidden(IDS, attention_mask=MASK))
        assert len(hidden.hidden_states) == 3 and torch.equal(hidden.hidden_states[-1], hidden.last_hidden_state)
    spec = qkv.preset("transformer-base", **SIZES)
    alone = qkv.build(spec, seed=0).eval()
    auto: Any = AutoModelForSeq2SeqLM
    model = loaded_again(auto, auto.from_config(config(spec, decoder_start_token_id=1)), tmp_path / "translation")
    with torch.no_grad():
        logits = model(input_ids=IDS, attention_mask=MASK, decoder_input_ids=IDS[:, :4], output_attentions=True)
        torch.testing.assert_close(logits.logits, alone(IDS, IDS[:, :4], attention_mask=MASK))
        assert [len(logits[f"{part}_attentions"]) for part in ("encoder", "decoder", "cross")] == [2, 2, 2]
        theirs = model.generate(IDS, attention_mask=MASK, max_new_tokens=8, do_sample=False)
        ours = alone.generate(IDS, attention_mask=MASK, max_new_tokens=8, bos_id=1, eos_id=2)
        assert until_end(theirs[:, 1:]) == until_end(ours[:, 1:])
