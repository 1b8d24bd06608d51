"""JoeyNMT's recurrent model: its own forward pass, Bahdanau's score with Luong's input feeding, in a plain training step."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from joeynmt.model import build_model
from torch import Tensor
from torch.nn import functional as F

from .plain import PlainStep
from .recurrent import RecurrentShape


class Words(SimpleNamespace):
    """As much of a vocabulary as a model asks for."""

    def __len__(self) -> int:
        return int(self.size)


def configuration(shape: RecurrentShape) -> dict[str, Any]:
    """The `model` part of its YAML file."""
    side = {"type": "recurrent", "rnn_type": "gru", "num_layers": 1, "embeddings": {"embedding_dim": shape.d_e}}
    encoder = {**side, "hidden_size": shape.d_h, "bidirectional": True}
    decoder = {
        **side,
        "hidden_size": shape.d_s,
        "attention": "bahdanau",
        "input_feeding": True,
        "init_hidden": "bridge",
    }
    return {"encoder": encoder, "decoder": decoder}


class FullRows(PlainStep):
    """A step on rows without padding."""

    def __init__(self, shape: dict[str, int], kind: str, precision: str = "fp32") -> None:
        sizes = RecurrentShape(**shape)
        assert kind == "feeding"
        special = {f"{name}_index": i for i, name in enumerate(("unk", "pad", "bos", "eos"))}
        words = Words(size=sizes.vocab_size, specials=[], lang_tags=[], sep_index=None, **special)
        super().__init__(build_model(configuration(sizes), words, words), precision)
        self.source, target = sizes.random_ids()
        self.inputs, self.labels = target[:, :-1].contiguous(), target[:, 1:].contiguous()
        self.lengths = torch.full((sizes.batch,), sizes.source)

    def loss(self) -> Tensor:
        masks = (torch.ones_like(ids, dtype=torch.bool)[:, None] for ids in (self.source, self.inputs))
        seen, written = masks
        logits = self.model._encode_decode(self.source, self.inputs, seen, self.lengths, written)[0]
        return F.cross_entropy(logits.flatten(0, 1), self.labels.flatten())
