"""Whisper beside transformers: logits, states, greedy and beam outputs, and directories both ways."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import qkv
from qkv.generation import generate
from qkv.io.families.whisper import whisper

transformers = pytest.importorskip("transformers")

TINY: dict[str, Any] = {
    "vocab_size": 97,
    "num_mel_bins": 6,
    "d_model": 32,
    "encoder_layers": 2,
    "encoder_attention_heads": 4,
    "encoder_ffn_dim": 48,
    "decoder_layers": 1,
    "decoder_attention_heads": 2,
    "decoder_ffn_dim": 40,
    "max_source_positions": 13,
    "max_target_positions": 24,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 5,
    "decoder_start_token_id": 1,
}

UNUSUAL: list[dict[str, Any]] = [
    {"num_mel_bins": 1},
    {"num_mel_bins": 128, "d_model": 48, "decoder_attention_heads": 3},
    {"encoder_layers": 1, "decoder_layers": 3},
    {"encoder_layers": 4, "encoder_attention_heads": 1},
    {"decoder_attention_heads": 16},
    {"encoder_ffn_dim": 7, "decoder_ffn_dim": 129},
    {"activation_function": "relu"},
    {"activation_function": "gelu_new"},
    {"scale_embedding": True},
    {"max_source_positions": 1},
    {"max_source_positions": 201, "max_target_positions": 9},
    {"d_model": 6, "encoder_attention_heads": 3, "decoder_attention_heads": 1},
    {"vocab_size": 7, "decoder_start_token_id": 6},
    {"dropout": 0.3, "attention_dropout": 0.2, "activation_dropout": 0.1, "encoder_layerdrop": 0.1},
    {"architectures": ["WhisperModel"]},
]


def saved(folder: Path, changes: dict[str, Any], generation: dict[str, Any] | None = None) -> Any:
    """A model of transformers with random weights, in a directory too."""
    torch.manual_seed(len(str(changes)))
    config = transformers.WhisperConfig(**{**TINY, **changes})
    bare = changes.get("architectures") == ["WhisperModel"]
    model = (transformers.WhisperModel if bare else transformers.WhisperForConditionalGeneration)(config).eval()
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.data += 0.2 * torch.randn_like(parameter)
    if not bare:
        for key, value in {"begin_suppress_tokens": None, **(generation or {})}.items():
            setattr(model.generation_config, key, value)
    model.save_pretrained(folder)
    return model


def check(tmp_path: Path, changes: dict[str, Any], generation: dict[str, Any] | None = None) -> None:
    theirs = saved(tmp_path / "theirs", changes, generation)
    config = theirs.config
    run = qkv.load(tmp_path / "theirs", device="cpu")
    features = torch.randn(2, config.num_mel_bins, 2 * config.max_source_positions)
    ids = torch.randint(0, config.vocab_size, (2, 5))
    with torch.no_grad():
        out = theirs(input_features=features, decoder_input_ids=ids)
        wanted = out.last_hidden_state if "last_hidden_state" in out else out.logits
        torch.testing.assert_close(run.model(features, ids), wanted, atol=2e-5, rtol=1e-4)
        states = run.model.encoder(*run.model.encoder.embedding.lay(features, None))
        torch.testing.assert_close(states, out.encoder_last_hidden_state, atol=2e-5, rtol=1e-4)
    run.save(tmp_path / "ours")
    again, info = type(theirs).from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not any(info.values())
    for name, tensor in theirs.state_dict().items():
        assert torch.equal(again.state_dict()[name], tensor), name
    before, after = (json.loads((tmp_path / name / "config.json").read_text()) for name in ("theirs", "ours"))
    assert before == after
    if not hasattr(theirs, "proj_out"):
        return
    settings = json.loads((tmp_path / "ours" / "generation_config.json").read_text())
    assert settings | (generation or {}) == settings
    start = torch.full((2, 1), config.decoder_start_token_id)
    for beams in (1, 3):
        plain = transformers.GenerationMixin.generate(
            theirs, features, decoder_input_ids=start, max_new_tokens=7, num_beams=beams, do_sample=False
        )
        ours = generate(
            run.model,
            features,
            bos_id=config.decoder_start_token_id,
            eos_id=config.eos_token_id,
            max_new_tokens=7,
            num_beams=beams,
            processors=run.ids.processors(1, 7),
        )
        for row, sequence in zip(plain[:, 1:].tolist(), ours.sequences, strict=True):
            assert row[: len(sequence[0])] == list(sequence[0]), (changes, beams)


def test_a_tiny_model_is_the_same_both_ways(tmp_path: Path) -> None:
    check(tmp_path, {}, {"suppress_tokens": [3, 9, 55], "begin_suppress_tokens": [4, 5], "alignment_heads": [[0, 1]]})


@pytest.mark.slow
@pytest.mark.parametrize("changes", UNUSUAL, ids=str)
def test_unusual_models_are_the_same_both_ways(changes: dict[str, Any], tmp_path: Path) -> None:
    check(tmp_path, changes)


def test_an_odd_number_of_frames_and_other_convolutions_are_no_whisper(tmp_path: Path) -> None:
    """max_source_positions counts pairs of frames, so the directory is written for qkv's own Auto classes."""
    spec = whisper(vocab_size=9, mels=4, frames=7, d_model=8, n_layers=1, n_heads=2, d_ff=8, max_positions=6)
    for name, changes in (("odd", {}), ("stem", {"frames": 8, "stem": (3, 4)})):
        other = spec.replace({f"encoder.embedding.{field}": value for field, value in changes.items()})
        qkv.Run(qkv.build(other), None).save(tmp_path / name, "hub")
        assert json.loads((tmp_path / name / "config.json").read_text())["model_type"] == "qkv"


def test_sizes_out_of_range_name_their_key(tmp_path: Path) -> None:
    saved(tmp_path, {})
    path = tmp_path / "config.json"
    for key in ("num_mel_bins", "max_source_positions", "max_target_positions"):
        config = json.loads(path.read_text())
        path.write_text(json.dumps({**config, key: -1}))
        with pytest.raises(ValueError, match=f"{key} must be an integer from 1"):
            qkv.load(tmp_path)
        path.write_text(json.dumps(config))
