"""Bare PyTorch: a GPT-2 of one page, written for this comparison, as someone writes it who wants nothing but speed.

One product for queries, keys and values; the fused attention function; whole logits; a cache of fixed size to decode
with. It is what PyTorch gives when no library stands in between.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .gpt import DTYPES, Shape, check
from .plain import PlainStep, facts


class Layer(nn.Module):
    """x + attention(norm(x)), then x + mlp(norm(x))."""

    def __init__(self, d_model: int, n_heads: int) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.before_attention, self.before_mlp = nn.LayerNorm(d_model), nn.LayerNorm(d_model)
        self.qkv, self.out = nn.Linear(d_model, 3 * d_model), nn.Linear(d_model, d_model)
        self.up, self.down = nn.Linear(d_model, 4 * d_model), nn.Linear(4 * d_model, d_model)

    def forward(self, x: Tensor, cache: tuple[Tensor, Tensor] | None, at: int) -> Tensor:
        heads = self.qkv(self.before_attention(x)).unflatten(-1, (3, self.n_heads, -1))
        q, k, v = (part.transpose(1, 2) for part in heads.unbind(2))
        if cache is not None:
            stop = at + x.shape[1]
            cache[0][:, :, at:stop], cache[1][:, :, at:stop] = k, v
            k, v = cache[0][:, :, :stop], cache[1][:, :, :stop]
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=x.shape[1] > 1)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.before_mlp(x)), approximate="tanh"))


class GPT(nn.Module):
    """Embedding, positions, layers, norm; the head is the embedding."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.tokens = nn.Embedding(shape.vocab_size, shape.d_model)
        self.positions = nn.Embedding(shape.context, shape.d_model)
        self.layers = nn.ModuleList(Layer(shape.d_model, shape.n_heads) for _ in range(shape.n_layers))
        self.norm = nn.LayerNorm(shape.d_model)
        for table in (self.tokens, self.positions):
            nn.init.normal_(table.weight, std=0.02)

    def forward(self, ids: Tensor, caches: list[tuple[Tensor, Tensor]] | None = None, at: int = 0) -> Tensor:
        x = self.tokens(ids) + self.positions.weight[at : at + ids.shape[1]]
        for i, layer in enumerate(self.layers):
            x = layer(x, None if caches is None else caches[i], at)
        return self.norm(x if caches is None else x[:, -1:]) @ self.tokens.weight.T


class TrainingStep(PlainStep):
    def __init__(self, shape: dict[str, int], precision: str, compiled: bool = False) -> None:
        sizes = Shape(**shape)
        super().__init__(GPT(sizes), precision, compiled)
        ids = sizes.random_ids(sizes.context + 1)
        self.ids, self.labels = ids[:, :-1].contiguous(), ids[:, 1:].contiguous()

    def loss(self) -> Tensor:
        return F.cross_entropy(self.run(self.ids).flatten(0, 1), self.labels.flatten())


class Decoding:
    """Greedy: the likeliest token, fed back."""

    def __init__(self, shape: dict[str, int], precision: str, prompt: int, new: int) -> None:
        sizes = Shape(**shape)
        self.prompt, self.new = prompt, new
        self.model = GPT(sizes).to(DTYPES[precision]).eval()
        self.ids = sizes.random_ids(prompt)
        width = sizes.d_model // sizes.n_heads
        room = self.model.norm.weight.new_empty(2, sizes.n_layers, sizes.batch, sizes.n_heads, prompt + new, width)
        self.caches = list(zip(*room, strict=True))
        self.facts = facts(self.model)

    @torch.inference_mode()
    def __call__(self) -> None:
        ids, fed = self.ids, self.ids
        while ids.shape[1] < self.prompt + self.new:
            at = ids.shape[1] - fed.shape[1]
            fed = self.model(fed, self.caches, at).argmax(-1)
            ids = torch.cat([ids, fed], 1)
        check(ids, self.prompt, self.new)


class Attention:
    """PyTorch's fused function itself, heads second as it likes them; a window's mask is made beforehand."""

    def __init__(
        self,
        pattern: str,
        tokens: int,
        backward: bool,
        heads: int = 8,
        width: int = 64,
        window: int = 256,
        precision: str = "fp32",
    ) -> None:
        generator = torch.Generator().manual_seed(0)
        made = [torch.randn(1, heads, tokens, width, generator=generator).to(DTYPES[precision]) for _ in range(4)]
        self.q, self.k, self.v = (x.requires_grad_(backward) for x in made[:3])
        self.grad, self.backward, self.causal = made[3], backward, pattern == "causal"
        self.mask = None
        if pattern == "window":
            index = torch.arange(tokens)
            distance = index[:, None] - index
            self.mask = (distance >= 0) & (distance < window)

    def __call__(self) -> None:
        with torch.set_grad_enabled(self.backward):
            out = F.scaled_dot_product_attention(self.q, self.k, self.v, attn_mask=self.mask, is_causal=self.causal)
        if self.backward:
            self.q.grad = self.k.grad = self.v.grad = None
            out.backward(self.grad)


class FlexAttention:
    """PyTorch's compiled attention over a window, forward, with its block map made beforehand."""

    def __init__(self, pattern: str, tokens: int, heads: int = 8, width: int = 64, window: int = 256) -> None:
        from torch.nn.attention.flex_attention import create_block_mask, flex_attention

        def rule(batch: Tensor, head: Tensor, q: Tensor, k: Tensor) -> Tensor:
            back = q - k
            return (back < window) & ((back >= 0) if pattern == "window" else (back > -window))

        generator = torch.Generator().manual_seed(0)
        self.inputs = [torch.randn(1, heads, tokens, width, generator=generator) for _ in range(3)]
        self.mask = create_block_mask(rule, None, None, tokens, tokens, device="cpu", _compile=True)
        self.attend = torch.compile(flex_attention, dynamic=False)

    @torch.no_grad()
    def __call__(self) -> None:
        self.attend(*self.inputs, block_mask=self.mask)
