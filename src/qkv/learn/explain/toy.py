"""Small models with round weights, whose numbers are the worked examples of explanations that need a whole model."""

from __future__ import annotations

import torch
from torch import nn

from ...generation import Generation
from ...nn.attention.multi_head import Attention
from ...nn.layers.feedforward import FeedForward
from ...nn.layers.norm import LayerNorm
from ...nn.models.block import Block
from ...nn.models.build import AnyModel, build
from ...nn.models.heads.language_model import LanguageModel
from ...nn.models.stack import Stack
from ...nn.models.transformer import Transformer
from ...nn.patterns.basic import causal
from ...nn.positions.absolute import Sinusoidal
from .subject import Subject

SOURCE = ("she", "saw", "a", "red", "boat")
TARGET = ("<s>", "sie", "sah", "ein", "rotes", "Boot", "</s>")
TEXT = ("a", "cat", "saw", "a", "mat")
VOCABULARY = ("a", "cat", "mat", "saw", "the", "</s>")

D_MODEL, HEADS = 4, 2


def translator(written: int = 2) -> Subject:
    """An untrained encoder–decoder that has read five source words and written some target words."""
    words = (*SOURCE, *TARGET)
    target = TARGET[: written + 1]
    return Subject(
        name="the example",
        about="An untrained Transformer of width 4 with one layer, two heads and round weights.",
        model=_model(len(words), cross=True),
        ids=tuple(range(len(SOURCE))),
        tokens=SOURCE,
        target=tuple(range(len(SOURCE), len(SOURCE) + len(target))),
        target_tokens=target,
        start=len(SOURCE),
        ends=(len(words) - 1,),
        generation=Generation(num_beams=2, max_new_tokens=4),
        words=words,
    )


def language_model() -> Subject:
    """An untrained decoder that has read five words."""
    ids = tuple(map(VOCABULARY.index, TEXT))
    return Subject(
        name="the example",
        about="An untrained decoder of width 4 with one layer, two heads and round weights.",
        model=_model(len(VOCABULARY), cross=False),
        ids=ids,
        tokens=TEXT,
        ends=(len(VOCABULARY) - 1,),
        words=VOCABULARY,
    )


def _model(vocab_size: int, cross: bool) -> AnyModel:
    model: AnyModel = build(_spec(vocab_size, cross)).eval()
    round_weights(model)
    return model


def _spec(vocab_size: int, cross: bool) -> Transformer:
    attention = Attention(n_heads=HEADS, bias=False)
    block = Block(attention=attention, feedforward=FeedForward(d_ff=2 * D_MODEL))
    decoder = block.replace({"attention.pattern": causal(), **({"cross": attention} if cross else {})})

    def stack(one: Block) -> Stack:
        return Stack(position=Sinusoidal(), blocks=(one,), norm=LayerNorm())

    encoder = stack(block) if cross else None
    return Transformer(
        vocab_size=vocab_size, d_model=D_MODEL, encoder=encoder, decoder=stack(decoder), head=LanguageModel()
    )


@torch.no_grad()
def round_weights(module: nn.Module) -> None:
    """Set every matrix to multiples of 0.2 between −1 and 1 that follow no random generator."""
    for n, parameter in enumerate(p for p in module.parameters() if p.ndim > 1):
        count = torch.arange(parameter.numel())
        row, column = count // parameter.shape[-1], count % parameter.shape[-1]
        values = ((7 * row + 3 * column + row * column + 5 * n) % 11 - 5) / 5
        parameter.copy_(values.view(parameter.shape))
