"""Recurrent translators: their sizes, and what PyTorch alone makes of them, bare `nn.LSTM` and `nn.GRU`, and loops."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .pairs import PairShape
from .plain import PlainStep


@dataclass(frozen=True)
class RecurrentShape:
    """`d_e` embeddings, `d_h` states in each direction, `d_s` of the decoder, `d_a` of the score; rows as in `PairShape`."""

    vocab_size: int
    d_e: int
    d_h: int
    d_s: int
    d_a: int
    batch: int
    source: int
    target: int

    def random_ids(self) -> tuple[Tensor, Tensor]:
        return PairShape(self.vocab_size, 0, 0, 0, 0, self.batch, self.source, self.target).random_ids()


class Fixed(nn.Module):
    """Sutskever's: an encoder's last states begin the decoder. Nothing but the fused kernels and the two tables."""

    def __init__(self, shape: RecurrentShape, cell: str) -> None:
        super().__init__()
        layers = {"lstm": nn.LSTM, "gru": nn.GRU}[cell]
        self.source = nn.Embedding(shape.vocab_size, shape.d_e)
        self.target = nn.Embedding(shape.vocab_size, shape.d_e)
        self.encoder = layers(shape.d_e, shape.d_h, batch_first=True)
        self.decoder = layers(shape.d_e, shape.d_s, batch_first=True)
        self.output = nn.Linear(shape.d_s, shape.vocab_size)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        _, last = self.encoder(self.source(source))
        return self.output(self.decoder(self.target(target), last)[0])


class Attention(nn.Module):
    """vᵀ tanh(W [s; h]), as tutorials write it; with `once`, W_h h is made before the loop."""

    def __init__(self, shape: RecurrentShape, once: bool) -> None:
        super().__init__()
        self.once = once
        self.query = nn.Linear(shape.d_s, shape.d_a, bias=False)
        self.key = nn.Linear(2 * shape.d_h, shape.d_a, bias=False)
        self.v = nn.Linear(shape.d_a, 1, bias=False)

    def forward(self, state: Tensor, memory: Tensor, keys: Tensor) -> Tensor:
        keys = keys if self.once else self.key(memory)
        scores = self.v(torch.tanh(self.query(state)[:, None] + keys)).squeeze(2)
        return torch.bmm(F.softmax(scores, 1)[:, None], memory).squeeze(1)


class Searching(nn.Module):
    """Bahdanau's, step by step: attention, cell and output are called once a token."""

    def __init__(self, shape: RecurrentShape, once: bool) -> None:
        super().__init__()
        memory = 2 * shape.d_h
        self.source = nn.Embedding(shape.vocab_size, shape.d_e)
        self.target = nn.Embedding(shape.vocab_size, shape.d_e)
        self.encoder = nn.GRU(shape.d_e, shape.d_h, batch_first=True, bidirectional=True)
        self.start = nn.Linear(shape.d_h, shape.d_s)
        self.attention = Attention(shape, once)
        self.cell = nn.GRUCell(shape.d_e + memory, shape.d_s)
        self.maxout = nn.Linear(shape.d_s + shape.d_e + memory, 2 * shape.d_e)
        self.output = nn.Linear(shape.d_e, shape.vocab_size)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        memory, last = self.encoder(self.source(source))
        keys, state, logits = self.attention.key(memory), torch.tanh(self.start(last[1])), []
        for t in range(target.shape[1]):
            token = self.target(target[:, t])
            context = self.attention(state, memory, keys)
            state = self.cell(torch.cat([token, context], 1), state)
            read = self.maxout(torch.cat([state, token, context], 1))
            logits.append(self.output(read.unflatten(1, (-1, 2)).amax(-1)))
        return torch.stack(logits, 1)


class FullRows(PlainStep):
    """A step on rows without padding; `kind` is lstm, gru, loop or loop-keys-once."""

    def __init__(self, shape: dict[str, int], kind: str, precision: str = "fp32") -> None:
        sizes = RecurrentShape(**shape)
        fixed = kind in ("lstm", "gru")
        super().__init__(Fixed(sizes, kind) if fixed else Searching(sizes, kind == "loop-keys-once"), precision)
        self.source, target = sizes.random_ids()
        self.inputs, self.labels = target[:, :-1].contiguous(), target[:, 1:].contiguous()

    def loss(self) -> Tensor:
        return F.cross_entropy(self.run(self.source, self.inputs).flatten(0, 1), self.labels.flatten())
