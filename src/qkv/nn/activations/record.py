"""Record activations by name while a model runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from ...core import several
from ...core.spec import brief, nearest
from ..attention import tap
from ..kernels.request import Request
from .hooks import attached, observed
from .sites import Site, select, sites


class Activations(Mapping[str, Tensor]):
    """Activations of the last pass, by name (`sites`), in the order in which they were computed.

    Scores and weights of attention are computed when they are read, from the recorded queries and keys, so recording
    leaves fused kernels in place.
    """

    def __init__(self, known: dict[str, Site]) -> None:
        self._known = known
        self._values: dict[str, Tensor | Callable[[], Tensor]] = {}

    def __getitem__(self, name: str) -> Tensor:
        if name not in self._values:
            why = "was not recorded" if name in self._known else "does not exist in this model"
            raise KeyError(f"{brief(name)} {why}; {nearest(name, self._values or self._known)}")
        value = self._values[name]
        if not isinstance(value, Tensor):
            value = self._values[name] = value()
        return value

    def __iter__(self) -> Iterator[str]:
        return iter([name for name in self._known if name in self._values])

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"Activations({', '.join(self)})"

    def _repr_html_(self) -> str:
        rows = ((name, self._values[name]) for name in self)
        cells = (
            f"<tr><td>{name}</td><td>{tuple(v.shape) if isinstance(v, Tensor) else 'computed when read'}</td></tr>"
            for name, v in rows
        )
        return f"<table><tr><th>activation</th><th>shape</th></tr>{''.join(cells)}</table>"

    def keep(self, site: Site, value: Tensor) -> Tensor:
        """Record the value of a site, and return it."""
        self._values[site.name] = value
        return value

    def later(self, site: Site, request: Request) -> None:
        """Record an attention request, from which scores or weights are computed when they are read."""
        compute = tap.weights if site.where == "weights" else tap.scores
        self._values[site.name] = lambda: compute(request)


@contextmanager
def record(model: nn.Module, names: Iterable[str] | str | None = None) -> Iterator[Activations]:
    """Record activations of every pass of `model` inside the block; a later pass replaces an earlier one. Passes of
    other threads are not recorded.

        with record(model, "decoder.layers.*.output") as activations:
            model(ids)
        activations["decoder.layers.3.output"]      # (B, T, M)

    `names` are names of `sites`, in which `*` stands for any text; None records all. Tensors come from the pass
    itself, in its graph: with gradients enabled, `torch.autograd.grad(loss, activations[name])` works. Scores and weights
    are in the graph only if gradients are enabled and `names` asks for them; then the layer's attention is computed by
    the reference implementation, with all pairs in memory.

    Raises ValueError for a name that the model does not have.
    """
    known = sites(model)
    patterns = ["*"] if names is None else several.texts(names, "names of activations")
    chosen = list(select(known, patterns))
    activations = Activations(known)
    in_graph = names is not None and torch.is_grad_enabled()
    later = [site for site in chosen if site.request and not (in_graph and site.changeable)]
    with attached([site for site in chosen if site not in later], activations.keep), observed(later, activations.later):
        yield activations
