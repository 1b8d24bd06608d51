"""A tiny Whisper with random weights, in a directory as the Hub has it: model, tokenizer, and settings of both."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from qkv.data.media.audio import Wave
from qkv.nn.layers.frames import Frames
from qkv.runs.inference.run import Run
from qkv.runs.inference.transcribe import Thresholds, TranscribeSettings
from qkv.runs.inference.transcribe.codes import Codes
from qkv.runs.inference.transcribe.listening import Listening
from qkv.runs.inference.transcribe.whisper import LongForm

ALWAYS = Thresholds(None, None, None)
STEPS = 50  # of a window of one second
NAMES = [
    "<|endoftext|>",
    "<|startoftranscript|>",
    "<|en|>",
    "<|de|>",
    "<|ja|>",
    "<|translate|>",
    "<|transcribe|>",
    "<|startofprev|>",
    "<|nospeech|>",
    "<|notimestamps|>",
]


def tokenizer() -> Tokenizer:
    """Bytes, some pairs of them, and Whisper's special tokens."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    pairs = [("Ġ", "a"), ("Ġ", "t"), ("t", "h"), ("i", "n"), ("Ġt", "h")]
    vocabulary = {token: i for i, token in enumerate([*letters, *("".join(pair) for pair in pairs)])}
    made = Tokenizer(models.BPE(vocabulary, pairs))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens([AddedToken(name, special=True) for name in NAMES])
    made.add_tokens([AddedToken(f"<|{i / 50:.2f}|>", special=False) for i in range(STEPS + 1)])
    return made


def save(folder: Path, seed: int = 0, loud: float = 3.0, **generation: Any) -> Any:
    """Write the directory; return the model of transformers."""
    words = tokenizer()
    number = words.token_to_id
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(seed)
    end, size = number("<|endoftext|>"), words.get_vocab_size()
    config = transformers.WhisperConfig(
        vocab_size=size, num_mel_bins=8, d_model=32, encoder_layers=1, encoder_attention_heads=2, encoder_ffn_dim=32,
        decoder_layers=2, decoder_attention_heads=4, decoder_ffn_dim=32, max_source_positions=STEPS,
        max_target_positions=64, pad_token_id=end, bos_token_id=end, eos_token_id=end,
        decoder_start_token_id=number("<|startoftranscript|>"), median_filter_width=3,
    )  # fmt: skip
    model = transformers.WhisperForConditionalGeneration(config).eval()
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            scale = loud if "decoder.embed" in name else 0.3
            parameter.data += scale * torch.randn_like(parameter)
    settings = {
        "is_multilingual": True,
        "lang_to_id": {name: number(name) for name in ("<|en|>", "<|de|>", "<|ja|>")},
        "task_to_id": {name: number(f"<|{name}|>") for name in ("transcribe", "translate")},
        "no_timestamps_token_id": number("<|notimestamps|>"),
        "prev_sot_token_id": number("<|startofprev|>"),
        "max_initial_timestamp_index": 20,
        "alignment_heads": [[0, 1], [1, 2], [1, 3]],
        "suppress_tokens": [1, 2, number("<|startoftranscript|>"), number("<|startofprev|>"), number("<|nospeech|>")],
        "begin_suppress_tokens": [220, end],
        "return_timestamps": False,
        "max_length": 64,
        **generation,
    }
    for key, value in settings.items():
        setattr(model.generation_config, key, value)
    model.save_pretrained(folder)
    words.save(str(folder / "tokenizer.json"))
    about = {"tokenizer_class": "WhisperTokenizer", "eos_token": "<|endoftext|>", "bos_token": "<|endoftext|>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(about))
    transformers.WhisperFeatureExtractor(feature_size=8, chunk_length=1).save_pretrained(folder)
    return model


def noise(seconds: float, seed: int = 0) -> Wave:
    random = np.random.default_rng(seed)
    loudness = np.repeat(random.uniform(0, 1, int(seconds * 16) + 1), 1000)[: int(seconds * 16_000)]
    return (random.normal(0, 0.1, len(loudness)) * loudness).astype(np.float32)


def long_form(run: Run, **options: Any) -> LongForm:
    frames = run.model.spec.encoder.embedding
    assert isinstance(frames, Frames)
    settings = TranscribeSettings(**{"temperatures": (0.0,), "thresholds": ALWAYS, **options})
    return LongForm(run, Codes.of(run), Listening.of(run.path, frames), settings)
