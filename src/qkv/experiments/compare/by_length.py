"""Measures by source length: quality of outputs, and accuracy of attention alignments."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Literal

import torch
from pydantic import Field, field_validator

from ...data.source import Example
from ...data.synthetic.copy_reverse_sort import Reverse
from ...inference.run import Run
from ...look import attention_maps
from ...metrics.text import bleu, exact_match
from .measures import Curve, Measure


class Binned(Measure):
    """What is measured of the test split's pairs in bins of their sources' lengths, in tokens.

    edges:    where a bin ends and the next begins: [10, 20] is under 10, from 10 to 19, and 20 or more.
    examples: how many of the test split are looked at.
    """

    x = "tokens of the source"

    edges: tuple[int, ...] = (10, 20)
    examples: int = Field(default=1000, gt=0)

    @field_validator("edges")
    @classmethod
    def _ascending(cls, edges: tuple[int, ...]) -> tuple[int, ...]:
        if list(edges) != sorted(set(edges)):
            raise ValueError(f"edges are lengths in ascending order, not {list(edges)}")
        return edges

    def taken(self, run: Run) -> list[Example]:
        assert run.recipe is not None
        found = list(islice(run.recipe.data.examples("test", shuffle=False), self.examples))
        if not found or "source" not in found[0]:
            raise ValueError(
                f"measure {self.kind} is of pairs, and this data has running text; take a recipe with pairs"
            )
        return found

    def bins(self, lengths: Sequence[int]) -> list[tuple[float, list[int]]]:
        """The mean length of each bin that has any, and the numbers of what is in it."""
        made: list[list[int]] = [[] for _ in range(len(self.edges) + 1)]
        for number, length in enumerate(lengths):
            made[sum(length >= edge for edge in self.edges)].append(number)
        return [(sum(lengths[i] for i in part) / len(part), part) for part in made if part]


class ByLength(Binned, kind="by-length"):
    """Exact match (in %) or BLEU of generated outputs by the length of the source (Cho et al. 2014b; Bahdanau et al. 2015,
    figure 2)."""

    title = "Quality by length of the source"

    metric: Literal["exact-match", "bleu"] = "exact-match"

    @property
    def y(self) -> str:
        return "BLEU" if self.metric == "bleu" else "exact match, %"

    def __call__(self, run: Run) -> Curve:
        examples = self.taken(run)
        lengths = [len(run.text_model.encode(example["source"])) for example in examples]
        made = run.outputs([example["source"] for example in examples])
        curve = []
        for length, part in self.bins(lengths):
            outputs, truths = [made[i][0].text for i in part], [examples[i]["target"] for i in part]
            found = bleu(outputs, truths).value if self.metric == "bleu" else 100 * exact_match(outputs, truths).value
            curve.append((length, found))
        return curve

    def told(self, curves: dict[str, Curve]) -> list[str]:
        (first, base), *others = curves.items()
        said = []
        for name, curve in others:
            if len(curve) < 2 or len(base) < 2:
                continue
            (short, a), (long, b) = curve[0], curve[-1]
            said.append(
                f"{name} is {a - base[0][1]:+.1f} above {first} on sources of about {short:.0f} tokens, and "
                f"{b - base[-1][1]:+.1f} on those of about {long:.0f}."
            )
        return said


class Alignment(Binned, kind="alignment"):
    """How often the largest weight of the decoder's attention is on the right source token, given the true target.

    Only where the right token is known: in reversal the t-th target token of n is the source's (n + 1 − t)-th. Weights of
    several heads and layers are averaged. A model without attention has no curve, and none has with other data.
    """

    title = "Where attention looks"

    examples: int = Field(default=200, gt=0)

    @property
    def y(self) -> str:
        return "largest weight on the right token, %"

    def __call__(self, run: Run) -> Curve:
        if run.recipe is None or not isinstance(run.recipe.data, Reverse):
            return []
        examples = self.taken(run)
        lengths = [len(run.text_model.encode(example["source"])) for example in examples]
        curve = []
        for length, part in self.bins(lengths):
            counts = [self._right(run, examples[i]) for i in part]
            total = sum(n for _, n in counts)
            if total:
                curve.append((length, 100 * sum(right for right, _ in counts) / total))
        return curve

    def told(self, curves: dict[str, Curve]) -> list[str]:
        if not any(curves.values()):
            return ["The right token is known where data.kind is reverse, and no model here has that and attention."]
        return [f"{name}: {min(y for _, y in curve):.1f} % or more." for name, curve in curves.items() if curve]

    def _right(self, run: Run, example: Example) -> tuple[int, int]:
        """Of the tokens of one target, those whose largest weight is where it should be; and all, 0 without attention."""
        text, model = run.text_model, run.model
        source, target = text.encode(example["source"]), text.tokenizer.encode(example["target"])
        ids, fed = (torch.tensor([row], device=model.device) for row in (source, [text.start, *target[:-1]]))
        maps = attention_maps.attention(model, ids, fed, choose=attention_maps.cross)
        if not maps:
            return 0, 0
        places = torch.stack([one.mean()[0] for one in maps]).mean(0).argmax(-1)
        wanted = torch.arange(len(target) - 1, -1, -1)
        return int((places == wanted).sum()), len(target)
