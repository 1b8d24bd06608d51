"""Performer (Choromanski et al. 2021): linear attention whose random features approximate soft-max attention."""

from __future__ import annotations

import torch
from torch import nn

from .feature_maps import Favor
from .linear import LinearAttention, MultiHeadLinearAttention
from .mixer import refuse_crossing


class Performer(LinearAttention, kind="performer"):
    """softmax(scale · QKᵀ) V, with exponentials estimated by `features.n_features` positive orthogonal random features.

    The error falls as m^−½ with the number m of features, and grows with the norms of queries and keys. Directions depend
    on `features.seed` and the layer's name, and are saved with the model; `redraw` draws others.
    """

    features: Favor = Favor()

    adds_bias, state, state_parts = False, LinearAttention.state, LinearAttention.state_parts

    def module(self, d_model: int, cross: bool = False, name: str = "") -> nn.Module:
        refuse_crossing(self, cross)
        return MultiHeadPerformer(self, d_model, name)


class MultiHeadPerformer(MultiHeadLinearAttention):
    """The module of `Performer`."""

    @torch.no_grad()
    def redraw(self, seed: int) -> None:
        """Draw new directions from the seed and the layer's name. Call it between training steps, not while decoding."""
        assert isinstance(self.features, Favor) and self.directions is not None
        self.directions.copy_(self.features.replace(seed=seed).directions(self.d_head, self.name))


def redraw(model: nn.Module, seed: int) -> int:
    """`redraw` every Performer layer of a model (Choromanski et al. 2021, §4.2); returns how many there are."""
    layers = [module for module in model.modules() if isinstance(module, MultiHeadPerformer)]
    for layer in layers:
        layer.redraw(seed)
    return len(layers)
