"""Remove heads, neurons or layers: a model with smaller matrices, which computes what the old one does without them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ...core.spec import Spec, brief, nearest
from ..layers.quantized import check_not_quantized
from ..models.build import build
from ..models.transformer import Transformer, TransformerModel
from ..positions.base import Position
from .units import AttentionLayer, Heads, attention_layers, check_heads, feedforward_layers, module_of, spec_of

State = dict[str, Tensor]


def remove_heads(model: TransformerModel, heads: Heads) -> TransformerModel:
    """Return a model without some heads, with all other weights; `model` is unchanged.

    The outputs equal `model`'s with zeros in place of the outputs of these heads. A key-value head is removed with the
    last of its query heads; the remaining ones have to serve equally many.

    Raises ValueError for unknown layers or heads, for all heads of a layer, and if the others need them.
    """
    layers, chosen = attention_layers(model), check_heads(model, heads)
    state, changes = tensors_of(model), dict[str, Any]()
    for name, indices in chosen.items():
        layer = layers[name]
        spec = getattr(_block(model.spec, layer.block), layer.sublayer)
        kept = spec.kept_heads
        removed = (*spec.pruned_heads, *(kept[h] for h in indices))
        smaller = spec.replace({"pruned_heads": tuple(sorted(removed))})
        _cut_heads(state, model, layer, indices)
        changes[f"{layer.block}.{layer.sublayer}"] = (
            smaller if _needs_indices(model.spec, layer) else _plain(smaller, model.spec)
        )
    return rebuilt(model, model.spec.replace(changes), state)


def remove_neurons(model: TransformerModel, neurons: Mapping[str, Sequence[int]]) -> TransformerModel:
    """Return a model without some neurons of its feed-forward layers: `{"decoder.0": [5, 17]}`; `model` is unchanged.

    Raises ValueError for unknown layers or neurons, and for all neurons of a layer.
    """
    sizes = {path.replace(".blocks", ""): n for path, n in feedforward_layers(model).items()}
    state, changes = tensors_of(model), dict[str, Any]()
    for name, indices in neurons.items():
        if name not in sizes:
            raise ValueError(
                f"there is no feed-forward layer {brief(name)} with neurons to remove; {nearest(name, sizes)}"
            )
        outside = next((i for i in indices if not 0 <= i < sizes[name]), None)
        if outside is not None:
            raise ValueError(f"{name} has neurons 0 to {sizes[name] - 1}; there is no {outside}")
        kept = sorted(set(range(sizes[name])) - set(indices))
        if not kept:
            raise ValueError(f"all {sizes[name]} neurons of {name} would be removed; keep one at least")
        stack, _, index = name.partition(".")
        path = f"{stack}.blocks.{index}.feedforward"
        for part in ("gate", "up"):
            _cut_outputs(state, f"{path}.{part}", kept)
        _cut_inputs(state, f"{path}.down", kept)
        changes[f"{path}.d_ff"] = len(kept)
    return rebuilt(model, model.spec.replace(changes), state)


def remove_layers(model: TransformerModel, layers: Mapping[str, Iterable[int]]) -> TransformerModel:
    """Return a model without some layers: `{"decoder": [3, 4]}`; `model` is unchanged.

    Raises ValueError for unknown stacks or layers, for all layers of a stack, and if nothing would attend to the encoder.
    """
    spec, state, changes = spec_of(model), tensors_of(model), dict[str, Any]()
    stacks = dict(spec.stacks())
    for name, indices in layers.items():
        if name not in stacks:
            raise ValueError(f"there is no stack {brief(name)}; {nearest(name, stacks)}")
        blocks = stacks[name].blocks
        outside = next((i for i in indices if not 0 <= i < len(blocks)), None)
        if outside is not None:
            raise ValueError(f"the {name} has layers 0 to {len(blocks) - 1}; there is no {outside}")
        kept = [i for i in range(len(blocks)) if i not in set(indices)]
        if not kept:
            raise ValueError(f"all {len(blocks)} layers of the {name} would be removed; keep one at least")
        changes[f"{name}.blocks"] = tuple(blocks[i] for i in kept)
        state = _renumbered(state, f"{name}.blocks.", kept)
    return rebuilt(model, spec.replace(changes), state)


def tensors_of(model: TransformerModel) -> State:
    check_not_quantized(model, "pruning")
    return {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}


def _block(spec: Transformer, path: str) -> Any:
    stack, _, index = path.split(".")
    return dict(spec.stacks())[stack].blocks[int(index)]


def _cut(state: State, name: str, axis: int, kept: Sequence[int]) -> None:
    if name in state:
        state[name] = state[name].index_select(axis, torch.tensor(kept, device=state[name].device))


def _cut_outputs(state: State, layer: str, kept: Sequence[int]) -> None:
    """Cut the rows of a linear layer's matrix, or of its second factor, and its bias."""
    for name in ("weight", "bias", "expand.weight", "expand.bias"):
        _cut(state, f"{layer}.{name}", 0, kept)


