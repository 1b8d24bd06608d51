"""Hugging Face's Marian at the same sizes: on full rows, and on sentences as its users' training batches them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from torch import Tensor
from torch.utils.data import DataLoader
from transformers import DataCollatorForSeq2Seq, MarianConfig, MarianMTModel, PreTrainedTokenizerFast
from transformers.trainer_pt_utils import LengthGroupedSampler

from .gpt import DTYPES, check
from .pairs import PairShape
from .plain import PlainStep, facts

PAD, BOS, EOS, IGNORE = 0, 2, 3, -100


def build(shape: PairShape, dropout: float = 0.0) -> MarianMTModel:
    config = MarianConfig(
        vocab_size=shape.vocab_size,
        d_model=shape.d_model,
        encoder_layers=shape.n_layers,
        decoder_layers=shape.n_layers,
        encoder_attention_heads=shape.n_heads,
        decoder_attention_heads=shape.n_heads,
        encoder_ffn_dim=shape.d_ff,
        decoder_ffn_dim=shape.d_ff,
        activation_function="relu",
        dropout=dropout,
        scale_embedding=True,
        pad_token_id=PAD,
        bos_token_id=BOS,
        eos_token_id=EOS,
        forced_eos_token_id=EOS,
        decoder_start_token_id=BOS,
    )
    return MarianMTModel(config)


class FullRows(PlainStep):
    """A step on rows without padding."""

    def __init__(self, shape: dict[str, int], precision: str, compiled: bool = False) -> None:
        sizes = PairShape(**shape)
        super().__init__(build(sizes, sizes.dropout), precision, compiled)
        self.source, target = sizes.random_ids()
        self.inputs, self.labels = target[:, :-1].contiguous(), target[:, 1:].contiguous()

    def loss(self) -> Tensor:
        return self.run(input_ids=self.source, decoder_input_ids=self.inputs, labels=self.labels, use_cache=False).loss


class Decoding:
    """`model.generate` from random sources, greedy or with beams; no token ends a sequence."""

    def __init__(self, shape: dict[str, int], precision: str, new: int, beams: int) -> None:
        given = PairShape(**shape)
        self.new, self.beams = new, beams
        self.model = build(given).to(DTYPES[precision]).eval()
        self.model.generation_config.eos_token_id = self.model.generation_config.forced_eos_token_id = None
        self.source = given.random_ids()[0]
        self.facts = facts(self.model)

    def __call__(self) -> None:
        mask = self.source.new_ones(self.source.shape)
        options = {"max_new_tokens": self.new, "num_beams": self.beams, "do_sample": False}
        check(self.model.generate(self.source, attention_mask=mask, **options), 1, self.new)


class Sentences(PlainStep):
    """Batches of `rows` sentences through `DataCollatorForSeq2Seq`, each padded to its longest, labels with −100.

    They are drawn at random, or `grouped` by length with the sampler that Hugging Face's Trainer has for it. The data are
    tokenized beforehand, as is usual there. A call takes `steps` steps.
    """

    def __init__(
        self,
        shape: dict[str, int],
        precision: str,
        dropout: float,
        ids: str,
        rows: int,
        steps: int,
        grouped: bool = False,
        compiled: bool = False,
    ) -> None:
        super().__init__(build(PairShape(**shape), dropout), precision, compiled)
        self.steps = steps
        torch.manual_seed(0)
        words = Tokenizer(WordLevel({str(i): i for i in range(shape["vocab_size"])}, unk_token="1"))
        tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="0", bos_token="2", eos_token="3")
        data = examples(ids)
        lengths = [len(example["input_ids"]) for example in data]
        sampler = LengthGroupedSampler(rows, lengths=lengths) if grouped else None
        collate = DataCollatorForSeq2Seq(tokenizer, self.model)
        self.loader = DataLoader(data, rows, shuffle=not grouped, sampler=sampler, collate_fn=collate, drop_last=True)
        self.batches = self.endless()

    def endless(self) -> Iterator[Any]:
        while True:
            yield from self.loader

    def loss(self) -> Tensor:
        batch = self.batch
        return self.run(
            input_ids=batch["input_ids"],
            attention_mask=batch["attention_mask"],
            decoder_input_ids=batch["decoder_input_ids"],
            labels=batch["labels"],
            use_cache=False,
        ).loss

    def __call__(self) -> dict[str, float]:
        total = {"target_tokens": 0, "source_tokens": 0, "slots": 0}
        losses = 0.0
        for _ in range(self.steps):
            self.batch = next(self.batches)
            losses += super().__call__()["loss"]
            total["target_tokens"] += int((self.batch["labels"] != IGNORE).sum())
            total["source_tokens"] += int(self.batch["attention_mask"].sum())
            total["slots"] += self.batch["labels"].numel() + self.batch["input_ids"].numel()
        return {**total, "loss": losses / self.steps}


def examples(path: str) -> list[dict[str, list[int]]]:
    """Both sides with their end, as a tokenizer of Hugging Face's gives them."""
    read = (json.loads(line) for line in Path(path).read_text().splitlines())
    return [
        {"input_ids": [*source, EOS], "attention_mask": [1] * (len(source) + 1), "labels": [*target, EOS]}
        for source, target in read
    ]
