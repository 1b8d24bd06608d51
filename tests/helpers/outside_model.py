"""A language model of another make, as someone outside the package writes it: causal convolutions, no attention."""

from __future__ import annotations

from typing import Any

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from qkv.core.layout import Layout
from qkv.core.spec import Cost
from qkv.io.directories.build import GenerativeModel
from qkv.nn.layers.losses import LossSums
from qkv.nn.models.base import ModelSpec
from qkv.nn.models.heads.language_model import LanguageModel
from qkv.nn.models.initialization import Initialization, Normal


class Convolutions(ModelSpec, kind="convolutions"):
    """A decoder of causal depthwise convolutions."""

    vocab_size: int = Field(gt=0)
    d_model: int = 32
    n_layers: int = 2
    width: int = 4
    max_positions: int | None = None
    is_encoder_decoder: bool = False
    head: LanguageModel = LanguageModel(tied=False)
    initialization: Initialization = Normal()

    def module(self) -> Convolved:
        return Convolved(self)

    def parts(self, tokens: int = 0, source: int = 0) -> dict[str, Cost]:
        layer = self.d_model * (self.width + 1) + self.d_model * (self.d_model + 1)
        return {
            "layers": Cost(layer * self.n_layers, 2 * layer * self.n_layers * tokens),
            "embedding tables": Cost(self.vocab_size * self.d_model),
            "head": self.head.cost(self.d_model, self.vocab_size, tokens),
        }

    def cost(self, tokens: int = 0, source: int = 0) -> Cost:
        return sum(self.parts(tokens, source).values(), Cost())


class Convolved(GenerativeModel):
    def __init__(self, spec: Convolutions) -> None:
        super().__init__(spec)
        self.embedding = nn.Embedding(spec.vocab_size, spec.d_model)
        self.mixers = nn.ModuleList(
            nn.Conv1d(spec.d_model, spec.d_model, spec.width, groups=spec.d_model) for _ in range(spec.n_layers)
        )
        self.layers = nn.ModuleList(nn.Linear(spec.d_model, spec.d_model) for _ in range(spec.n_layers))
        self.head = spec.head.module(spec.d_model, spec.vocab_size)

    def hidden(self, ids: Tensor, layout: Layout | None = None) -> Tensor:
        real = 1.0 if layout is None else layout.valid[..., None].to(self.dtype)  # padding is 0 in every layer
        x = self.embedding(ids) * real
        for mixer, layer in zip(self.mixers, self.layers, strict=True):
            before = F.pad(x.transpose(1, 2), (self.spec.width - 1, 0))
            x = (x + layer(F.gelu(mixer(before).transpose(1, 2)))) * real
        return x

    def forward(
        self,
        ids: Tensor,
        layout: Layout | None = None,
        labels: Tensor | None = None,
        label_smoothing: float = 0.0,
        z_loss: float = 0.0,
    ) -> Tensor | LossSums:
        hidden = self.hidden(ids, layout)
        return self.head(hidden) if labels is None else self.head.loss(hidden, labels, label_smoothing, z_loss)

    def start(self, batch_size: int, *, capacity: int | None = None, cache: Any = None) -> Read:
        return Read(torch.zeros(batch_size, 0, dtype=torch.long, device=self.device))

    def step(self, ids: Tensor, cache: Read, layout: Layout | None = None) -> Tensor:
        valid = torch.ones_like(ids, dtype=torch.bool) if layout is None else layout.valid.expand(ids.shape)
        cache.ids, cache.valid = torch.cat([cache.ids, ids], 1), torch.cat([cache.valid, valid], 1)
        logits: Tensor = self.head(self.hidden(cache.ids, Layout.from_mask(cache.valid))[:, -1])
        return logits


class Read:
    """What was read so far: all of it, which is simple rather than quick."""

    def __init__(self, ids: Tensor) -> None:
        self.ids, self.valid = ids, ids.bool()

    def reorder(self, rows: Tensor, cross: bool = True) -> None:
        self.ids, self.valid = self.ids[rows], self.valid[rows]
