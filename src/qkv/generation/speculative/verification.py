"""Which proposed tokens are accepted, and the token that follows them.

Tokens that were not drawn (look-up, greedy drafts) are accepted if they equal the token that the search would have
chosen, with the same random number: outputs are those without speculation. Drawn tokens x ~ q are accepted with
probability min(1, p(x) / q(x)); at the first rejection the token is drawn from max(0, p − q), normalized (Leviathan et
al. 2023, Algorithm 1). Either way every token has the distribution p.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ..sampling import UniformSequences, draw, row_seed
from .proposals import Proposals
from .rows import Continuation


@dataclass(frozen=True)
class Verified:
    """The tokens of one row: accepted proposals and the token after them, which is None if no token is allowed."""

    tokens: list[int | None]
    accepted: int


class Randomness:
    """The random numbers of every row by the place of the token they are for, so no row depends on another.

    `choices` are the same as in a search without speculation. Tokens that are rejected leave no trace: the numbers of
    their places are used again, and what they were used for before has no influence on the output.
    """

    def __init__(self, seeds: Sequence[int], device: torch.device) -> None:
        self.choices = UniformSequences(seeds, device)
        self.drafts = UniformSequences([row_seed(seed, 1) for seed in seeds], device)
        self.acceptances = UniformSequences([row_seed(seed, 2) for seed in seeds], device)


def numbers(
    sequences: UniformSequences, rows: Sequence[Continuation], first: int, count: int
) -> Float[Tensor, "B count"]:
    """The numbers for the tokens `first` … first + count − 1 after the tokens that each row has."""
    return sequences.at([row.index for row in rows], [len(row.new) + first for row in rows], count)


def choose(logits: Float[Tensor, "B T V"], uniform: Float[Tensor, "B T"] | None) -> Int[Tensor, "B T"]:
    """The likeliest token at every place, or with random numbers a drawn one."""
    if uniform is None:
        return logits.max(-1).indices
    return draw(logits.flatten(0, 1), uniform.reshape(-1, 1)).view(logits.shape[:2])


def verify(
    logits: Float[Tensor, "B T V"], proposals: Proposals, rows: Sequence[Continuation], random: Randomness | None
) -> list[Verified]:
    """Check the proposals against the processed logits of the model at their places and after them."""
    count = logits.shape[1]
    uniform = None if random is None else numbers(random.choices, rows, 0, count)
    if proposals.probabilities is not None and proposals.longest:
        assert random is not None and uniform is not None
        return _by_rejection(logits, proposals, uniform, numbers(random.acceptances, rows, 0, count - 1))
    tokens = choose(logits, uniform)
    stuck = (logits.gather(-1, tokens[..., None]).squeeze(-1) == -torch.inf).tolist()
    return [_equal(*row) for row in zip(tokens.tolist(), stuck, proposals.tokens, strict=True)]


def _equal(chosen: list[int], stuck: list[bool], proposed: list[int]) -> Verified:
    """Accept proposed tokens as long as they are the chosen ones."""
    accepted = 0
    while accepted < len(proposed) and not stuck[accepted] and proposed[accepted] == chosen[accepted]:
        accepted += 1
    return Verified([*proposed[:accepted], None if stuck[accepted] else chosen[accepted]], accepted)


def _by_rejection(logits: Tensor, proposals: Proposals, uniform: Tensor, chances: Tensor) -> list[Verified]:
    """Speculative sampling. `chances` decide on acceptance, `uniform` draws the token after the accepted ones."""
    q = proposals.probabilities
    assert q is not None
    k = q.shape[1]
    p = logits.to(q.dtype).softmax(-1)
    padded = [tokens + [0] * (k - len(tokens)) for tokens in proposals.tokens]
    x = torch.tensor(padded, device=logits.device)[..., None]
    kept = chances * q.gather(-1, x).squeeze(-1) < p[:, :k].gather(-1, x).squeeze(-1)
    accepted = [
        next((t for t, good in enumerate(row[: len(tokens)]) if not good), len(tokens))
        for row, tokens in zip(kept.tolist(), proposals.tokens, strict=True)
    ]
    place = torch.tensor(accepted, device=logits.device)
    every = torch.arange(len(accepted), device=logits.device)
    rejected = torch.tensor([n < len(t) for n, t in zip(accepted, proposals.tokens, strict=True)], device=logits.device)
    mass = p[every, place]
    rest = (mass - q[every, place.clamp(max=k - 1)]).clamp(min=0)
    rest = torch.where((rejected & (rest.sum(-1) > 0))[:, None], rest, mass)
    last = draw(rest.log(), uniform[every, place][:, None]).tolist()
    stuck = (logits[every, place].amax(-1) == -torch.inf).tolist()
    return [
        Verified([*tokens[:n], None if none else token], n)
        for tokens, n, token, none in zip(proposals.tokens, accepted, last, stuck, strict=True)
    ]
