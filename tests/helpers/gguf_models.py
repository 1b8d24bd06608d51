"""A tiny model of every architecture that GGUF files are written for, and a byte-level tokenizer."""

from __future__ import annotations

from typing import Any

import torch

from qkv.data.tokenizers.tokenizer import Tokenizer, train
from qkv.data.tokenizers.tokenizer_json import TokenizerExtra, checked
from qkv.data.tokenizers.training.bpe import BPE
from qkv.io.directories.build import build
from qkv.io.directories.origin import Origin
from qkv.io.families import preset
from qkv.nn.positions.rope_scaling import LinearScaling, Llama3Scaling, LongRoPE, YaRN
from qkv.nn.positions.rotary import Rotary

SIZES: dict[str, Any] = {"vocab_size": 96, "d_model": 64, "n_layers": 4, "n_heads": 4}
LENGTH = {**SIZES, "max_positions": 64}
LLAMA = {**LENGTH, "n_kv_heads": 2, "d_ff": 96}
EXPERTS = {**LENGTH, "d_expert": 32, "n_experts": 4, "top_k": 2, "n_kv_heads": 2}
GEMMA = {**LLAMA, "d_head": 32, "query_width": 32, "windows": 16, "n_layers": 6}
LONG = LongRoPE(short_factor=(1.0,) * 8, long_factor=(2.0,) * 8, original_max_positions=512, factor=2.0)
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "gpt2": ("gpt2", LENGTH),
    "gpt2 with its own output": ("gpt2", {**LENGTH, "tied": False, "d_ff": 160}),
    "starcoder": ("starcoder", LENGTH),
    "pythia": ("pythia-160m", {**LENGTH, "d_ff": 96}),
    "pythia, sequential and tied": ("pythia-160m", {**LENGTH, "d_ff": 96, "parallel": False, "tied": True}),
    "bloom": ("bloom-560m", SIZES),
    "mpt": ("mpt-7b", LENGTH),
    "falcon 7b": ("falcon-7b", LENGTH),
    "falcon 40b": ("falcon-40b", {**LENGTH, "n_kv_heads": 2}),
    "llama": ("llama", LLAMA),
    "llama with biases": (
        "llama",
        {**LLAMA, "attention_bias": True, "feedforward_bias": True, "d_head": 32, "tied": True},
    ),
    "linear": ("llama", {**LLAMA, "position": Rotary(scaling=LinearScaling(factor=2.0))}),
    "yarn": ("llama", {**LLAMA, "position": Rotary(scaling=YaRN(factor=4.0, original_max_positions=16))}),
    "llama3": (
        "llama",
        {
            **LLAMA,
            "d_head": 32,
            "position": Rotary(base=5e5, scaling=Llama3Scaling(factor=8.0, original_max_positions=8192)),
        },
    ),
    "llama3, other factors": (
        "llama",
        {
            **LLAMA,
            "d_head": 32,
            "position": Rotary(
                scaling=Llama3Scaling(
                    factor=3.0, low_freq_factor=1.5, high_freq_factor=20.0, original_max_positions=500
                )
            ),
        },
    ),
    "mistral": ("mistral-7b", {**LLAMA, "windows": 64}),
    "mixtral": ("mixtral-8x7b", {**LLAMA, "n_experts": 4}),
    "qwen2": ("qwen2-7b", LLAMA),
    "qwen3": ("qwen3-0.6b", {**LLAMA, "d_head": 32}),
    "qwen2moe": ("qwen1.5-moe-a2.7b", {**EXPERTS, "d_shared": 64, "d_ff": 64}),
    "qwen3moe": ("qwen3-30b-a3b", {**EXPERTS, "d_head": 32, "d_ff": 64}),
    "olmo2": ("olmo-2-7b", LLAMA),
    "smollm3": ("smollm3-3b", LLAMA),
    "granite": ("granite-3.1-2b", LLAMA),
    "granite with biases": ("granite-3.1-2b", {**LLAMA, "attention_bias": True, "feedforward_bias": True}),
    "granite, llama3": (
        "granite-3.1-2b",
        {**LLAMA, "position": Rotary(scaling=Llama3Scaling(factor=4.0, original_max_positions=64))},
    ),
    "phi3": ("phi-3-mini", {**LLAMA, "windows": None}),
    "phi3, a part of each head": ("phi-3-mini", {**LLAMA, "windows": None, "position": Rotary(fraction=0.75)}),
    "longrope": ("phi-3-mini", {**LLAMA, "max_positions": 1024, "windows": None, "position": Rotary(scaling=LONG)}),
    "gemma2": ("gemma-2-2b", GEMMA),
    "gemma3": ("gemma-3-1b", GEMMA),
}
TEXT = ["the cat sat on the mat, and it's 123 o'clock.", "a mate of the cat: mates, mats; hats! <de>"] * 3


def made(name: str) -> Any:
    kind, sizes = CASES[name]
    model = build(preset(kind, **sizes), seed=3).eval()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():  # no bias is 0 and no norm 1
            parameter += 0.1 * torch.randn(parameter.shape, generator=generator)
    return model


def origin_of(name: str) -> Origin | None:
    """A model that two families can express is written as the one that it came from."""
    return Origin({"model_type": "phi3"}) if CASES[name][0].startswith("phi") else None


def trained(**settings: Any) -> Tokenizer:
    return train(BPE(vocab_size=300, special=("<de>",), **settings), TEXT)


def pieces(unigram: bool) -> Tokenizer:
    """A tokenizer as SentencePiece makes it: BPE by scores that falls back to bytes, as Llama's, or the unigram model."""
    from qkv.data.tokenizers.pipelines import BYTES
    from qkv.data.tokenizers.sentencepiece.model_file import ModelType, Piece, PieceKind, SentencePiece
    from qkv.data.tokenizers.sentencepiece.pipeline import pipeline

    characters = sorted({character for text in TEXT for character in text.replace(" ", "▁")})
    words = ["▁t", "he", "▁the", "at", "▁c", "▁cat", "▁m", "▁mat", "s", "▁mats", "ma", "te", "▁hats", "ha", "ats"]
    normal = dict.fromkeys([*words, *characters])
    control = [
        Piece("<unk>", 0.0, PieceKind.UNKNOWN),
        Piece("<s>", 0.0, PieceKind.CONTROL),
        Piece("</s>", 0.0, PieceKind.CONTROL),
    ]
    bytes_ = [] if unigram else [Piece(name, 0.0, PieceKind.BYTE) for name in BYTES]
    ranked = [Piece(text, -1.0 - i, PieceKind.NORMAL) for i, text in enumerate(normal)]
    model = SentencePiece(
        (*control, *bytes_, *ranked),
        ModelType.UNIGRAM if unigram else ModelType.BPE,
        byte_fallback=not unigram,
        remove_extra_whitespaces=unigram,
    )
    return Tokenizer(checked(pipeline(model)), TokenizerExtra({"unk": "<unk>", "bos": "<s>", "eos": "</s>"}))
