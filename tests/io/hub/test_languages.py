"""Models of many languages: their tokens, and the first token that is forced, against transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import qkv
from qkv.io.hub.languages import languages_of
from qkv.runs.inference.run import Run

transformers = pytest.importorskip("transformers", reason="parity is with Hugging Face's transformers")
LETTERS = "abcdefgh"
SIZES = {
    "d_model": 16,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 16,
    "decoder_ffn_dim": 16,
    "max_position_embeddings": 40,
}


def made(folder: Path, name: str) -> tuple[Any, Any, Run]:
    """Their model and tokenizer, saved to a folder, and the run that is loaded from there."""
    torch.manual_seed(7)
    if name == "nllb":
        pieces = ["<s>", "<pad>", "</s>", "<unk>", "▁", *LETTERS]
        tokenizer = transformers.NllbTokenizer(vocab={piece: i for i, piece in enumerate(pieces)}, merges=[])
        config, cls = transformers.M2M100Config, transformers.M2M100ForConditionalGeneration
    else:
        pieces = [
            ("<s>", 0.0),
            ("<pad>", 0.0),
            ("</s>", 0.0),
            ("<unk>", 0.0),
            ("▁", -2.0),
            *((c, -3.0) for c in LETTERS),
        ]
        kind = transformers.MBart50Tokenizer if name == "mbart50" else transformers.MBartTokenizer
        tokenizer = kind(vocab=pieces)
        config, cls = transformers.MBartConfig, transformers.MBartForConditionalGeneration
    roles = {"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 2}
    if name == "mbart":
        roles["decoder_start_token_id"] = tokenizer.convert_tokens_to_ids("de_DE")
    model = cls(config(vocab_size=len(tokenizer), forced_eos_token_id=None, **roles, **SIZES)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return model, tokenizer, qkv.load(folder, device="cpu")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "source", "target"),
    [("nllb", "deu_Latn", "fra_Latn"), ("mbart50", "fr_XX", "ar_AR"), ("mbart", "en_XX", "ro_RO")],
)
def test_outputs_between_two_languages(name: str, source: str, target: str, tmp_path: Path) -> None:
    model, tokenizer, run = made(tmp_path, name)
    texts = ["abc", "h", "dead beef"]
    tokenizer.src_lang = source
    given = tokenizer(texts, return_tensors="pt", padding=True)
    first = tokenizer.convert_tokens_to_ids(target)
    begins = {"decoder_start_token_id": first} if name == "mbart" else {"forced_bos_token_id": first}
    expected = model.generate(**given, max_new_tokens=12, num_beams=1, do_sample=False, **begins)
    between = run.between(source, target)
    rows = zip(given.input_ids, given.attention_mask.bool(), strict=True)
    assert [between.encode(text) for text in texts] == [ids[real].tolist() for ids, real in rows]
    assert between.generate(texts, max_new_tokens=12) == tokenizer.batch_decode(expected, skip_special_tokens=True)
    assert source in languages_of(run.words) and "</s>" not in languages_of(run.words)
    outputs = between.outputs(texts, between.settings(max_new_tokens=12))
    if name != "mbart":
        assert all(samples[0].tokens[0] == target for samples in outputs)


@pytest.mark.slow
def test_a_language_that_there_is_not_is_named(tmp_path: Path) -> None:
    *_, run = made(tmp_path, "nllb")
    with pytest.raises(ValueError, match="has no language 'deu_Latin'; did you mean 'deu_Latn'"):
        run.between("deu_Latin", "fra_Latn")
    with pytest.raises(ValueError, match="doesn't translate among languages"):
        qkv.load("small-english").between("en", "de")
