"""Names of a model's activations, and where each of them is computed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Literal

from torch import Tensor, nn

from ...core.several import shown
from ...core.spec import brief, nearest
from ..layers.feedforward import FeedForwardNet
from ..models.block import BlockModule
from ..models.stack import StackModule
from ..models.transformer import TransformerModel

Where = Literal["input", "output", "scores", "weights"]

SEQUENCE = {"rows": 0, "positions": 1, "features": -1}
BY_HEAD = {"rows": 0, "positions": 1, "heads": 2, "features": 3}
PAIRS = {"rows": 0, "heads": 1, "positions": 2, "keys": 3}


@dataclass(frozen=True, eq=False)
class LayerSite:
    """One layer of a stack. A block that several layers share runs once for each of them, in order."""

    stack: StackModule
    block: BlockModule
    index: int

    @property
    def shared(self) -> bool:
        return self.stack.block_of.count(self.stack.block_of[self.index]) > 1


@dataclass(frozen=True, eq=False)
class Site:
    """One named activation.

    module: the module whose first input or whose output it is; for `scores` and `weights` the attention layer.
    where:  which of them. `scores` are the scores of query–key pairs before the soft-max, and `weights` the attention
            weights after it.
    axes:   the number of each axis that a change can select from.
    split:  (heads, width) if the tensor has its heads side by side in the last axis, to be split into two axes.
    layer:  the layer that it belongs to; None outside the layers.
    request: for `scores` and `weights`, the name of the layer's attention requests.
    """

    name: str
    module: nn.Module
    where: Where
    axes: dict[str, int] = field(default_factory=lambda: SEQUENCE)
    split: tuple[int, int] | None = None
    layer: LayerSite | None = None
    request: str = ""

    @property
    def changeable(self) -> bool:
        """Whether it can be changed: the weights of recurrent models can only be read."""
        return not self.request or self.layer is not None

    def view(self, x: Tensor) -> Tensor:
        """The tensor with its heads as an axis."""
        return x if self.split is None else x.unflatten(-1, self.split)

    def unview(self, x: Tensor) -> Tensor:
        """Undo `view`."""
        return x if self.split is None else x.flatten(-2)


def sites(model: nn.Module) -> dict[str, Site]:
    """Return the activations of a model by name, in the order in which they are computed.

    For a Transformer, with S for `encoder` or `decoder`, i for a layer from 0, and A for `attention` or `cross`:

        S.embedding                  (B, T, M)     token embeddings with the positions that are added to them
        S.layers.i.input             (B, T, M)     the residual stream before the layer
        S.layers.i.A.input           (B, T, M)     what the sublayer reads, normalized
        S.layers.i.A.q, .k, .v       (B, T, H, D)  projections by head, before qk-norm and rotation
        S.layers.i.A.scores          (B, H, T, S)  before the soft-max; the dtype's minimum for masked pairs
        S.layers.i.A.weights         (B, H, T, S)  after the soft-max
        S.layers.i.A.heads           (B, T, H, E)  the output of each head, before the output projection
        S.layers.i.A                 (B, T, M)     the output of the sublayer, before it is added to the stream
        S.layers.i.feedforward.input (B, T, M)
        S.layers.i.feedforward.neurons (B, T, F)   after the activation function (and gate)
        S.layers.i.feedforward       (B, T, M)
        S.layers.i.output            (B, T, M)     the residual stream after the layer
        S.output                     (B, T, M)     after the last norm
        logits                       (B, T, V)     the output of the head, whatever its shape

    A layer has the sites that its mechanisms compute: a mixture of experts has no `neurons`, and linear attention has
    no `scores` and `weights`. Other models have the output of every module, by the module's path; recurrent models also
    have `decoder.cross.weights`, the alignment, if they have attention.
    """
    if not isinstance(model, nn.Module):
        raise ValueError(f"a model is a PyTorch module, such as qkv.load(…).model, not {shown(model)}")
    if not isinstance(model, TransformerModel):
        named = {name: Site(name, module, "output") for name, module in model.named_modules() if name}
        return named | {"decoder.cross.weights": _pairs("decoder.cross", "weights", model, "decoder.cross", None)}
    found: list[Site] = []
    for name, stack in (("encoder", model.encoder), ("decoder", model.decoder)):
        if stack is not None:
            found += _of_stack(name, stack)
    if model.head is not None:
        found.append(Site("logits", model.head, "output"))
    return {site.name: site for site in found}


def select(known: dict[str, Site], patterns: Iterable[str]) -> Iterator[Site]:
    """Yield the sites that match any of the patterns, in which `*` stands for any text. Raises ValueError for no match."""
    chosen: set[str] = set()
    for pattern in patterns:
        matches = [name for name in known if fnmatchcase(name, pattern)]
        if not matches:
            raise ValueError(f"this model has no activation {brief(pattern)}; {nearest(pattern, known)}")
        chosen.update(matches)
    return (site for name, site in known.items() if name in chosen)


def _of_stack(name: str, stack: StackModule) -> Iterator[Site]:
    yield Site(f"{name}.embedding", stack.embedding, "output")
    for i, at in enumerate(stack.block_of):
        layer, prefix = LayerSite(stack, stack.block(at), i), f"{name}.layers.{i}"
        yield Site(f"{prefix}.input", layer.block, "input", layer=layer)
        for sublayer in layer.block.sublayers:
            yield from _of_sublayer(f"{prefix}.{sublayer}", f"{name}.blocks.{at}.{sublayer}", sublayer, layer)
        yield Site(f"{prefix}.output", layer.block, "output", layer=layer)
    yield Site(f"{name}.output", stack.norm, "output")


def _of_sublayer(name: str, request: str, sublayer: str, layer: LayerSite) -> Iterator[Site]:
    module = getattr(layer.block, sublayer)
    yield Site(f"{name}.input", module, "input", layer=layer)
    if sublayer == "feedforward":
        if isinstance(module, FeedForwardNet):
            yield Site(f"{name}.neurons", module.down, "input", layer=layer)
    else:
        yield from _of_attention(name, request, module, layer)
    yield Site(name, module, "output", layer=layer)


def _of_attention(name: str, request: str, module: nn.Module, layer: LayerSite) -> Iterator[Site]:
    heads, out = getattr(module, "n_heads", None), getattr(module, "out", None)
    if heads is None or not isinstance(out, nn.Module):
        return
    for part in "qkv":
        projection = getattr(module, part, None)
        if isinstance(projection, nn.Module):
            count: int = heads if part == "q" else getattr(module, "n_kv_heads", heads)
            yield Site(f"{name}.{part}", projection, "output", BY_HEAD, (count, -1), layer)
    if getattr(module, "has_weights", False):
        yield _pairs(name, "scores", module, request, layer)
        yield _pairs(name, "weights", module, request, layer)
    yield Site(f"{name}.heads", out, "input", BY_HEAD, (heads, -1), layer)


def _pairs(name: str, where: Where, module: nn.Module, request: str, layer: LayerSite | None) -> Site:
    return Site(f"{name}.{where}", module, where, PAIRS, None, layer, request)
