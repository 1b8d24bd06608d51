"""Cross-attention: a query of the decoder over the tokens of the source."""

from __future__ import annotations

from .. import one_query, toy
from ..explanation import Explanation
from ..steps import Step, matrix
from ..subject import Subject

TITLE = "Cross-attention: the decoder looks at the source"


def example() -> Explanation:
    return of(toy.translator())


def of(subject: Subject) -> Explanation:
    a = subject.attention("cross")
    text = (
        f"Queries come from the decoder's {len(a.queries)} tokens, keys and values from the encoder's output for the "
        f"{len(a.keys)} source tokens. Keys and values are projected once for each source, however many words are written."
    )
    shapes = Step("Two sequences", text, "softmax(Q_decoder K_encoderᵀ / √d) V_encoder")
    alignment = matrix(a.weights, a.queries, a.keys, "weights", True, around=a.token)
    last = Step(
        "All target tokens",
        "Each row is one target token, and says which source tokens it reads. No source token is masked.",
        tables=(alignment,),
    )
    about = f"{subject.about} {a.place()}"
    return Explanation("cross", TITLE, about, (shapes, *one_query.steps(a), last))
