"""Which weights of a model are quantized, and how: linear layers, and by choice embeddings and the output layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from torch import Tensor, nn

from ....core import several
from ....core.spec import brief, nearest
from ...layers.embedding import TokenEmbedding
from ...layers.grouped_linear import GroupedLinear
from ...layers.linear import Linear
from ...layers.lora import layers as adapted_layers
from ...layers.quantized import check_not_quantized
from ...quantization.scheme import Scheme
from ..heads.language_model import LanguageModelHead
from ..transformer import TransformerModel


def matrices(
    model: nn.Module, embeddings: bool | Scheme = False, head: bool | Scheme = False, keep: str | Sequence[str] = ()
) -> dict[str, Any]:
    """Return the layers to quantize by their paths: the linear layers of the stacks, experts included.

    embeddings: also the tables of tokens.
    head:       also the head's matrices. A table that the head shares is quantized for both if either is chosen.
    keep:       paths of layers to leave as they are, as shell patterns: `*.down`, `decoder.blocks.0.*`.

    Raises ValueError for other models than Transformers, for models that are quantized or have an adapter, for patterns
    without a match, and if nothing is left.
    """
    if not isinstance(model, TransformerModel):
        raise ValueError(f"weights of Transformers are quantized; this model is a {type(model).__name__}")
    check_not_quantized(model, "quantization")
    if adapted_layers(model):
        raise ValueError("this model has an adapter; merge it into the model's weights by `fold` before quantization")
    found = {
        name: layer for name, layer in model.named_modules() if _is_chosen(name, layer, bool(embeddings), bool(head))
    }
    keep = several.texts(keep, "keep")
    for pattern in keep:
        if not any(fnmatchcase(name, pattern) for name in found):
            raise ValueError(
                f"keep: {brief(pattern)} matches no layer that would be quantized; {nearest(pattern, found)}"
            )
    found = {n: layer for n, layer in found.items() if not any(fnmatchcase(n, pattern) for pattern in keep)}
    if not found:
        raise ValueError("this model has no weights to quantize; its linear layers are all kept")
    shared: dict[int, str] = {}
    return {name: layer for name, layer in found.items() if shared.setdefault(id(layer.weight), name) == name}


def _is_chosen(name: str, layer: nn.Module, embeddings: bool, head: bool) -> bool:
    if not isinstance(getattr(layer, "weight", None), Tensor):
        return False
    if _is_of_head(name):
        return head and isinstance(layer, Linear | LanguageModelHead)
    return isinstance(layer, Linear | GroupedLinear) or (embeddings and isinstance(layer, TokenEmbedding))


def schemes_of(
    layers: Mapping[str, Any], scheme: Scheme, embeddings: bool | Scheme = False, head: bool | Scheme = False
) -> dict[str, Scheme]:
    """The scheme of each layer: that of the embeddings or the head if they have another one, else `scheme`."""
    own: dict[str, Scheme] = {}
    for name, layer in layers.items():
        chosen = head if _is_of_head(name) else embeddings if isinstance(layer, TokenEmbedding) else scheme
        own[name] = chosen if isinstance(chosen, Scheme) else scheme
    return own


def _is_of_head(name: str) -> bool:
    return name.split(".")[0] in ("head", "classification_head")


def group_sizes(layers: Mapping[str, Any], schemes: Mapping[str, Scheme]) -> dict[str, int]:
    """The size of the groups of each layer. Raises ValueError naming a layer that can't take its scheme, and what it can."""
    sizes: dict[str, int] = {}
    for name, layer in layers.items():
        scheme = schemes[name]
        scheme.check()
        try:
            sizes[name] = scheme.format.group_size(layer.weight.shape[-1], scheme.group_size)
        except ValueError as error:
            raise ValueError(f"{name} {error}; or leave the layer as it is with --keep '{_family(name)}'") from None
    return sizes


def _family(name: str) -> str:
    """A pattern for the layers of this name in all blocks."""
    return "*." + ".".join(name.split(".")[-2:]) if ".blocks." in name else name
