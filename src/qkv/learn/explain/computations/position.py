"""Positional encodings: values, and dot products or biases by distance."""

from __future__ import annotations

import torch
from torch import Tensor

from ....core.layout import Layout
from ....nn.models.transformer import TransformerModel
from ....nn.positions.absolute import Sinusoidal
from ....nn.positions.base import Widths
from ....nn.positions.bias import ALiBi
from ....nn.positions.rotary import Rotary, RotaryTurn
from ..explanation import Explanation
from ..steps import Step, listing, matrix, number
from ..subject import Subject

TITLE = "Positions: how attention learns the order of tokens"
WIDTH, LENGTH, HEADS = 8, 8, 4
QUERY, KEY = (1.0, 0.0, 1.0, 0.0), (0.6, 0.8, 0.0, 1.0)


def example() -> Explanation:
    order = Step(
        "Why positions are needed",
        "Attention sums over keys in any order: if tokens change places, outputs change places with them, and nothing "
        "else happens. Positions therefore have to be part of the numbers.",
    )
    return Explanation(
        "position",
        TITLE,
        "Sinusoidal, rotary and ALiBi positions, with small widths.",
        (order, *_sinusoids(), _rotation(), _alibi()),
    )


def of(subject: Subject) -> Explanation:
    where = subject.stacks[0]
    model = subject.model
    assert isinstance(model, TransformerModel)
    stack = getattr(model, where)
    module, spec = stack.position, dict(model.spec.stacks())[where].position
    tokens = subject.tokens_of(where)
    layout = Layout.full(len(tokens), device=subject.model.device)
    steps: list[Step] = []
    with torch.no_grad():
        embedded = module.embed(layout)
        tables = module.tables(layout)
        bias = module.bias(subject.model.device)
        if embedded is not None:
            steps += _added(embedded[0].float() if embedded.ndim == 3 else embedded.float(), tokens)
        if isinstance(module, RotaryTurn) and tables is not None:
            steps += _turned(subject, module, tables, tokens)
        if bias is not None:
            steps.append(_biased(bias(layout.queries(), layout.keys())[0].float(), tokens))
    if not steps:
        raise ValueError(f"{subject.name} has positions of the kind {spec.kind}, which have no explanation")
    about = f"{subject.about} {where.capitalize()}, positions of the kind {spec.kind}."
    return Explanation("position", TITLE, about, tuple(steps))


