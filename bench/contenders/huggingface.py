"""Hugging Face's GPT-2 at the same sizes."""

from __future__ import annotations

from torch import Tensor
from transformers import GPT2Config, GPT2LMHeadModel

from .gpt import DTYPES, Shape, check
from .plain import PlainStep, facts


def build(shape: Shape) -> GPT2LMHeadModel:
    config = GPT2Config(
        vocab_size=shape.vocab_size,
        n_embd=shape.d_model,
        n_layer=shape.n_layers,
        n_head=shape.n_heads,
        n_positions=shape.context,
        resid_pdrop=shape.dropout,
        embd_pdrop=shape.dropout,
        attn_pdrop=shape.dropout,
        bos_token_id=None,
        eos_token_id=None,
    )
    return GPT2LMHeadModel(config)


class TrainingStep(PlainStep):
    """The loss that the model computes itself when it is given labels (it shifts them)."""

    def __init__(self, shape: dict[str, int], precision: str, compiled: bool = False) -> None:
        sizes = Shape(**shape)
        super().__init__(build(sizes), precision, compiled)
        self.ids = sizes.random_ids(sizes.context + 1)[:, :-1].contiguous()

    def loss(self) -> Tensor:
        return self.run(input_ids=self.ids, labels=self.ids, use_cache=False).loss


class Decoding:
    """`model.generate`, greedy, with its default cache."""

    def __init__(self, shape: dict[str, int], precision: str, prompt: int, new: int) -> None:
        sizes = Shape(**shape)
        self.prompt, self.new = prompt, new
        self.model = build(sizes).to(DTYPES[precision]).eval()
        self.ids = sizes.random_ids(prompt)
        self.facts = facts(self.model)

    def __call__(self) -> None:
        mask = self.ids.new_ones(self.ids.shape)
        ids = self.model.generate(
            self.ids, attention_mask=mask, max_new_tokens=self.new, do_sample=False, pad_token_id=0
        )
        check(ids, self.prompt, self.new)
