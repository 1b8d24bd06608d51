"""The online soft-max of FlashAttention: how the maximum, the sum and the output are carried from tile to tile."""

from __future__ import annotations

import torch
from torch import Tensor

from ....nn.attention.attend import attend, merge
from ..explanation import Explanation
from ..steps import Step, listing, matrix, number, numbers
from ..subject import Attended, Subject, attended

TITLE = "FlashAttention: a soft-max without ever holding all scores"
SCORES, VALUES, TILE = (1.0, 3.0, 2.0, 5.0, 4.0, 0.0), (1.0, 2.0, 3.0, 4.0, 5.0, 6.0), 2
TILES = 6  # of a text


def example() -> Explanation:
    one = torch.ones(1, 1)
    k, v = (torch.tensor(x)[:, None] for x in (SCORES, VALUES))
    a = attended(one, k, v, ("q",), tuple(f"k{i + 1}" for i in range(len(SCORES))), scale=1.0)
    about = "One query and six keys in tiles of two. Query and keys have width 1, so the scores are the keys."
    return Explanation("flash", TITLE, about, _steps(a, TILE))


def of(subject: Subject) -> Explanation:
    where = subject.stacks[0]
    a = subject.attention(where)
    if a.request.score is not None or a.request.weighting is not None or a.request.sinks is not None:
        raise ValueError(
            f"layer {a.layer} of {subject.name} has its own scores or weights, and no soft-max of dot products"
        )
    tile = max(2, -(-len(a.keys) // TILES))
    about = f"{subject.about} {where.capitalize()}, layer {a.layer}, head {a.head}, query of “{a.queries[a.token]}”."
    return Explanation("flash", TITLE, about, _steps(a, tile))


def _steps(a: Attended, tile: int) -> tuple[Step, ...]:
    s, v = a.scores[a.token].double(), a.v.double()
    places = [range(start, min(start + tile, len(s))) for start in range(0, len(s), tile)]
    places = [place for place in places if not torch.isneginf(s[list(place)]).all()]
    names = [f"{a.keys[place[0]]} … {a.keys[place[-1]]}" if len(place) > 1 else a.keys[place[0]] for place in places]
    states = _carried(s, v, places)
    carried = {
        "max of tile": [float(s[list(place)].max()) for place in places],
        "m": [float(m) for m, *_ in states],
        "exp(m_old − m)": [float(factor) for _, factor, *_ in states],
        "l": [float(total) for _, _, total, _ in states],
        "acc[1]": [float(acc[0]) for *_, acc in states],
    }
    _, _, total, acc = states[-1]
    out, lse = _merged(s, v, places)
    exact = s.softmax(-1) @ v
    skipped = -(-len(s) // tile) - len(places)
    note = f" {skipped} tiles that are masked as a whole are skipped." if skipped else ""
    return (
        Step(
            "Scores in tiles",
            f"{len(s)} keys in tiles of {tile}: a kernel holds the scores of one tile at a time, in fast memory.{note}",
            tables=(listing(a.keys, {"score": s, "value[1]": v[:, 0]}, "scores of the query", "score"),),
        ),
        Step(
            "The running maximum",
            "m is the largest score so far, l the sum of exp(s − m), acc the sum of exp(s − m) v. If a tile raises "
            "the maximum, "
            "what was summed before is too large by exp(m − m_old), and is multiplied by exp(m_old − m).",
            "l = l · exp(m_old − m) + Σ exp(s − m)   acc = acc · exp(m_old − m) + Σ exp(s − m) v",
            tuple(_line(i, name, states[i], states[i - 1] if i else None) for i, name in enumerate(names))
            if len(places) <= 4
            else (),
            (listing(names, carried, "after each tile"),),
        ),
        Step(
            "The output",
            "One division at the end gives the same as a soft-max over all keys.",
            "out = acc / l",
            (f"out[1] = {numbers(acc[:1])[0]} / {numbers(total[None])[0]} = {number(float(acc[0] / total))}",),
            (matrix(torch.stack([acc / total, exact]), ["tile by tile", "soft-max over all"], caption="output"),),
        ),
        Step(
            "Merging tiles in any order",
            "Each tile may also be attended to by itself, with its log-sum-exp, lse = m + log l. Two results combine with "
            "weights exp(lse − lse of both), in any order: so work is split over processors, and over devices.",
            "out = e^(lse1 − lse) out1 + e^(lse2 − lse) out2",
            (
                f"lse = {number(float(lse))} = m + log l = {number(float(states[-1][0]))} + {number(float(total.log()))}",
            ),
            (matrix(torch.stack([out, exact]), ["merged", "soft-max over all"], caption="merged output"),),
        ),
    )


State = tuple[Tensor, Tensor, Tensor, Tensor]  # m, exp(m_old − m), l, acc


def _carried(s: Tensor, v: Tensor, places: list[range]) -> list[State]:
    """The state after each tile."""
    m, total = torch.full((), -torch.inf).double(), torch.zeros(()).double()
    acc = torch.zeros(v.shape[1]).double()
    states: list[State] = []
    for place in places:
        index = list(place)
        new = torch.maximum(m, s[index].max())
        factor = (m - new).exp()
        p = (s[index] - new).exp()
        m, total, acc = new, total * factor + p.sum(), acc * factor + p @ v[index]
        states.append((m, factor, total, acc))
    return states


def _merged(s: Tensor, v: Tensor, places: list[range]) -> tuple[Tensor, Tensor]:
    """Output and log-sum-exp, from `attend` over each tile and `merge`."""
    one = torch.ones(1, 1, 1, 1).double()
    parts = []
    for place in places:
        index = [i for i in place if not torch.isneginf(s[i])]
        k, values = s[index][None, :, None, None], v[index][None, :, None]
        parts.append(attend(one, k, values, scale=1.0, return_lse=True))
    out, lse = parts[0]
    for other in parts[1:]:
        out, lse = merge(out, lse, *other)
    return out[0, 0, 0], lse[0, 0, 0]


def _line(i: int, name: str, state: State, before: State | None) -> str:
    m, factor, total = (float(x) for x in state[:3])
    if before is None:
        return f"tile {i + 1}: m = {number(m)}, l = {number(total)}"
    old = float(before[2])
    change = f"l = {number(old)} · {number(factor)} + {number(total - old * factor)} = {number(total)}"
    return f"tile {i + 1}: m = {number(m)}, {change}"
