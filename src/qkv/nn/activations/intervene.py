"""Change activations while a model runs: ablation, patching, steering."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial

from torch import Tensor, nn

from ...core.several import shown
from .changes import Change
from .hooks import attached
from .sites import Site, select, sites

Function = Callable[[Tensor], Tensor]
Changes = Mapping[str, Change | Function | Sequence[Change | Function]]


@contextmanager
def intervene(model: nn.Module, changes: Changes) -> Iterator[None]:
    """Inside the block, every pass of `model` runs with the changed activations, generation included. Passes of other
    threads run without the changes.

        with intervene(model, {"decoder.layers.3.attention.heads": Zero(heads=[0, 5])}):
            logits = model(ids)

    Keys are names of `sites`, in which `*` stands for any text. Values are a `Change`, a function from the activation to a
    tensor of its shape, or several of them, applied in order. Gradients flow through changes. A change of `scores` or
    `weights` computes that layer's attention by the reference implementation, with all pairs in memory.

    Raises ValueError for a name that the model does not have, when the block is entered; for a selection outside an
    activation, when the model computes it.
    """
    if not isinstance(changes, Mapping):
        raise ValueError(f"changes are a dictionary from names of activations to changes, not {shown(changes)}")
    known = sites(model)
    with ExitStack() as stack:
        for pattern, change in changes.items():
            several = list(change) if isinstance(change, Sequence) else [change]
            chosen = list(select(known, [pattern]))
            fixed = next((site.name for site in chosen if not site.changeable), None)
            if fixed is not None:
                raise ValueError(
                    f"{fixed} can be recorded but not changed; change the output of a module of the decoder"
                )
            for one in several:
                stack.enter_context(attached(chosen, partial(_changed, one)))
        yield


def _changed(change: Change | Function, site: Site, x: Tensor) -> Tensor:
    if isinstance(change, Change):
        return change.apply(x, _axes(site, x), site.name)
    new = change(x)
    if not isinstance(new, Tensor) or new.shape != x.shape:
        got = f"a tensor of shape {tuple(new.shape)}" if isinstance(new, Tensor) else f"{type(new).__name__}"
        raise ValueError(f"the change of {site.name} returned {got} in place of a tensor of shape {tuple(x.shape)}")
    return new


def _axes(site: Site, x: Tensor) -> Mapping[str, int]:
    """The axes of an activation; several residual streams (reversible layers) come before the others."""
    streams = (
        site.layer is not None and site.name.endswith((".input", ".output")) and x.ndim == 4 and site.split is None
    )
    return {name: axis + 1 if axis >= 0 else axis for name, axis in site.axes.items()} if streams else site.axes
