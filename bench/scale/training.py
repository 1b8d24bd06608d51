"""Training steps of a decoder on one rank of a group."""

from __future__ import annotations

import torch

import qkv
from qkv.core.batch import Batch
from qkv.core.layout import Layout
from qkv.data.batching.sharding import share_of
from qkv.training.checkpoints.weights import model_tensors, optimizer_tensors
from qkv.training.objective import NextToken
from qkv.training.parallel.scale import Scale
from qkv.training.parallel.team import Team
from qkv.training.parallel.team import team as joined
from qkv.training.parallel.world import World
from qkv.training.settings import Training
from qkv.training.step import Stepper

from .ranks import Shape, Way


class Steps:
    """The steps of one rank, always with the same batch."""

    def __init__(self, way: Way, shape: Shape) -> None:
        cpu = torch.device("cpu")
        scale = Scale.from_dict(dict(way.scale))
        if way.ranks > 1:
            ranks = World.join(cpu, 300.0)
            team = Team(ranks, cpu, scale, scale.sizes(ranks.size))
        else:
            with joined(scale, cpu) as team:  # as `qkv train` does, also under torchrun
                pass
        spec = qkv.preset(
            "gpt2",
            vocab_size=shape.vocab_size,
            d_model=shape.d_model,
            n_layers=shape.n_layers,
            n_heads=shape.heads,
            max_positions=shape.context,
            dropout=0.0,
        )
        model = qkv.build(spec, seed=0).train()
        training = Training.from_dict(
            {"precision": "fp32", "compile": False, "optimizer": {"kind": "adamw", "lr": 1e-4}}
        )
        self.stepper = Stepper(model, NextToken(), training, team.ranks, team.distribute(model))
        ids = torch.randint(
            shape.vocab_size, (shape.rows, shape.context + 1), generator=torch.Generator().manual_seed(0)
        )
        lengths = torch.full((shape.rows,), shape.context).numpy()
        share = share_of(team.shard, lengths, lengths * 0)
        ids = ids[share.start : share.stop]
        tokens = ids[:, 1:].numel()
        layout = Layout.full(shape.context)
        inputs = {"ids": ids[:, :-1].contiguous(), "layout": layout}
        self.batch = Batch(inputs, labels=ids[:, 1:].contiguous(), counts={"loss": tokens}, tokens=tokens)

    def take(self) -> float:
        return float(self.stepper.take([self.batch], 1e-4).loss)

    def state_bytes(self) -> dict[str, int]:
        """The bytes of this rank's parameters and optimizer state."""
        model, optimizer = model_tensors(self.stepper.strategy.model), optimizer_tensors(self.stepper.optimizer)
        return {
            "parameters": sum(t.numel() * t.element_size() for t in model.values()),
            "optimizer": sum(t.numel() * t.element_size() for t in optimizer.values()),
        }
