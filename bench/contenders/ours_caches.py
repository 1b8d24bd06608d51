"""Decoding with qkv's kinds of cache: the time of a step at a long context, and what a small trained model loses by them."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import cross_entropy

import qkv


class Step:
    """One token fed to a model whose cache holds `tokens` of one row; of its layers little but the cache is read.

    The cache is filled with random keys and values, which cost what others do. After every step the token is taken back.
    """

    def __init__(self, cache: Any, tokens: int, n_heads: int, n_kv_heads: int, n_layers: int, d_head: int) -> None:
        torch.manual_seed(0)
        sizes = {"d_model": 256, "d_ff": 256, "n_heads": n_heads, "n_kv_heads": n_kv_heads, "d_head": d_head}
        spec = qkv.preset("llama", vocab_size=256, n_layers=n_layers, max_positions=tokens + 1, **sizes)
        self.model = qkv.build(spec).to(torch.bfloat16).eval()
        self.ids = torch.zeros(1, 1, dtype=torch.int64)
        with torch.inference_mode():
            self.cache = self.model.start(1, capacity=tokens + 1, cache=cache)
            self.cache.admit(None, tokens, torch.device("cpu"))
            for state in self.cache.layers:
                k, v = (torch.randn(1, tokens, n_kv_heads, d_head, dtype=torch.bfloat16) for _ in range(2))
                state.append(k, v)
        self.facts = {"cache_mib": self.cache.nbytes / 2**20, "parts": self.cache.parts}

    @torch.inference_mode()
    def __call__(self) -> None:
        self.model.step(self.ids, self.cache)
        self.cache.rewind(1)


class Perplexity:
    """A model of characters, trained here, and its perplexity on unseen text that it reads token by token with each cache.

    The model is fp32, so what is lost is lost by the cache; `kinds` are by name.
    """

    def __init__(self, train: str, validation: str, kinds: dict[str, Any], context: int, rows: int, steps: int) -> None:
        texts = [Path(path).read_text(encoding="utf-8") for path in (train, validation)]
        letters = {letter: i for i, letter in enumerate(sorted(set("".join(texts))))}
        self.train, self.unseen = (torch.tensor([letters[letter] for letter in text]) for text in texts)
        self.kinds, self.context, self.rows = kinds, context, rows
        spec = qkv.preset("llama", vocab_size=len(letters), d_model=128, n_layers=4, n_heads=4, d_ff=344, tied=True)
        self.model = qkv.build(spec, seed=0)
        self._fit(steps)

    def _fit(self, steps: int) -> None:
        optimizer = torch.optim.AdamW(self.model.parameters(), lr=2e-3, betas=(0.9, 0.95), weight_decay=0.1)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-3, steps, pct_start=0.1)
        random = torch.Generator().manual_seed(0)
        for _ in range(steps):
            ids = self._cut(self.train, torch.randint(len(self.train) - self.context - 1, (8,), generator=random))
            optimizer.zero_grad()
            (self.model(ids[:, :-1], labels=ids[:, 1:]).loss / (8 * self.context)).backward()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
        self.model.eval()

    def _cut(self, text: torch.Tensor, starts: torch.Tensor) -> torch.Tensor:
        return text[starts[:, None] + torch.arange(self.context + 1)]

    @torch.inference_mode()
    def __call__(self) -> dict[str, float]:
        ids = self._cut(self.unseen, torch.linspace(0, len(self.unseen) - self.context - 1, self.rows).long())
        return {name: self._perplexity(ids, kind) for name, kind in self.kinds.items()}

    def _perplexity(self, ids: torch.Tensor, kind: Any) -> float:
        cache, loss = self.model.start(len(ids), cache=kind), 0.0
        for t in range(self.context):
            loss += float(cross_entropy(self.model.step(ids[:, t : t + 1], cache), ids[:, t + 1]))
        return math.exp(loss / self.context)
