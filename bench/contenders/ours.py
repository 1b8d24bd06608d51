"""qkv, as its users run it: the training loop's own step, the model's own `generate`."""

from __future__ import annotations

import torch

import qkv
from qkv.core.batch import Batch
from qkv.core.layout import Layout
from qkv.core.ranks import ALONE
from qkv.nn.attention.feature_maps import Elu1
from qkv.nn.attention.linear import linear_attention
from qkv.nn.kernels.cpu.block_plan import consecutive, share
from qkv.nn.patterns.basic import Pattern, dilated, global_tokens, strided
from qkv.nn.patterns.bigbird import BigBird
from qkv.training.objective import NextToken
from qkv.training.optimizers import AdamW
from qkv.training.settings import Training
from qkv.training.step import Stepper

from .gpt import DTYPES, Shape, check
from .plain import BETAS, CLIP, DECAY, EPS, LR, facts


def spec(shape: Shape) -> qkv.Transformer:
    return qkv.preset(
        "gpt",
        vocab_size=shape.vocab_size,
        d_model=shape.d_model,
        n_layers=shape.n_layers,
        n_heads=shape.n_heads,
        max_positions=shape.context,
        dropout=shape.dropout,
    )


def llama(shape: Shape) -> qkv.Transformer:
    """A Llama with about as many feed-forward weights as `spec`: d_ff = 8/3 · d_model, rounded up to a multiple of 64."""
    return qkv.preset(
        "llama",
        vocab_size=shape.vocab_size,
        d_model=shape.d_model,
        n_layers=shape.n_layers,
        n_heads=shape.n_heads,
        d_ff=-(-8 * shape.d_model // 192) * 64,
        max_positions=shape.context,
    )


def training(precision: str, compiled: bool) -> Training:
    optimizer = AdamW(lr=LR, betas=BETAS, eps=EPS, weight_decay=DECAY)
    return Training(optimizer=optimizer, precision=precision, clip_norm=CLIP, compile=compiled)


class TrainingStep:
    """`Stepper.take`: what `qkv train` does once a step."""

    def __init__(self, shape: dict[str, int], precision: str, compiled: bool = False, gated: bool = False) -> None:
        sizes = Shape(**shape)
        model = qkv.build((llama if gated else spec)(sizes), seed=0).train()
        ids = sizes.random_ids(sizes.context + 1)
        self.batch = Batch(
            inputs={"ids": ids[:, :-1].contiguous(), "layout": Layout.full(sizes.context)},
            labels=ids[:, 1:].contiguous(),
            counts={"loss": sizes.tokens},
            tokens=sizes.tokens,
        )
        self.stepper = Stepper(model, NextToken(), training(precision, compiled), ALONE)
        self.facts = facts(model)

    def __call__(self) -> dict[str, float]:
        return {"loss": float(self.stepper.take([self.batch], LR).loss)}


class Decoding:
    """`model.generate`, greedy."""

    def __init__(self, shape: dict[str, int], precision: str, prompt: int, new: int) -> None:
        sizes = Shape(**shape)
        self.prompt, self.new = prompt, new
        self.model = qkv.build(spec(sizes), dtype=DTYPES[precision], seed=0).eval()
        self.ids = sizes.random_ids(prompt)
        self.facts = facts(self.model)

    def __call__(self) -> None:
        check(self.model.generate(self.ids, max_new_tokens=self.new), self.prompt, self.new)


class Attention:
    """`qkv.attend` through one backend; forward, or forward and backward."""

    def __init__(
        self,
        backend: str,
        pattern: str,
        tokens: int,
        backward: bool,
        heads: int = 8,
        width: int = 64,
        window: int = 256,
        precision: str = "fp32",
    ) -> None:
        self.backend, self.backward = backend, backward
        self.pattern = patterns(tokens, window)[pattern]
        self.facts = {"share": needed(self.pattern, tokens)}
        self.q, self.k, self.v, self.grad = inputs(tokens, heads, width, backward, precision)
        if tokens > 1024:  # libraries load, threads start
            Attention(backend, pattern, 512, backward, heads, width, window, precision)()

    def __call__(self) -> None:
        if not self.backward:
            with torch.no_grad():
                self._attend()
            return
        self.q.grad = self.k.grad = self.v.grad = None
        self._attend().backward(self.grad)

    def _attend(self) -> torch.Tensor:
        return qkv.attend(self.q, self.k, self.v, pattern=self.pattern, backend=self.backend)


class LinearAttention:
    """Linear attention with φ = elu + 1, causal; forward, or forward and backward."""

    def __init__(self, tokens: int, backward: bool, heads: int = 8, width: int = 64) -> None:
        self.backward, self.layout, self.features = backward, Layout.full(tokens), Elu1()
        self.q, self.k, self.v, self.grad = inputs(tokens, heads, width, backward)
        if tokens > 1024:  # libraries load, threads start
            LinearAttention(512, backward, heads, width)()

    def __call__(self) -> None:
        self.q.grad = self.k.grad = self.v.grad = None
        with torch.set_grad_enabled(self.backward):
            q, k = self.features.features(self.q), self.features.features(self.k)
            out = linear_attention(q, k, self.v, self.layout, causal=True)
        if self.backward:
            out.backward(self.grad)


def patterns(tokens: int, window: int) -> dict[str, Pattern]:
    """What is measured, by name: sizes as their papers have them."""
    causal, local = qkv.causal(), qkv.window(window)
    return {
        "full": qkv.full(),
        "causal": causal,
        "window": causal & local,
        "two-sided window": local,
        "dilated": causal & dilated(window, 4),
        "strided": causal & strided(128),
        "longformer": local | global_tokens(64),
        "bigbird": BigBird(size=64, random=3).over(tokens),
    }


def needed(pattern: Pattern, tokens: int) -> float:
    """The share of 64 × 64 blocks that have an allowed pair, after regrouping if a rule has gaps."""
    plans = consecutive(pattern, tokens, tokens, 0, 0)
    return 1.0 if plans is None else share((plans,), tokens, tokens)


def inputs(tokens: int, heads: int, width: int, backward: bool, precision: str = "fp32") -> tuple[torch.Tensor, ...]:
    """q, k, v and the output's gradient, (1, T, H, D)."""
    generator = torch.Generator().manual_seed(0)
    made = [torch.randn(1, tokens, heads, width, generator=generator).to(DTYPES[precision]) for _ in range(4)]
    for x in made[:3]:
        x.requires_grad_(backward)
    return tuple(made)