def _sinusoids() -> tuple[Step, ...]:
    spec = Sinusoidal()
    module = spec.module(Widths(WIDTH, HEADS, WIDTH // HEADS, None))
    values = module.embed(Layout.full(LENGTH))
    assert values is not None
    table = values[0] if values.ndim == 3 else values
    rates = [spec.base ** (-2 * i / WIDTH) for i in range(WIDTH // 2)]
    names = [f"p = {p}" for p in range(LENGTH)]
    columns = [f"{wave} {i}" for i in range(WIDTH // 2) for wave in ("sin", "cos")]
    periods = {"rate": rates, "positions until it repeats": [2 * torch.pi / rate for rate in rates]}
    products = [float(table[0] @ table[k]) for k in range(LENGTH)]
    i, k = 0, 3
    turned = _turn(table[1, 2 * i : 2 * i + 2], k * rates[i])
    return (
        Step(
            "Sinusoidal positions",
            "Each position is a vector of sines and cosines at different rates, added to the token's "
            "embedding. Nothing is learned.",
            "PE(p, 2i) = sin(p · 10000^(−2i/d))   PE(p, 2i+1) = cos(p · 10000^(−2i/d))",
            (f"PE(1, 0) = sin(1) = {number(float(table[1, 0]))}", f"PE(1, 1) = cos(1) = {number(float(table[1, 1]))}"),
            (
                matrix(table, names, columns, "sinusoidal values"),
                listing([f"pair {i}" for i in range(len(rates))], periods, "rates"),
            ),
        ),
        Step(
            "Dot products by distance",
            "PE(p) · PE(p + k) = Σ cos(k · rate): it depends on the distance k alone, and is largest for "
            "the same position.",
            "PE(p) · PE(p + k) = Σ_i cos(k · rate_i)",
            tables=(
                listing(
                    [f"k = {k}" for k in range(LENGTH)],
                    {
                        "PE(0) · PE(k)": products,
                        "PE(2) · PE(2 + k)": [
                            float(table[2] @ spec.encode(torch.tensor(2 + k), WIDTH)) for k in range(LENGTH)
                        ],
                    },
                    "dot products",
                ),
            ),
        ),
        Step(
            "A shift is a rotation",
            "PE(p + k) is PE(p) turned by k · rate in each pair, the same turn for every p: a linear function, "
            "which a layer can learn.",
            "",
            (
                f"pair 0 of PE(1), turned by 3: ({number(float(turned[0]))}, {number(float(turned[1]))})",
                f"pair 0 of PE(4):              ({number(float(table[4, 0]))}, {number(float(table[4, 1]))})",
            ),
        ),
    )


def _turn(pair: Tensor, angle: float) -> Tensor:
    """(sin a, cos a) turned to (sin(a + angle), cos(a + angle))."""
    c, s = torch.tensor(angle).cos(), torch.tensor(angle).sin()
    return torch.stack([pair[0] * c + pair[1] * s, pair[1] * c - pair[0] * s])


def _rotation() -> Step:
    """RoPE: scores depend on the distance only."""
    q, k = (torch.tensor(x)[None, None, None].expand(1, LENGTH, 1, -1) for x in (QUERY, KEY))
    module = Rotary().module(Widths(len(QUERY), 1, len(QUERY), None))
    tables = module.tables(Layout.full(LENGTH))
    assert tables is not None
    turned_q, turned_k = (module.rotate(x, tables)[0, :, 0] for x in (q, k))
    scores = turned_q @ turned_k.T
    distances = list(range(5))
    columns = {f"query at {p}": [float(scores[p, p - d]) if p >= d else None for d in distances] for p in (4, 5, 7)}
    names = [f"p = {p}" for p in range(4)]
    return Step(
        "Rotary positions (RoPE)",
        "Queries and keys are turned by p · rate in each pair of coordinates, and nothing is added to the "
        "input. The score of a query and a key then depends on their distance: the rows below are constant.",
        "(R_p q) · (R_r k) = q · R_(r − p) k",
        (f"before rotation: q = ({_joined(QUERY)}), k = ({_joined(KEY)})",),
        (
            matrix(turned_k[:4], names, caption="the key at positions p"),
            listing([f"distance {d}" for d in distances], columns, "scores by distance"),
        ),
    )


def _joined(values: tuple[float, ...]) -> str:
    return ", ".join(f"{value:g}" for value in values)


def _alibi() -> Step:
    spec = ALiBi()
    module = spec.module(Widths(WIDTH, HEADS, WIDTH // HEADS, None))
    bias, layout = module.bias(), Layout.full(5)
    assert bias is not None
    values = bias(layout.queries(), layout.keys())[0]
    names = [f"p = {p}" for p in range(5)]
    slopes = listing([f"head {h}" for h in range(HEADS)], {"slope m": spec.slopes(HEADS)}, "slopes")
    return Step(
        "ALiBi",
        "A penalty that grows with distance is added to the scaled scores, with another slope in each head: some heads "
        "look near, others far.",
        "s = q · k / √d − m · distance",
        (),
        (slopes, matrix(values[0], names, names, "bias of head 0: queries (rows) and keys")),
    )


def _added(values: Tensor, tokens: tuple[str, ...]) -> list[Step]:
    """Positions that are added to the input."""
    products = values @ values.T
    last = len(tokens) - 1
    return [
        Step(
            "Values",
            f"The vector of its position is added to each token's embedding. It has width {values.shape[1]}.",
            "x = embedding + PE(p)",
            (),
            (matrix(values, tokens, caption="values by token"),),
        ),
        Step(
            "Dot products",
            f"How similar the positions of two tokens are. For “{tokens[last]}”, by distance:",
            "",
            (),
            (
                matrix(products, tokens, tokens, "dot products of positions"),
                listing(
                    [f"distance {k}" for k in range(len(tokens))],
                    {"dot product": products[last].flip(0)},
                    "by distance",
                ),
            ),
        ),
    ]


def _turned(subject: Subject, module: RotaryTurn, tables: tuple[Tensor, ...], tokens: tuple[str, ...]) -> list[Step]:
    """Rotary positions: the angles, and one head's query before and after."""
    a = subject.attention(subject.stacks[0])
    count = min(module.width // 2, 12)
    cos, sin = (table[0, :, 0].float() for table in tables)
    angle = torch.atan2(sin, cos)
    ones = a.q[a.token].expand(1, len(tokens), 1, -1)
    same = module.rotate(ones, tables)[0, :, 0]
    scores = same @ same.T
    last = len(tokens) - 1
    name = f"pairs 1 to {count}"
    return [
        Step(
            "Angles",
            f"Each pair of coordinates of queries and keys is turned by p · rate. Angles of {name}, in radians from "
            f"−π to π:",
            "angle = p · rate",
            (),
            (matrix(angle, tokens, caption="angles by token and pair"),),
        ),
        Step(
            "Scores depend on distance",
            f"If every token had the query of “{a.queries[a.token]}” (layer {a.layer}, head {a.head}) as query and as key, "
            "only the rotation would tell them apart. Each diagonal is constant.",
            "(R_p q) · (R_r q)",
            (),
            (
                matrix(scores, tokens, tokens, "dot products of one vector at all positions"),
                listing(
                    [f"distance {k}" for k in range(len(tokens))], {"dot product": scores[last].flip(0)}, "by distance"
                ),
            ),
        ),
    ]


def _biased(bias: Tensor, tokens: tuple[str, ...]) -> Step:
    """Positions that are a bias of the scores."""
    last = len(tokens) - 1
    heads = [f"head {h}" for h in range(len(bias))]
    distances = [f"distance {k}" for k in range(len(tokens))]
    return Step(
        "Bias",
        f"A number that depends on the distance is added to every score, another one in each head. For the keys "
        f"before “{tokens[last]}”:",
        "s = q · k · scale + bias",
        (),
        (
            matrix(bias[:, last].flip(-1).T, distances, heads, "bias by distance and head"),
            matrix(bias[0], tokens, tokens, "bias of head 0"),
        ),
    )
