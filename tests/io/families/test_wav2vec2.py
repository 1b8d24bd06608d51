"""wav2vec 2.0 and HuBERT beside transformers: logits and states, padded and not, and directories both ways."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import qkv
from qkv.data.media.audio import encode
from qkv.data.media.audio import read as read_sound

transformers = pytest.importorskip("transformers")

TINY: dict[str, Any] = {
    "vocab_size": 19,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 40,
    "conv_dim": [16, 16, 24],
    "conv_kernel": [10, 3, 2],
    "conv_stride": [5, 2, 2],
    "num_conv_pos_embeddings": 8,
    "num_conv_pos_embedding_groups": 4,
}
STABLE = {"do_stable_layer_norm": True, "feat_extract_norm": "layer", "conv_bias": True}

UNUSUAL: list[tuple[str, dict[str, Any]]] = [
    ("Wav2Vec2ForCTC", STABLE),
    ("Wav2Vec2ForCTC", {"feat_extract_norm": "layer"}),
    ("Wav2Vec2ForCTC", {"do_stable_layer_norm": True}),
    ("Wav2Vec2ForCTC", {"num_conv_pos_embeddings": 7, "num_conv_pos_embedding_groups": 1}),
    ("Wav2Vec2ForCTC", {"num_conv_pos_embeddings": 1, "num_conv_pos_embedding_groups": 32}),
    ("Wav2Vec2ForCTC", {"conv_dim": [8], "conv_kernel": [3], "conv_stride": [7], "conv_bias": True}),
    ("Wav2Vec2ForCTC", {"hidden_act": "relu", "feat_extract_activation": "silu"}),
    ("Wav2Vec2ForCTC", {"pad_token_id": 7, "ctc_zero_infinity": True, "vocab_size": 9}),
    ("Wav2Vec2ForCTC", {"layer_norm_eps": 1e-2, **STABLE}),
    ("Wav2Vec2ForCTC", {"hidden_size": 12, "num_attention_heads": 1, "num_hidden_layers": 4}),
    ("Wav2Vec2Model", {}),
    ("Wav2Vec2Model", {**STABLE, "mask_time_prob": 0.0}),
    ("HubertForCTC", {}),
    ("HubertForCTC", {"feat_proj_layer_norm": False}),
    ("HubertForCTC", {**STABLE, "hidden_act": "gelu_new"}),
    ("HubertModel", {"feat_proj_layer_norm": False, "num_hidden_layers": 1}),
]


def saved(folder: Path, cls: str, changes: dict[str, Any]) -> Any:
    """A model of transformers with random weights, in a directory too."""
    torch.manual_seed(len(str(changes)))
    make = getattr(transformers, cls)
    model = make(make.config_class(**{**TINY, **changes})).eval()
    for parameter in model.parameters():
        parameter.data += 0.2 * torch.randn_like(parameter)
    model.save_pretrained(folder)
    return model


def outputs(model: Any, samples: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
    with torch.no_grad():
        out = model(samples, attention_mask=mask)
    return out.last_hidden_state if "last_hidden_state" in out else out.logits


def check(tmp_path: Path, cls: str, changes: dict[str, Any]) -> None:
    theirs = saved(tmp_path / "theirs", cls, changes)
    run, samples = qkv.load(tmp_path / "theirs", device="cpu"), torch.randn(2, 403)
    with torch.no_grad():
        torch.testing.assert_close(run.model(samples), outputs(theirs, samples), atol=3e-5, rtol=1e-4)
    masked(theirs, run.model, samples)
    run.save(tmp_path / "ours")
    again, info = type(theirs).from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not info["unexpected_keys"] and {name.rpartition(".")[2] for name in info["missing_keys"]} <= {
        "masked_spec_embed"
    }
    for name, tensor in theirs.state_dict().items():
        assert name.endswith("masked_spec_embed") or torch.equal(again.state_dict()[name], tensor), name
    before, after = (json.loads((tmp_path / name / "config.json").read_text()) for name in ("theirs", "ours"))
    assert before == after


def masked(theirs: Any, ours: Any, samples: torch.Tensor) -> None:
    """With padding, each row gives what it gives alone; so does transformers where no statistics run over time."""
    short = 260
    mask = torch.ones_like(samples, dtype=torch.int64)
    mask[1, short:] = 0
    padded = samples * mask
    with torch.no_grad():
        out, alone = ours(padded, attention_mask=mask), outputs(theirs, padded[1:, :short])
    torch.testing.assert_close(out[1:, : alone.shape[1]], alone, atol=3e-5, rtol=1e-4)
    torch.testing.assert_close(out[:1], outputs(theirs, padded[:1]), atol=3e-5, rtol=1e-4)
    if theirs.config.feat_extract_norm == "layer":
        wanted = outputs(theirs, padded, mask)
        torch.testing.assert_close(out[1, : alone.shape[1]], wanted[1, : alone.shape[1]], atol=3e-5, rtol=1e-4)


def test_a_tiny_model_is_the_same_both_ways(tmp_path: Path) -> None:
    check(tmp_path, "Wav2Vec2ForCTC", {})


@pytest.mark.slow
@pytest.mark.parametrize(("cls", "changes"), UNUSUAL, ids=str)
def test_unusual_models_are_the_same_both_ways(cls: str, changes: dict[str, Any], tmp_path: Path) -> None:
    check(tmp_path, cls, changes)


@pytest.mark.slow
def test_weight_norm_is_read_in_its_older_spelling(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    theirs = saved(tmp_path, "Wav2Vec2ForCTC", {})
    file = tmp_path / "model.safetensors"
    long, short = "parametrizations.weight.original", "weight_"
    tensors = {
        name.replace(f"{long}0", f"{short}g").replace(f"{long}1", f"{short}v"): t for name, t in load_file(file).items()
    }
    assert f"wav2vec2.encoder.pos_conv_embed.conv.{short}g" in tensors
    save_file(tensors, file, {"format": "pt"})
    samples = torch.randn(1, 300)
    with torch.no_grad():
        torch.testing.assert_close(
            qkv.load(tmp_path, device="cpu").model(samples), outputs(theirs, samples), atol=3e-5, rtol=1e-4
        )


LETTERS = ["<pad>", "<s>", "</s>", "<unk>", "|", *"ETAOINSHRDLU'"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("features", "lower"), [("layer", False), ("layer", True), ("group", False)], ids=["layer", "lower", "group"]
)
def test_transcripts_are_those_of_transformers(features: str, lower: bool, tmp_path: Path) -> None:
    changes = {"vocab_size": len(LETTERS), "feat_extract_norm": features}
    theirs = saved(tmp_path / "theirs", "Wav2Vec2ForCTC", changes)
    (tmp_path / "vocab.json").write_text(json.dumps({letter: i for i, letter in enumerate(LETTERS)}))
    words = transformers.Wav2Vec2CTCTokenizer(str(tmp_path / "vocab.json"), do_lower_case=lower)
    sounds = transformers.Wav2Vec2FeatureExtractor(do_normalize=True, sampling_rate=8000)
    transformers.Wav2Vec2Processor(sounds, words).save_pretrained(tmp_path / "theirs")
    run = qkv.load(tmp_path / "theirs", device="cpu")
    waves = [np.random.default_rng(i).normal(0, 0.1, n).astype(np.float32) for i, n in enumerate((900, 2000, 1300))]
    files = [tmp_path / f"{i}.wav" for i in range(len(waves))]
    wanted = []
    for file, wave in zip(files, waves, strict=True):
        file.write_bytes(encode(wave, 8000))
        read, _ = read_sound(file)
        path = outputs(theirs, sounds(read, sampling_rate=8000, return_tensors="pt").input_values)[0].argmax(-1)
        wanted.append(words.decode(path))
    assert [one.value for one in run.predict(list(map(str, files)))] == wanted
    text = "the door's loud" if lower else "THE DOOR'S LOUD É"
    assert run.words.encode(text) == words(text).input_ids
    assert run.words.decode(run.words.encode(text), skip_special=False) == words.decode(
        words(text).input_ids, group_tokens=False
    )


def test_a_directory_that_does_not_say_how_sounds_are_read_is_refused(tmp_path: Path) -> None:
    saved(tmp_path, "Wav2Vec2ForCTC", {})
    with pytest.raises(ValueError, match="doesn't say how sounds are read; put the model's own preprocessor_config"):
        list(qkv.load(tmp_path, device="cpu").predict(["a.wav"]))