def _cut_inputs(state: State, layer: str, kept: Sequence[int]) -> None:
    """Cut the columns of a linear layer's matrix, or of its first factor."""
    for name in ("weight", "reduce.weight"):
        _cut(state, f"{layer}.{name}", 1, kept)


def _cut_heads(state: State, model: TransformerModel, layer: AttentionLayer, heads: Sequence[int]) -> None:
    """Cut the rows of q, k and v and the columns of the output projection that belong to some heads."""
    module, path = module_of(model, layer), f"{layer.block}.{layer.sublayer}"
    if module.score is not None and any(True for _ in module.score.parameters()):
        raise ValueError(f"heads of {layer.name} can't be removed: its score has parameters that its heads share")
    kept = [h for h in range(layer.n_heads) if h not in set(heads)]
    groups = sorted({h // layer.group for h in kept})

    def spread(units: Sequence[int], width: int) -> list[int]:
        return [unit * width + i for unit in units for i in range(width)]

    for part, units, width in (("q", kept, module.d_head), ("k", groups, module.d_head), ("v", groups, module.d_value)):
        _cut_outputs(state, f"{path}.{part}", spread(units, width))
    _cut_inputs(state, f"{path}.out", spread(kept, module.d_value))
    _cut(state, f"{path}.sinks", 0, kept)


def _needs_indices(spec: Transformer, layer: AttentionLayer) -> bool:
    """Whether the positions of a layer tell its heads apart, by a bias."""
    stack = dict(spec.stacks())[layer.block.split(".")[0]]
    position = stack.position_of(_block(spec, layer.block))
    return layer.sublayer == "attention" and type(position).bias is not Position.bias


def _plain(attention: Any, spec: Transformer) -> Spec:
    """The attention with as many heads as are left, if nothing depends on which."""
    h, k, d, e = attention.widths(spec.d_model)
    sizes = {"n_heads": h, "n_kv_heads": None if k == h else k, "d_head": d, "d_value": None if d == e else e}
    plain: Spec = attention.replace({**sizes, "pruned_heads": ()})
    return plain


def _renumbered(state: State, prefix: str, kept: Sequence[int]) -> State:
    """The state with the blocks that are kept under their new numbers."""
    new = {name: tensor for name, tensor in state.items() if not name.startswith(prefix)}
    for number, old in enumerate(kept):
        of_block = f"{prefix}{old}."
        new |= {f"{prefix}{number}.{n.removeprefix(of_block)}": t for n, t in state.items() if n.startswith(of_block)}
    return new


def rebuilt(model: TransformerModel, spec: Transformer, state: State) -> TransformerModel:
    smaller = build(spec, device=model.device, dtype=model.dtype, cls=type(model))
    smaller.origin = model.origin
    smaller.load_state_dict(state)
    smaller.train(model.training)
    return smaller
