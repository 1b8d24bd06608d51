"""Scaled dot-product attention for one query, and how it grows out of a lookup in a dictionary."""

from __future__ import annotations

import torch

from ....nn.attention.attend import attend
from ....nn.attention.scores import Dot, ExactMatch, Gaussian, Score
from .. import one_query
from ..explanation import Explanation
from ..steps import Step, dot, listing, matrix, number
from ..subject import Subject, attended

TITLE = "Attention: a weighted sum of values"

QUERY, KEYS, VALUES = [[2.0, 1.0]], [[1.0, 0.0], [1.0, 1.0]], [[3.0, 6.0], [7.0, 12.0]]
THREE_QUERIES, THEIR_KEYS, THEIR_VALUES = (
    [[1.0, 0.0], [2.0, 1.0], [0.0, 1.0]],
    [[1.0, 1.0], [0.0, 1.0]],
    [[4.0, 8.0], [6.0, 12.0]],
)
DATABASE_QUERY, DATABASE_KEYS, DATABASE_VALUES = (
    [[0.5, 0.0]],
    [[1.0, 0.0], [1.0, 1.0], [0.0, 1.0]],
    [[4.0], [6.0], [6.0]],
)
WORD, WORDS, PRICES = "cats", ("cats", "mats"), (4.0, 8.0)


def example() -> Explanation:
    one = attended(QUERY, KEYS, VALUES, ("q",), ("k1", "k2"), scale=1.0)
    scaled = attended(QUERY, KEYS, VALUES, ("q",), ("k1", "k2"))
    about = "A worked example with one query and two keys of width 2."
    steps = [_by_letters(), _lookup(), *one_query.steps(one), _scaling(one, scaled), _three_queries()]
    return Explanation("attention", TITLE, about, tuple(steps))


def of(subject: Subject) -> Explanation:
    where = subject.stacks[0]
    a = subject.attention(where)
    about = f"{subject.about} {where.capitalize()}, {a.place()[:1].lower()}{a.place()[1:]}"
    all_queries = matrix(a.weights, a.queries, a.keys, "weights of all queries (rows) and keys", True, around=a.token)
    everyone = Step(
        "All queries at once",
        "Every token has a query, and one matrix product computes them all.",
        "softmax(Q Kᵀ / √d) V",
        tables=(all_queries,),
    )
    return Explanation("attention", TITLE, about, (*one_query.steps(a), everyone))


def _by_letters() -> Step:
    """A lookup that returns part of a value, for a key that is similar."""
    shares = [sum(a == b for a, b in zip(WORD, word, strict=True)) / len(WORD) for word in WORDS]
    total = sum(shares)
    text = (
        f"A dictionary returns the value of the key that equals the query. Looking up “{WORD}”, attention also returns ¾ of "
        f"the value of “{WORDS[1]}”, which has 3 of its 4 letters. Divided by their sum, {number(total)}, the shares are "
        "weights that add up to 1."
    )
    weights = [share / total for share in shares]
    columns = {
        "value": PRICES,
        "similarity": shares,
        "share of value": [s * v for s, v in zip(shares, PRICES, strict=True)],
        "weight": weights,
    }
    line = f"result = {dot(weights, PRICES)}"
    return Step("A lookup by similarity", text, "", (line,), (listing(WORDS, columns, f"looking up “{WORD}”"),))


def _lookup() -> Step:
    """The same database under three scores."""
    q, k, v = (torch.tensor(x) for x in (DATABASE_QUERY, DATABASE_KEYS, DATABASE_VALUES))
    results = {
        "equality": _looked_up(ExactMatch()),
        "Gaussian of the distance, width 1": _looked_up(Gaussian()),
        "dot product": _looked_up(Dot()),
    }
    distances = (k - q).norm(dim=-1)
    keys = [f"({a:g}, {b:g})" for a, b in DATABASE_KEYS]
    columns = {"value": v[:, 0], "distance": distances, "q · k": (k @ q[0])}
    text = (
        "Keys are vectors, and the query (0.5, 0) equals none of them, so an exact lookup finds nothing. A score that "
        "measures similarity, and a soft-max over all three keys, gives a mean of their values."
    )
    found = listing(list(results), {"result": list(results.values())}, "result by score")
    return Step("A lookup among vectors", text, "", (), (listing(keys, columns, "the database"), found))


def _looked_up(score: Score) -> float:
    q, k, v = (torch.tensor(x)[None, :, None] for x in (DATABASE_QUERY, DATABASE_KEYS, DATABASE_VALUES))
    module = score.scorer(2)
    out = attend(module.queries(q), module.keys(k), v, scale=module.scale, score=module.comparison())
    return float(out)


def _scaling(plain: one_query.Attended, scaled: one_query.Attended) -> Step:
    """What division by √d changes."""
    columns = {
        "score": plain.scores[0],
        "weight": plain.weights[0],
        "score / √2": scaled.scores[0],
        "its weight": scaled.weights[0],
    }
    text = (
        "The dot product of two random vectors of width d has a standard deviation of √d. Transformers therefore divide "
        "scores by √d, here √2 = 1.4142, or the soft-max of wide vectors would put nearly all weight on one key."
    )
    outputs = torch.stack([one_query.output(plain)[0], one_query.output(scaled)[0]])
    tables = (
        listing(plain.keys, columns, "scores and weights"),
        matrix(outputs, ["unscaled", "scaled"], caption="outputs"),
    )
    return Step("Scaling", text, "softmax(q · k / √d)", (), tables)


def _three_queries() -> Step:
    a = attended(THREE_QUERIES, THEIR_KEYS, THEIR_VALUES, ("q1", "q2", "q3"), ("k1", "k2"), scale=1.0)
    tables = (
        matrix(a.q, a.queries, caption="queries Q"),
        matrix(a.k, a.keys, caption="keys K"),
        matrix(a.v, a.keys, caption="values V"),
        matrix(a.scores, a.queries, a.keys, "scores Q Kᵀ"),
        matrix(a.weights, a.queries, a.keys, "weights", shaded=True),
        matrix(one_query.output(a), a.queries, caption="outputs"),
    )
    text = "Another example, with three queries. Each row of the scores has a separate soft-max."
    return Step("Several queries at once", text, "softmax(Q Kᵀ) V", (), tables)
