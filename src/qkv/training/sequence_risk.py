"""Objectives over whole outputs: minimum-risk training and REINFORCE, which learn from a reward of sampled outputs.

Cross-entropy rewards each token given the right ones before it. These objectives let the model write outputs and reward them
as a metric does, so they are for models that are trained already: `qkv train … model=RUN objective.kind=reinforce`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple, cast

import torch
from pydantic import Field
from torch import Tensor, nn

from ..core.batch import IGNORE, Batch, Term, Terms
from ..core.layout import Layout
from ..core.spec import Spec
from ..generation import generate
from ..generation.prompts import padded
from .objective import SequenceToSequence, Smoothing

Ids = Sequence[int]


class Reward(Spec, role="reward"):
    """`reward(output, reference)` rates an output between 0 and 1; both are token ids without the end-of-sequence token.

    A subclass with a `kind` and a `__call__` is a new reward.
    """

    def __call__(self, output: Ids, reference: Ids) -> float:
        raise NotImplementedError(f"{type(self).__name__} does not say how it rates an output")


class GLEU(Reward, kind="gleu"):
    """The smaller of precision and recall of all n-grams of 1 to `n` tokens together (Wu et al. 2016, §4.3)."""

    n: int = Field(default=4, gt=0)

    def __call__(self, output: Ids, reference: Ids) -> float:
        own, other = (sum((_ngrams(ids, n) for n in range(1, self.n + 1)), Counter()) for ids in (output, reference))
        larger = max(own.total(), other.total())
        return (own & other).total() / larger if larger else 1.0


class SentenceBLEU(Reward, kind="bleu"):
    """BLEU of one output over its tokens (Papineni et al. 2002): brevity penalty × geometric mean of the precisions of
    n-grams of 1 to `n` tokens, with 1 added to counts above single tokens (Lin & Och 2004)."""

    n: int = Field(default=4, gt=0)

    def __call__(self, output: Ids, reference: Ids) -> float:
        if not output:
            return float(not reference)
        logs = 0.0
        for n in range(1, self.n + 1):
            own, more = _ngrams(output, n), int(n > 1)
            found = (own & _ngrams(reference, n)).total()
            if not found + more:
                return 0.0
            logs += math.log((found + more) / (own.total() + more))
        return math.exp(min(0.0, 1 - len(reference) / len(output)) + logs / self.n)


class Exact(Reward, kind="exact"):
    """1 for an output that is the reference, else 0."""

    def __call__(self, output: Ids, reference: Ids) -> float:
        return float(list(output) == list(reference))


class _Sampled(NamedTuple):
    """Outputs of a batch's sources: log p and reward of each, (B, N), and which count."""

    log_p: Tensor
    rewards: Tensor
    counted: Tensor


class SequenceObjective(SequenceToSequence):
    """Base class of both objectives. Each training step samples `samples` outputs of every source from the model.

    reward:      how outputs are rated: gleu, bleu, exact, or another `Reward`.
    temperature: of sampling.
    max_ratio:   an output has at most this many times the reference's tokens, and 10 more.
    ml_weight:   of the cross-entropy of the references, which is added to the loss.

    The term `risk` is the loss over outputs, and `reward` reports the mean reward. Evaluations measure only the
    cross-entropy, as for `sequence-to-sequence`, so perplexities can be compared.
    """

    single_pass: ClassVar[bool] = False
    generates: ClassVar[bool] = True

    label_smoothing: Smoothing = 0.0
    reward: Reward = GLEU()
    samples: int = Field(default=8, gt=1)
    temperature: float = Field(default=1.0, gt=0)
    max_ratio: float = Field(default=1.5, gt=0)
    ml_weight: float = Field(default=0.0, ge=0, allow_inf_nan=False)

    def counts(self, batch: Batch) -> dict[str, int]:
        rows = 0 if batch.labels is None else len(batch.labels)
        return {**batch.counts, "risk": rows, "reward": rows}

    def __call__(self, model: nn.Module, batch: Batch) -> Terms:
        terms = super().__call__(model, batch)
        if not model.training:
            return terms
        rows, sampled = self.counts(batch)["risk"], self._sampled(model, batch)
        mean = (sampled.rewards * sampled.counted).sum(1) / sampled.counted.sum(1)
        terms["loss"] = replace(terms["loss"], weight=self.ml_weight)
        return {
            **terms,
            "risk": Term(self.risk(sampled).sum(), rows),
            "reward": Term(mean.sum(), rows, weight=0.0),
        }

    def risk(self, sampled: _Sampled) -> Tensor:
        """The loss of each source (B,), from the log-probabilities and rewards of its outputs."""
        raise NotImplementedError

    def candidates(self, outputs: list[list[int]], reference: list[int]) -> list[list[int]]:
        """The outputs of one source that count, among those that were sampled."""
        return outputs

    def _sampled(self, model: nn.Module, batch: Batch) -> _Sampled:
        """Sample outputs for each source, rate them, and compute log p with a gradient by teacher forcing."""
        assert batch.labels is not None
        source, layout = batch.inputs["ids"], batch.inputs.get("layout")
        if layout is not None and not layout.one_segment:
            raise ValueError(f"the objective {self.kind!r} reads one pair a row; set batching.packing to false")
        references = [row[row != IGNORE].tolist() for row in batch.labels]
        bos = int(batch.inputs["target"][0, 0])
        ((eos, _),) = Counter(row[-1] for row in references).most_common(1)  # a target that was cut has another end
        longest = int(self.max_ratio * max(map(len, references))) + 10
        generated = generate(
            cast(Any, model),
            source,
            layout=layout,
            bos_id=bos,
            eos_id=eos,
            num_samples=self.samples,
            temperature=self.temperature,
            max_new_tokens=longest,
        )
        chosen = [self.candidates(*pair) for pair in zip(generated.sequences, references, strict=True)]
        width = max(map(len, chosen))
        counted = torch.tensor([[i < len(row) for i in range(width)] for row in chosen], device=source.device)
        filled = [[*row, *row[:1] * (width - len(row))] for row in chosen]  # repeats don't count
        rewards = [
            [self.reward(_without(output, eos), _without(reference, eos)) for output in row]
            for row, reference in zip(filled, references, strict=True)
        ]
        log_p = _log_p(model, source, layout, [output for row in filled for output in row], bos, width)
        return _Sampled(log_p, torch.tensor(rewards, device=source.device, dtype=log_p.dtype), counted)


