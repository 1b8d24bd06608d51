"""nanoGPT: its model in the plain step, and its training script as its README runs it."""

from __future__ import annotations

import pickle
import re
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from .. import peers
from . import whole
from .gpt import Shape
from .plain import PlainStep, facts

SOURCE = peers.source("nanogpt")
sys.path.insert(0, str(SOURCE))

from model import GPT, GPTConfig  # noqa: E402  (it is found there)

VERSIONS = {"nanoGPT": peers.commit("nanogpt")}


def build(shape: Shape) -> GPT:
    config = GPTConfig(
        block_size=shape.context,
        vocab_size=shape.vocab_size,
        n_layer=shape.n_layers,
        n_head=shape.n_heads,
        n_embd=shape.d_model,
        dropout=shape.dropout,
        bias=True,
    )
    return GPT(config)


class TrainingStep(PlainStep):
    """The loss that its model computes from targets. Its script would use AdamW unfused on a CPU, which is slower."""

    versions = VERSIONS

    def __init__(self, shape: dict[str, int], precision: str, compiled: bool = False) -> None:
        sizes = Shape(**shape)
        super().__init__(build(sizes), precision, compiled)
        ids = sizes.random_ids(sizes.context + 1)
        self.ids, self.labels = ids[:, :-1].contiguous(), ids[:, 1:].contiguous()

    def loss(self) -> Tensor:
        return self.run(self.ids, self.labels)[1]


class Run:
    """`train.py` with the settings of its README for a CPU, on characters; a call is a whole run.

    It leaves the seconds of its training in `clock`, for those who are to have the same time. Its own evaluations are of
    some random batches; the loss given here is that of the kept checkpoint on the whole validation text.
    """

    versions = VERSIONS

    def __init__(self, train: str, validation: str, settings: list[str], clock: str) -> None:
        self.texts, self.settings, self.clock = (train, validation), settings, Path(clock)
        self.clock.unlink(missing_ok=True)
        self.place = tempfile.TemporaryDirectory()

    def __call__(self) -> dict[str, float]:
        place = Path(self.place.name)
        ids = prepared(place, *(Path(text).read_text(encoding="utf-8") for text in self.texts))
        command = [sys.executable, "train.py", "config/train_shakespeare_char.py", "--out_dir=out", *self.settings]
        written, took = whole.run(command, place)
        seconds = sum(float(ms) for ms in re.findall(r"^iter \d+: .* time ([\d.]+)ms", written, re.MULTILINE)) / 1e3
        self.clock.write_text(str(seconds))
        kept = torch.load(place / "out" / "ckpt.pt", weights_only=True)
        model = GPT(GPTConfig(**kept["model_args"])).eval()
        model.load_state_dict(kept["model"])
        loss = whole.validation_loss(lambda x, y: model(x, y)[1], ids, kept["model_args"]["block_size"])
        return {"train_s": seconds, **took, "loss": loss, **facts(model)}


def prepared(place: Path, train: str, validation: str) -> Tensor:
    """What its `prepare.py` makes of the text, in a folder in which its script finds it; gives the validation text's ids."""
    for name in ("train.py", "configurator.py", "config"):
        (place / name).unlink(missing_ok=True)
        (place / name).symlink_to(SOURCE / name)
    characters = sorted(set(train + validation))
    index = {character: i for i, character in enumerate(characters)}
    data = place / "data" / "shakespeare_char"
    data.mkdir(parents=True, exist_ok=True)
    for name, text in (("train.bin", train), ("val.bin", validation)):
        np.array([index[c] for c in text], dtype=np.uint16).tofile(data / name)
    meta = {"vocab_size": len(characters), "itos": dict(enumerate(characters)), "stoi": index}
    (data / "meta.pkl").write_bytes(pickle.dumps(meta))
    return torch.tensor([index[c] for c in validation])
