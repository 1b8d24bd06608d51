"""`EnsembleModel`: several models as one, whose probabilities are the mean of theirs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Literal, cast, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ...core import several
from ...core.layout import Layout
from ...core.spec import brief, nearest
from ..kv_cache.kinds import CacheKind
from ..layers.losses import LossSums, at_least_fp32, cross_entropy
from .base import ModelModule
from .build import AnyModel
from .heads.language_model import LanguageModel
from .heads.sequence import SequenceClassifier
from .heads.text import TokenClassifier
from .heads.vision import ImageClassifier

Mode = Literal["linear", "log_linear"]
Outputs = Literal["classes", "odds", "numbers"]


class EnsembleModel(ModelModule):
    """Models that read the same input, as one model. Weights w_i sum to 1, and p_i are the models' probabilities:

        linear:      p = Σ_i w_i p_i, the mean of probabilities;
        log_linear:  p ∝ Π_i p_i^w_i, the mean of log-probabilities, normalized.

    Outputs have the shape of a single model's, (B, T, V) or (B, labels), and are log p in fp32 or wider, so they serve as
    logits. Heads with one score for yes or no give the log-odds of p, and heads that predict numbers give their mean.

    models:      in evaluation mode, on one device. `spec` is the first one's.
    weights:     one positive number for each model, by default equal.
    multi_label: whether the head's classes don't exclude each other, so each is a yes or no.

    Raises ValueError for models whose outputs can't be averaged, and for weights that don't fit.
    """

    def __init__(
        self,
        models: Sequence[AnyModel],
        weights: Sequence[float] | None = None,
        mode: Mode = "linear",
        multi_label: bool = False,
    ) -> None:
        if not models:
            raise ValueError("an ensemble has at least one model; give a list of them")
        super().__init__(models[0].spec)
        if mode not in get_args(Mode):
            raise ValueError(f"there is no ensemble mode {brief(mode)}; {nearest(str(mode), get_args(Mode))}")
        self.models, self.mode, self.weights = nn.ModuleList(models), mode, shares(weights, len(models))
        kinds = [outputs_of(model, multi_label) for model in models]
        shapes = [(kind, _width(model)) for kind, model in zip(kinds, models, strict=True)]
        if len(set(shapes)) > 1:
            sizes = " and ".join(dict.fromkeys(f"{width:,} {kind}" for kind, width in shapes))
            raise ValueError(f"the models of an ensemble have the same outputs, not {sizes}")
        self.outputs: Outputs = kinds[0]

    @property
    def members(self) -> list[Any]:
        """The models."""
        return list(self.models)

    @property
    def max_positions(self) -> int | None:
        """The longest context that all models read; None if it is unbounded."""
        return min((n for model in self.members if (n := model.max_positions) is not None), default=None)

    def forward(
        self,
        *inputs: object,
        labels: Tensor | None = None,
        label_smoothing: float = 0.0,
        z_loss: float = 0.0,
        **more: Any,
    ) -> Tensor | LossSums:
        """Return log p; or with `labels`, where −100 does not count, the sums of the loss. Inputs are the models'."""
        out = self._mean(model(*inputs, **more) for model in self.members)
        if labels is None:
            return out
        if self.outputs == "classes":
            return cross_entropy(out, labels, label_smoothing, z_loss)
        return cast(LossSums, self.members[0].head.output_loss(out, labels, label_smoothing, z_loss))

    def hidden(self, *inputs: object, **more: object) -> Tensor:
        """Raise ValueError: hidden states of different models have nothing in common."""
        raise ValueError("an ensemble averages probabilities and has no hidden states; use one of its models")

    # -- decoding -----------------------------------------------------------------------------------------------

    def start(
        self,
        batch_size: int | None = None,
        *,
        source: Tensor | None = None,
        source_layout: Layout | None = None,
        capacity: int | None = None,
        cache: CacheKind | None = None,
    ) -> EnsembleCache:
        """Return the caches of all models, to `step` with. Arguments are as in a single model's `start`."""
        options: dict[str, Any] = {"capacity": capacity} | ({} if cache is None else {"cache": cache})
        if source is not None:
            options |= {"source": source, "source_layout": source_layout}
        return EnsembleCache([model.start(batch_size, **options) for model in self.members])

    def step(
        self, ids: Tensor, cache: EnsembleCache, layout: Layout | None = None, all_positions: bool = False
    ) -> Tensor:
        """Feed the next T tokens of every row to every model. Returns log p after the last column (B, V), or all
        (B, T, V)."""
        more = {"all_positions": True} if all_positions else {}
        return self._mean(model.step(ids, own, layout, **more) for model, own in zip(self.members, cache, strict=True))

    # -- the mean -----------------------------------------------------------------------------------------------

    def _mean(self, outputs: Iterator[Tensor]) -> Tensor:
        wide = map(at_least_fp32, outputs)
        if self.outputs == "numbers":
            return self._sum(wide)
        if self.outputs == "classes":
            log_p = self._log_mean(one.log_softmax(-1) for one in wide)
            return log_p if self.mode == "linear" else log_p.log_softmax(-1)
        scores = list(wide)
        return self._log_mean(map(F.logsigmoid, scores)) - self._log_mean(F.logsigmoid(-one) for one in scores)

    def _log_mean(self, log_probs: Iterator[Tensor]) -> Tensor:
        """log Σ w p, or Σ w log p in the mode log_linear."""
        if self.mode == "log_linear":
            return self._sum(log_probs)
        shifted = (one + math.log(weight) for one, weight in zip(log_probs, self.weights, strict=True))
        return _folded(torch.logaddexp, shifted)

    def _sum(self, terms: Iterator[Tensor]) -> Tensor:
        return _folded(torch.add, (one * weight for one, weight in zip(terms, self.weights, strict=True)))