class MinimumRisk(SequenceObjective, kind="minimum-risk"):
    """Minimum-risk training (Shen et al. 2016): the expected cost of an output, over a sample S of distinct ones,

        Σ_{y ∈ S} q(y) (1 − reward(y)),   q(y) = p(y)^α / Σ_{y' ∈ S} p(y')^α.

    `alpha` is α. With `reference`, S contains the reference too.
    """

    alpha: float = Field(default=0.005, gt=0)
    reference: bool = True

    def candidates(self, outputs: list[list[int]], reference: list[int]) -> list[list[int]]:
        every = [reference, *outputs] if self.reference else outputs
        return [list(one) for one in dict.fromkeys(map(tuple, every))]

    def risk(self, sampled: _Sampled) -> Tensor:
        q = (self.alpha * sampled.log_p).masked_fill(~sampled.counted, -math.inf).softmax(1)
        return (q * (1 - sampled.rewards)).sum(1)


class Reinforce(SequenceObjective, kind="reinforce"):
    """REINFORCE (Williams 1992), as Wu et al. (2016, §5) train GNMT + RL: −Σ_i (r_i − r̄) log p(y_i) / N over N samples,
    where r̄ is the mean reward of the source's samples, with a little cross-entropy added.
    """

    ml_weight: float = Field(default=0.017, ge=0, allow_inf_nan=False)

    def risk(self, sampled: _Sampled) -> Tensor:
        advantage = sampled.rewards - sampled.rewards.mean(1, keepdim=True)
        return -(advantage * sampled.log_p).mean(1)


def _log_p(
    model: nn.Module, source: Tensor, layout: Layout | None, outputs: list[list[int]], bos: int, each: int
) -> Tensor:
    """Return log p of each output, (B, each). Outputs are in the order of their sources."""
    fed, lengths = padded([[bos, *output[:-1]] for output in outputs], source.device)
    labels, _ = padded(outputs, source.device)
    rows = torch.arange(len(source), device=source.device).repeat_interleave(each)
    sources = Layout.full(source.shape[1], device=source.device) if layout is None else layout
    logits = model(source[rows], fed, layout=_rows_of(sources, rows, len(source)), target_layout=lengths)
    wide = logits if logits.dtype == torch.float64 else logits.float()
    log_p = wide.log_softmax(-1).gather(-1, labels[..., None]).squeeze(-1)
    return (log_p * lengths.valid).sum(1).view(-1, each)


def _rows_of(layout: Layout, rows: Tensor, count: int) -> Layout:
    """The layout of some rows."""
    if layout.shape[0] == 1 and layout.lengths is None:
        return layout
    valid = layout.valid.expand(count, -1)[rows]
    return Layout.from_mask(valid)


def _without(ids: list[int], eos: int) -> list[int]:
    return ids[:-1] if ids[-1:] == [eos] else ids


def _ngrams(ids: Ids, n: int) -> Counter[tuple[int, ...]]:
    return Counter(tuple(ids[i : i + n]) for i in range(len(ids) - n + 1))
