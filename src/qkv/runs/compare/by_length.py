"""Measures by source length: quality of outputs, and accuracy of attention alignments."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Literal

import torch
from pydantic import Field, field_validator

from ...core.metrics.text import bleu, exact_match
from ...data.source import Example
from ...data.synthetic.copy_reverse_sort import Reverse
from ...look import attention_maps
from ..inference.run import Run
from .measures import Curve, Measure


class Binned(Measure):
    """Base of measures on pairs of the test split, in bins by the length of their sources in tokens.

    edges:    boundaries of the bins: [10, 20] gives under 10, 10 to 19, and 20 or more.
    examples: number of examples of the test split.
    """

    x = "tokens of the source"

    edges: tuple[int, ...] = (10, 20)
    examples: int = Field(default=1000, gt=0)

    @field_validator("edges")
    @classmethod
    def _ascending(cls, edges: tuple[int, ...]) -> tuple[int, ...]:
        if list(edges) != sorted(set(edges)):
            raise ValueError(f"edges are different lengths in ascending order, not {list(edges)}")
        return edges

    def pairs(self, run: Run) -> list[Example]:
        """The first examples of the test split. Raises ValueError if they are not pairs."""
        assert run.recipe is not None
        examples = list(islice(run.recipe.data.examples("test", shuffle=False), self.examples))
        if not examples or "source" not in examples[0]:
            raise ValueError(
                f"measure {self.kind} needs pairs, and these data are running text; use a recipe with pairs"
            )
        return examples

    def bins(self, lengths: Sequence[int]) -> list[tuple[float, list[int]]]:
        """The mean length and the indices of each bin that is not empty."""
        bins: list[list[int]] = [[] for _ in range(len(self.edges) + 1)]
        for i, length in enumerate(lengths):
            bins[sum(length >= edge for edge in self.edges)].append(i)
        return [(sum(lengths[i] for i in part) / len(part), part) for part in bins if part]


class ByLength(Binned, kind="by-length"):
    """Exact match (in %) or BLEU of generated outputs by the length of the source (Cho et al. 2014b; Bahdanau et al. 2015,
    figure 2)."""

    title = "Quality by source length"

    metric: Literal["exact-match", "bleu"] = "exact-match"

    @property
    def y(self) -> str:
        return "BLEU" if self.metric == "bleu" else "exact match, %"

    def __call__(self, run: Run) -> Curve:
        examples = self.pairs(run)
        lengths = [len(run.encode(example["source"])) for example in examples]
        generated = run.outputs([example["source"] for example in examples])
        curve = []
        for length, part in self.bins(lengths):
            outputs, references = [generated[i][0].text for i in part], [examples[i]["target"] for i in part]
            metric = bleu if self.metric == "bleu" else exact_match
            scale = 1 if self.metric == "bleu" else 100
            curve.append((length, scale * metric(outputs, references).value))
        return curve

    def summary(self, curves: dict[str, Curve]) -> list[str]:
        (first, base), *others = curves.items()
        sentences = []
        for name, curve in others:
            if len(curve) < 2 or len(base) < 2:
                continue
            (short, a), (long, b) = curve[0], curve[-1]
            sentences.append(
                f"{name} scores {a - base[0][1]:+.1f} relative to {first} on sources of about {short:.0f} tokens, and "
                f"{b - base[-1][1]:+.1f} on sources of about {long:.0f} tokens."
            )
        return sentences


class Alignment(Binned, kind="alignment"):
    """How often the decoder attends most to the right source token, when it is given the reference.

    The right token is known only for reversal: target token t of n comes from source token n + 1 − t. Weights of several
    heads and layers are averaged. Models without attention have no curve; nor do models of other data.
    """

    title = "Alignment of attention"

    examples: int = Field(default=200, gt=0)

    @property
    def y(self) -> str:
        return "targets with the largest weight on the right token, %"

    def __call__(self, run: Run) -> Curve:
        if run.recipe is None or not isinstance(run.recipe.data, Reverse):
            return []
        examples = self.pairs(run)
        lengths = [len(run.encode(example["source"])) for example in examples]
        curve = []
        for length, part in self.bins(lengths):
            counts = [self._right(run, examples[i]) for i in part]
            total = sum(n for _, n in counts)
            if total:
                curve.append((length, 100 * sum(right for right, _ in counts) / total))
        return curve

    def summary(self, curves: dict[str, Curve]) -> list[str]:
        if not any(curves.values()):
            return ["This needs data of the kind reverse, where the right token is known, and a model with attention."]
        return [f"{name}: at least {min(y for _, y in curve):.1f} %." for name, curve in curves.items() if curve]

    def _right(self, run: Run, example: Example) -> tuple[int, int]:
        """The number of target tokens whose largest weight is on the right source token, and of all target tokens; (0, 0)
        without attention."""
        model = run.model
        source, target = run.encode(example["source"]), run.words.encode(example["target"])
        ids, fed = (torch.tensor([row], device=model.device) for row in (source, [run.start, *target[:-1]]))
        maps = attention_maps.attention(model, ids, fed, choose=attention_maps.cross)
        if not maps:
            return 0, 0
        largest = torch.stack([one.mean()[0] for one in maps]).mean(0).argmax(-1)
        right = torch.arange(len(target) - 1, -1, -1)
        return int((largest == right).sum()), len(target)