class EnsembleCache:
    """The caches of an ensemble's models, changed together."""

    def __init__(self, caches: Sequence[Any]) -> None:
        self.caches = caches

    def __iter__(self) -> Iterator[Any]:
        return iter(self.caches)

    @property
    def batch_size(self) -> int:
        return int(self.caches[0].batch_size)

    def reorder(self, rows: Tensor, cross: bool = True) -> None:
        for cache in self.caches:
            cache.reorder(rows, cross)

    @contextmanager
    def settle(self) -> Iterator[None]:
        """Promise that weights and hooks of all models stay as they are, see `Cache.settle`."""
        with ExitStack() as stack:
            for cache in self.caches:
                if hasattr(cache, "settle"):
                    stack.enter_context(cache.settle())
            yield

    def continued(self, *args: object) -> Layout:
        """The layout of the next tokens, which is the same for all models."""
        layout: Layout = self.caches[0].continued(*args)
        return layout

    def check_rewind_rows(self) -> None:
        for cache in self.caches:
            cache.check_rewind_rows()

    def rewind_rows(self, counts: Sequence[int]) -> None:
        for cache in self.caches:
            cache.rewind_rows(counts)


def shares(weights: Sequence[float] | None, count: int) -> tuple[float, ...]:
    """Return weights that sum to 1, by default equal. Raises ValueError unless there is a positive one for each model."""
    if weights is None:
        return (1 / count,) * count
    if not isinstance(weights, Sequence) or not all(type(weight) in (int, float) for weight in weights):
        raise ValueError(f"weights are one number for each model, such as [2, 1, 1], not {several.shown(weights)}")
    numbers = [float(weight) for weight in weights]
    if len(numbers) != count:
        raise ValueError(f"there are {len(numbers)} weights for {count} models; give one for each")
    if odd := [number for number in numbers if not 0 < number < math.inf]:
        raise ValueError(
            f"a model's weight is a positive number, not {odd[0]:g}; leave out a model that counts nothing"
        )
    return tuple(number / math.fsum(numbers) for number in numbers)


def outputs_of(model: AnyModel, multi_label: bool = False) -> Outputs:
    """What a model's outputs are: logits of classes that exclude each other, log-odds, or numbers.

    Raises ValueError for a model whose outputs are none of these.
    """
    head = getattr(model.spec, "head", None)
    generates = not hasattr(model.spec, "head") and hasattr(model, "step")  # a model defined outside qkv
    if generates or isinstance(head, LanguageModel | ImageClassifier):
        return "classes"
    if isinstance(head, TokenClassifier):
        return "odds" if head.labels == 1 else "classes"
    if isinstance(head, SequenceClassifier) and head.labels is not None:
        return "numbers" if head.labels == 1 else "odds" if multi_label else "classes"
    what = "no head" if head is None else f"the head {head.kind!r}"
    raise ValueError(
        f"an ensemble averages the probabilities of tokens, classes or tags, and a model with {what} has none"
    )


def _width(model: AnyModel) -> int:
    labels: int | None = getattr(getattr(model.spec, "head", None), "n_labels", None)
    return model.vocab_size if labels is None else labels


def _folded(combine: Callable[[Tensor, Tensor], Tensor], terms: Iterator[Tensor]) -> Tensor:
    total = next(terms)
    for term in terms:
        total = combine(total, term)
    return total
