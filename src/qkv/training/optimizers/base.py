"""`Optimizer`, the base of optimizers: frozen parameters, per-parameter learning rates, and weight decay."""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Annotated, Any, ClassVar, Self

import torch
from pydantic import BeforeValidator, Field
from torch import nn

from ...core.spec import Spec
from .parameter_groups import elsewhere, embedding_parameters, freeze, scales
from .state import Combined

Positive = Annotated[float, Field(gt=0.0, allow_inf_nan=False)]
NonNegative = Annotated[float, Field(ge=0.0, allow_inf_nan=False)]
Beta = Annotated[float, Field(ge=0.0, lt=1.0)]
Share = Annotated[float, Field(gt=0.0, le=1.0)]
Patterns = Annotated[tuple[str, ...], BeforeValidator(lambda value: (value,) if isinstance(value, str) else value)]
Groups = list[dict[str, Any]]
_TUNED_WIDTH = 768  # BERT's and GPT-2's, for which the usual rates of fine-tuning are


class Optimizer(Spec, role="optimizer"):
    """Settings that all optimizers share; a kind adds its own settings and `make`.

    lr:               the learning rate that the schedule multiplies.
    weight_decay:     λ of the decay w ← (1 − lr · λ) w, which skips biases, norms and embeddings.
    decay_embeddings: decay the embeddings too.
    layer_decay:      δ of layer-wise rates: the k-th block from the top of its stack learns at lr · δᵏ, the embeddings
                      below n blocks at lr · δⁿ⁺¹, and all above the blocks at lr (Clark et al. 2020; Bao et al. 2022).
    rates:            {pattern: factor} for the learning rates of parameters whose names match; several factors multiply.
    freeze:           patterns of parameters that are not trained.

    elementwise: whether the update of each number depends only on its own gradient, so a part of a parameter can be
                 updated by itself.
    state_bytes: bytes of state of a number in a matrix of a layer, and of one in a table, as far as they depend on the size.
    tuned_lr: the default lr for fine-tuning a trained model of 768 dimensions, see `tuning`.

    Patterns are shell-style globs: `encoder.*`, `*.attention.q.weight`, `decoder.blocks.[01].*`. A tied parameter matches
    under each of its names. Raises ValueError for a pattern that matches nothing.
    """

    elementwise: ClassVar[bool] = False
    tuned_lr: ClassVar[float] = 5e-5

    lr: Positive = 1e-3
    weight_decay: NonNegative = 0.01
    decay_embeddings: bool = False
    layer_decay: Share = 1.0
    rates: dict[str, Positive] = Field(default_factory=dict)
    freeze: Patterns = ()

    @property
    def state_bytes(self) -> tuple[float, float]:
        return 8.0, 8.0

    def tuning(self, width: int, adapter: bool) -> Self:
        """With the default learning rate for fine-tuning a trained model: proportional to 1 / width, and ten times as
        high if an adapter is trained in place of the weights."""
        lr = self.tuned_lr * _TUNED_WIDTH / width * (10 if adapter else 1)
        return self.model_copy(update={"lr": float(f"{lr:.1e}")})

    def build(self, model: nn.Module, mine: Set[nn.Parameter] | None = None) -> torch.optim.Optimizer:
        """Freeze what `freeze` names, and give the optimizer over the rest, tied parameters once.

        mine: the parameters that this rank updates. Others get no state. None: all.
        """
        self.freeze_parameters(model)
        groups = self.groups(model)
        groups = groups if mine is None else split(groups, mine)[0]
        return self.make(groups, model) if groups else Combined()

    def freeze_parameters(self, model: nn.Module) -> None:
        """Freeze what `freeze` names."""
        freeze(model, self.freeze)

    def inseparable(self, model: nn.Module, cuts: Mapping[nn.Parameter, int]) -> set[nn.Parameter]:
        """Return the parameters in `cuts` (with the dimension of each cut) whose parts can't be updated independently."""
        return set() if self.elementwise else set(cuts)

    def make(self, groups: Groups, model: nn.Module) -> torch.optim.Optimizer:
        """PyTorch's optimizer object over parameter groups. Its state is there from the start, all of it tensors.

        With ZeRO 1 and 2 the groups have only some of the model's parameters. The state depends on the shapes of parameters
        alone, not on their values."""
        raise NotImplementedError(f"{type(self).__name__} does not say how weights move")

    def groups(self, model: nn.Module) -> Groups:
        """Groups of (name, parameter), groups with decay first; `scale` is their factor on the learning rate."""
        spared = set() if self.decay_embeddings else embedding_parameters(model)
        factors = scales(model, self.layer_decay, self.rates)
        found: dict[tuple[bool, float], list[tuple[str, nn.Parameter]]] = {}
        for name, parameter in model.named_parameters():
            if parameter.requires_grad:
                decays = parameter.ndim >= 2 and parameter not in spared
                found.setdefault((decays, factors[parameter]), []).append((name, parameter))
        if not found and elsewhere(model):
            raise ValueError(
                "a stage of scale.pipeline has no trainable parameters; freeze less with training.optimizer.freeze, or use "
                "other axes"
            )
        if not found:
            raise ValueError("the model has no trainable parameters")
        return [
            {
                "params": found[decays, scale],
                "weight_decay": self.weight_decay if decays else 0.0,
                "lr": self.lr * scale,
                "scale": scale,
            }
            for decays, scale in sorted(found, reverse=True)
        ]


def split(groups: Groups, chosen: Set[nn.Parameter]) -> tuple[Groups, Groups]:
    """The groups with their chosen parameters only, and with the others only; without groups that this empties."""

    def part(inside: bool) -> Groups:
        parts = [{**g, "params": [pair for pair in g["params"] if (pair[1] in chosen) == inside]} for g in groups]
        return [group for group in parts if group["params"]]

    return part(True), part(False)
