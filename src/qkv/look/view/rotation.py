"""The part of rotary positions in a score: what it would be without the rotation, and what each frequency adds."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ...nn.attention.multi_head import MultiHeadAttention
from ...nn.kernels.request import Request
from ...nn.models.stack import StackModule
from ...nn.positions.base import PositionModule, Tables
from ...nn.positions.rotary import RotaryTurn
from ...nn.positions.xpos import XPosTurn


@dataclass(frozen=True)
class RotationTerm:
    """Rotary positions in a scaled dot product: scaled = content + term, and term = Σ pairs.

    content: the scaled dot product of query and key without rotation.
    term:    what the rotation adds to it.
    pairs:   what each pair of coordinates adds to `term`, the fastest frequency first.
    angles:  (p_q − p_k) θ_i of each pair in radians, from −π to π.
    """

    content: float
    term: float
    pairs: list[float]
    angles: list[float]

    def __str__(self) -> str:
        most = sorted(range(len(self.pairs)), key=lambda i: -abs(self.pairs[i]))[:8]
        shown = "  ".join(f"[{i}] {self.pairs[i]:+.3f} at {self.angles[i]:+.2f} rad" for i in sorted(most))
        rest = f"  and {len(self.pairs) - len(most)} others" if len(most) < len(self.pairs) else ""
        return f"without rotary positions: {self.content:.6g}; rotation adds {self.term:+.6g} = {shown}{rest}"


@dataclass(frozen=True, eq=False)
class Rotation:
    """How the queries and keys of a recorded request were rotated: cosines and sines of the first sequence, (T, R/2)."""

    module: RotaryTurn
    queries: Tables
    keys: Tables

    def unrotated(self, x: Float[Tensor, " D"], tables: Tables, index: int) -> Float[Tensor, " D"]:
        """A query or key before its rotation."""
        cos, sin = (table[index].double() for table in tables)
        size = cos.square() + sin.square()
        inverse = tuple((table / size)[None, None, None] for table in (cos, -sin))
        return self.module.rotate(x.double()[None, None, None], inverse)[0, 0, 0]

    def term(self, q: Float[Tensor, " D"], k: Float[Tensor, " D"], query: int, key: int, scale: float) -> RotationTerm:
        """The part of the rotation in scale · q · k, with q and k rotated."""
        q0, k0 = self.unrotated(q, self.queries, query), self.unrotated(k, self.keys, key)
        added = (q.double() * k.double() - q0 * k0)[: self.module.width] * scale
        by_pair = added.view(-1, 2).sum(1) if self.module.interleaved else added.view(2, -1).sum(0)
        cos_q, sin_q = (table[query].double() for table in self.queries)
        cos_k, sin_k = (table[key].double() for table in self.keys)
        angles = torch.atan2(sin_q * cos_k - cos_q * sin_k, cos_q * cos_k + sin_q * sin_k)
        return RotationTerm(float(q0 @ k0) * scale, float(by_pair.sum()), by_pair.tolist(), angles.tolist())


def rotation_of(model: nn.Module | None, request: Request) -> Rotation | None:
    """Return how a layer of a model rotated queries and keys; None without rotary positions, and for mechanisms that rotate
    something else than what they compare."""
    module = dict(model.named_modules()).get(request.name) if model is not None else None
    if not isinstance(module, MultiHeadAttention) or type(module).mixed is not MultiHeadAttention.mixed:
        return None
    if module.cross or module.score is not None:
        return None
    position = _position_of(model, request.name)
    if type(position) not in (RotaryTurn, XPosTurn):
        return None
    assert isinstance(position, RotaryTurn)
    with torch.no_grad():
        q, k = ([t[0, :, 0].cpu() for t in position.tables(layout)] for layout in (request.layout, request.kv_layout))
    return Rotation(position, tuple(q[:2]), tuple(k[-2:]))


def _position_of(model: nn.Module | None, name: str) -> PositionModule | None:
    """The position module of an attention layer by its name, such as `decoder.blocks.3.attention`."""
    stack_name, _, rest = name.partition(".blocks.")
    stack = getattr(model, stack_name, None)
    if not isinstance(stack, StackModule):
        return None
    layer = stack.block_of.index(int(rest.partition(".")[0]))
    positions = (stack.position, *stack.block_positions)
    position = positions[stack.position_of[layer]]
    assert isinstance(position, PositionModule)
    return position
