"""CLIP (Radford et al. 2021): a ViT and a causal Transformer as two towers, each with a projection without bias."""

from __future__ import annotations

from typing import Any

from ...nn.attention.multi_head import Attention
from ...nn.layers.embedding import Embedding
from ...nn.layers.feedforward import Activation, FeedForward
from ...nn.layers.norm import LayerNorm
from ...nn.layers.patches import Size
from ...nn.models.block import Block
from ...nn.models.dual_encoder import DualEncoder
from ...nn.models.heads.sequence import Projection
from ...nn.models.initialization import Glorot, Normal
from ...nn.models.stack import Stack
from ...nn.models.transformer import Transformer
from ...nn.patterns.basic import Full, causal
from ...nn.positions.absolute import Learned
from .vit import vit


def image_tower(
    *, width: int = 512, eps: float = 1e-5, activation: Activation = "gelu-quick", **sizes: Any
) -> Transformer:
    """CLIP's ViT, which also normalizes embedded patches and has no bias there, with a projection of the class token."""
    tower = vit(**sizes, eps=eps, activation=activation, head=False)
    return tower.replace(
        {
            "encoder.embedding.bias": False,
            "encoder.embedding.norm": LayerNorm(eps=eps),
            "head": Projection(width=width),
        }
    )


def text_tower(
    *,
    vocab_size: int = 49408,
    width: int = 512,
    d_model: int = 512,
    n_layers: int = 12,
    n_heads: int = 8,
    d_ff: int = 2048,
    activation: Activation = "gelu-quick",
    eps: float = 1e-5,
    dropout: float = 0.0,
    attention_dropout: float = 0.0,
    max_positions: int = 77,
    masked: bool = True,
    bias: bool = False,
) -> Transformer:
    """A pre-norm stack with learned positions, causal if `masked`, and a projection of the last token."""
    block = Block(
        attention=Attention(n_heads=n_heads, dropout=attention_dropout, pattern=causal() if masked else Full()),
        feedforward=FeedForward(d_ff=d_ff, activation=activation),
        norm=LayerNorm(eps=eps),
        dropout=dropout,
    )
    stack = Stack(
        embedding=Embedding(dropout=dropout), position=Learned(), blocks=(block,) * n_layers, norm=LayerNorm(eps=eps)
    )
    return Transformer(
        vocab_size=vocab_size,
        d_model=d_model,
        max_positions=max_positions,
        encoder=stack,
        head=Projection(width=width, pool="last", bias=bias),
        initialization=Normal(scale_residual=False),
    )


def clip(
    *,
    vocab_size: int = 49408,
    width: int = 512,
    image: Size = (224, 224),
    patch: Size = (32, 32),
    channels: int = 3,
    stem: tuple[int, ...] = (),
    d_model: int = 768,
    n_layers: int = 12,
    n_heads: int = 12,
    d_ff: int = 3072,
    text_d_model: int = 512,
    text_layers: int = 12,
    text_heads: int = 8,
    text_d_ff: int = 2048,
    activation: Activation = "gelu-quick",
    dropout: float = 0.0,
    attention_dropout: float = 0.0,
    max_positions: int = 77,
    temperature: float = 0.07,
    bias: float | None = None,
) -> DualEncoder:
    """Two towers whose vectors have the width `width`: an image tower of `d_model`, `n_layers` … over patches, and a text
    tower of `text_d_model`, `text_layers` … that reads at most `max_positions` tokens. `bias` is SigLIP's b."""
    shared: dict[str, Any] = {
        "width": width,
        "activation": activation,
        "dropout": dropout,
        "attention_dropout": attention_dropout,
    }
    pixels: dict[str, Any] = {"image": image, "patch": patch, "channels": channels, "stem": stem}
    return DualEncoder(
        image=image_tower(**pixels, d_model=d_model, n_layers=n_layers, n_heads=n_heads, d_ff=d_ff, **shared),
        text=text_tower(
            vocab_size=vocab_size,
            d_model=text_d_model,
            n_layers=text_layers,
            n_heads=text_heads,
            d_ff=text_d_ff,
            max_positions=max_positions,
            **shared,
        ),
        temperature=temperature,
        bias=bias,
        initialization=Glorot(),  # by the width, as CLIP's
    )


_LARGE: dict[str, Any] = {
    "patch": (14, 14), "d_model": 1024, "n_layers": 24, "n_heads": 16, "d_ff": 4096,
    "width": 768, "text_d_model": 768, "text_heads": 12, "text_d_ff": 3072,
}  # fmt: skip

SIZES: dict[str, dict[str, Any]] = {
    "clip": {},
    "clip-vit-base-32": {},
    "clip-vit-base-16": {"patch": (16, 16)},
    "clip-vit-large-14": _LARGE,
    "clip-vit-large-14-336": {**_LARGE, "image": (336, 336)},
}

PRESETS = [(clip, SIZES)]
