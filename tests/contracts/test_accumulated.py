"""accumulated = whole: micro-batches with unequal numbers of tokens give the loss and the gradients of one batch."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from axes import FAMILIES, Example, words
from selection import Combination, Contract
from small import gradients, ids, model, packed, padded, same_gradients

from qkv.core.batch import IGNORE, Batch
from qkv.core.layout import Layout
from qkv.core.ranks import ALONE
from qkv.nn.models.heads.language_model import LanguageModel
from qkv.training.gradients.accumulation import weighed
from qkv.training.objective import NextToken, Objective, SequenceToSequence
from qkv.training.optimizers import SGD
from qkv.training.settings import Training
from qkv.training.step import Stepper

LENGTHS, SOURCES = [9, 1, 5, 3, 7, 2], [4, 2, 6, 1, 3, 5]
CUTS = {"1+5": [1, 5], "2+1+3": [2, 1, 3], "one by one": [1] * 6}
IGNORED = 4  # a row none of whose labels count


def batch(family: str, rows: list[int], isolated: bool) -> Batch:
    """The given rows padded to their own width, or packed into one row; each labeled, but for one."""
    lengths, sources = [LENGTHS[i] for i in rows], [SOURCES[i] for i in rows]
    tokens, labels = ([ids(LENGTHS[i], seed=i + k) for i in rows] for k in (0, 100))
    labels = [torch.full_like(t, IGNORE) if i == IGNORED else t for i, t in zip(rows, labels, strict=True)]
    inputs: dict[str, Any] = dict(zip(("ids", "layout"), _placed(tokens, lengths, isolated), strict=True))
    wide, _ = _placed(labels, lengths, isolated, IGNORE)
    if family == "encoder-decoder":
        source, where = _placed([ids(SOURCES[i], seed=i + 50) for i in rows], sources, isolated)
        inputs = {"ids": source, "layout": where, "target": inputs["ids"], "target_layout": inputs["layout"]}
    count = int((wide != IGNORE).sum())
    return Batch(inputs, wide, {"loss": count}, sum(lengths), wide.numel())


def _placed(rows: list[torch.Tensor], lengths: list[int], isolated: bool, fill: int = 0) -> tuple[torch.Tensor, Layout]:
    layout = packed([lengths]) if isolated else padded(lengths, "right", max(lengths))
    out = torch.full(layout.shape, fill)
    out[layout.valid] = torch.cat(rows)
    return out, layout


def taken(built: Any, objective: Objective, batches: list[Batch]) -> tuple[float, dict[str, torch.Tensor]]:
    """The loss that one optimizer step reports, and the step that plain gradient descent makes of its gradients."""
    training = Training(optimizer=SGD(lr=1.0, momentum=0.0), accumulate=len(batches), clip_norm=None, max_steps=1)
    before = {name: p.detach().clone() for name, p in built.named_parameters()}
    done = Stepper(built, objective, training, ALONE).take(batches, lr=1.0)
    moved = {name: before[name] - p.detach() for name, p in built.named_parameters()}
    return float(done.loss), moved


ACCUMULATED = Contract(
    {
        "family": words(*FAMILIES),
        "cuts": [Example(label, value) for label, value in CUTS.items()],
        "rows": words("padded", "packed"),
        "smoothing": [Example("plain", 0.0), Example("smoothed", 0.2)],
        "head": [
            Example("fused", LanguageModel()),
            Example("whole logits", LanguageModel(fused=False)),
            Example("untied", LanguageModel(tied=False, bias=True)),
        ],
    }
)


@pytest.mark.contract(ACCUMULATED)
def test_accumulated_gradients_match_one_batch(case: Combination) -> None:
    cls = SequenceToSequence if case.family == "encoder-decoder" else NextToken
    objective, isolated = cls(label_smoothing=case.smoothing), case.rows == "packed"
    whole = taken(model(case.family, head=case.head), objective, [batch(case.family, list(range(6)), isolated)])
    order, parts = list(range(6)), []
    for n in case.cuts:
        parts.append(batch(case.family, order[:n], isolated))
        order = order[n:]
    counts = [part.counts["loss"] for part in parts]
    assert len(set(counts)) > 1
    assert sum(counts) == sum(LENGTHS) - LENGTHS[IGNORED]
    found = taken(model(case.family, head=case.head), objective, parts)
    assert found[0] == pytest.approx(whole[0], rel=1e-6)  # reported in single precision
    same_gradients(found[1], whole[1])


@pytest.mark.contract(Contract({"family": words(*FAMILIES), "rows": words("padded", "packed")}))
def test_terms_of_batches_add_up(case: Combination) -> None:
    """By the terms alone: Σ sum ÷ Σ count, and not the mean of the batches' means."""
    built, isolated = model(case.family), case.rows == "packed"
    objective = SequenceToSequence() if case.family == "encoder-decoder" else NextToken()
    whole = batch(case.family, list(range(6)), isolated)
    weighed(objective(built, whole), whole.counts).backward()
    wanted = gradients(built)
    parts = [batch(case.family, rows, isolated) for rows in ([0, 1], [2], [3, 4, 5])]
    for part in parts:
        weighed(objective(built, part), whole.counts).backward()
    same_gradients(gradients(built), wanted)
    for part in parts:  # what averaging the averages would have given: the test can tell
        weighed(objective(built, part), {"loss": part.counts["loss"] * len(parts)}).backward()
    with pytest.raises(AssertionError, match="gradient"):
        same_gradients(gradients(built), wanted)
