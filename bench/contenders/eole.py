"""eole, the successor of OpenNMT-py: its own training on sentences, in batches of tokens."""

from __future__ import annotations

import tempfile
from typing import Any

from eole import train_single
from eole.config.run import TrainConfig
from eole.trainer import Trainer

from .gate import Gate
from .pairs import PairShape
from .plain import BETAS, CLIP, DECAY, EPS, LR, facts

PAD = "<pad>"


class Sentences:
    """`eole train` with a configuration of the same sizes; a call lets its training loop take `steps` steps.

    Its batches are cut from sentences sorted by length, up to half of `tokens` counting the longer side. It reads the data
    in its own process: workers would use the cores while others are measured.
    """

    def __init__(
        self,
        shape: dict[str, int],
        precision: str,
        dropout: float,
        source: str,
        target: str,
        words: str,
        tokens: int,
        steps: int,
    ) -> None:
        self.steps, self.place, self.gate = steps, tempfile.TemporaryDirectory(), Gate()
        made = configuration(PairShape(**shape), precision, dropout, (source, target, words), tokens, self.place.name)
        build, told = train_single.build_trainer, {}

        def build_gated(*given: Any, **named: Any) -> Trainer:
            trainer = build(*given, **named)
            told.update(facts(trainer.model))
            return gated(trainer, self.gate)

        train_single.build_trainer = build_gated
        self.gate.open(lambda: train_single.main(TrainConfig(**made), -1))
        self.facts = told

    def __call__(self) -> dict[str, float]:
        return self.gate.advance(self.steps)


def gated(trainer: Trainer, gate: Gate) -> Trainer:
    """A trainer that waits to be let through before each step."""
    step = trainer._train_step

    def wait_and_step(batches: list[dict[str, Any]], normalization: int, total: Any, *rest: Any, **named: Any) -> None:
        targets = sum(int((batch["tgt"][:, 1:] != trainer.train_loss.padding_idx).sum()) for batch in batches)
        sources = sum(int(batch["srclen"].sum()) for batch in batches)
        slots = sum(batch["src"].numel() + batch["tgt"].numel() - len(batch["tgt"]) for batch in batches)
        gate.begin(target_tokens=targets, source_tokens=sources, slots=slots)
        loss, words = total.loss, total.n_tokens
        step(batches, normalization, total, *rest, **named)
        gate.done((total.loss - loss) / (total.n_tokens - words))

    trainer._train_step = wait_and_step
    return trainer


def configuration(
    shape: PairShape, precision: str, dropout: float, files: tuple[str, str, str], tokens: int, place: str
) -> dict[str, Any]:
    """What its YAML file would hold."""
    source, target, words = files
    return {
        "data": {"train": {"path_src": source, "path_tgt": target, "transforms": []}},
        "src_vocab": words,
        "share_vocab": True,
        "src_vocab_size": shape.vocab_size,
        "tgt_vocab_size": shape.vocab_size,
        "vocab_size_multiple": 1,
        "pad_token": PAD,
        "transforms": [],
        "seed": 1,
        "model": {
            "architecture": "transformer",
            "layers": shape.n_layers,
            "hidden_size": shape.d_model,
            "heads": shape.n_heads,
            "transformer_ff": shape.d_ff,
            "add_qkvbias": True,
            "add_ffnbias": True,
            "share_embeddings": True,
            "share_decoder_embeddings": True,
            "embeddings": {
                "word_vec_size": shape.d_model,
                "position_encoding": True,
                "position_encoding_type": "SinusoidalInterleaved",
            },
        },
        "training": {
            "model_path": place,
            "compute_dtype": precision,
            "batch_type": "tokens",
            "batch_size": tokens // 2,
            "normalization": "tokens",
            "num_workers": 0,
            "optim": "adamw",
            "adam_beta1": BETAS[0],
            "adam_beta2": BETAS[1],
            "adam_eps": EPS,
            "weight_decay": DECAY,
            "learning_rate": LR,
            "decay_method": "none",
            "max_grad_norm": CLIP,
            "label_smoothing": 0.0,
            "dropout": [dropout],
            "attention_dropout": [0.0],
            "param_init_method": "xavier_uniform",
            "train_steps": 1_000_000,
            "valid_steps": 1_000_000,
            "save_checkpoint_steps": 1_000_000,
        },
    }
