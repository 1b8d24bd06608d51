"""A causal mask: scores of later tokens become −∞ before the soft-max."""

from __future__ import annotations

import torch

from ....nn.patterns.basic import causal
from ..explanation import Explanation
from ..steps import LabeledTable, Step, listing, matrix
from ..subject import Attended, Subject, attended

TITLE = "A causal mask: no token sees what comes after it"
TOKENS = ("rain", "falls", "and", "rivers", "rise", "slowly")
WEIGHTS = [
    [0.17, 0.13, 0.18, 0.16, 0.15, 0.18],
    [0.03, 0.68, 0.02, 0.08, 0.14, 0.02],
    [0.19, 0.06, 0.25, 0.14, 0.11, 0.23],
    [0.15, 0.21, 0.14, 0.16, 0.17, 0.14],
    [0.13, 0.27, 0.11, 0.16, 0.18, 0.12],
    [0.19, 0.02, 0.31, 0.11, 0.07, 0.27],
]


def example() -> Explanation:
    scores, one_hot = torch.tensor(WEIGHTS).log(), torch.eye(len(TOKENS))
    a = attended(scores, one_hot, one_hot, TOKENS, TOKENS, pattern=causal(), scale=1.0)
    about = "Six tokens. The scores are the logarithms of given weights, which the soft-max turns back into them."
    return Explanation("mask", TITLE, about, _steps(a))


def of(subject: Subject) -> Explanation:
    a = subject.attention("decoder")
    about = f"{subject.about} Decoder, layer {a.layer}, head {a.head}."
    return Explanation("mask", TITLE, about, _steps(a))


def _steps(a: Attended) -> tuple[Step, ...]:
    """Scores without a mask, the mask, the soft-max of both, and what other ways of masking would give."""
    masked, seen = a.scores, ~a.masked
    everything = _scores_without_mask(a)
    full, kept = everything.softmax(-1), a.weights
    zeroed = full * seen
    zero_scores = (everything * seen).softmax(-1)
    last = int(a.masked.sum(-1).argmax())
    columns = {
        "masked scores": kept.sum(-1),
        "weights set to 0": zeroed.sum(-1),
        "scores set to 0": (zero_scores * seen).sum(-1),
    }

    def drawn(values: torch.Tensor, caption: str, shaded: bool = False) -> LabeledTable:
        return matrix(values, a.queries, a.keys, caption, shaded)

    return (
        Step(
            "Scores of all pairs",
            "Without a mask every token (row) attends to every token (column), also to later ones.",
            "s = q · k / √d" if a.request.score is None and a.request.scale != 1 else "s",
            tables=(
                drawn(everything, "scores"),
                drawn(full, "weights", True),
            ),
        ),
        Step(
            "The mask",
            "A token that predicts the next one must not see it. The scores of later tokens are set to −∞; a token "
            "sees itself.",
            "s = −∞ where key > query",
            tables=(drawn(masked, "masked scores"),),
        ),
        Step(
            "Soft-max",
            "exp(−∞) is 0, so masked keys get no weight, and the others share it: every row adds up to 1.",
            "w = softmax(s)",
            tables=(drawn(kept, "weights with the mask", True),),
        ),
        Step(
            "Why scores, and not weights",
            f"Weights that are set to 0 after the soft-max don't add up to 1: in the row of “{a.queries[last]}” "
            f"{float(zeroed[last].sum()):.4f} is left. A score of 0 is no mask either, since exp(0) = 1: the keys that the "
            f"token may see then get {float((zero_scores * seen)[last].sum()):.4f} of its weight.",
            tables=(listing(a.queries, columns, "weight on the keys that a token may see"),),
        ),
    )


def _scores_without_mask(a: Attended) -> torch.Tensor:
    """The scores of all pairs, with the bias of positions if there is one."""
    from dataclasses import replace

    from ....nn.kernels import reference

    whole = reference.scores(replace(a.request, bias=a.request.dense_bias()), None)[0]
    return whole[0, a.head].detach().float()
