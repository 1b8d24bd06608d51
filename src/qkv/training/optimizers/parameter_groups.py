"""Parameter groups: classify a model's parameters by type, depth, and patterns on their names."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase

from torch import nn

from ...core.spec import brief, nearest
from ...nn.layers.convolution import PictureConvolution
from ...nn.layers.embedding import InputModule
from ...nn.models.heads.base import HeadModule
from ...nn.positions.base import PositionModule

ELSEWHERE = "parameters_elsewhere"  # the attribute of a model that holds the names of parameters of other stages
_BLOCK = re.compile(r"(?:^|\.)blocks\.(\d+)\.")


def embedding_parameters(model: nn.Module) -> set[nn.Parameter]:
    """Tables that are looked up: tokens, positions, relative positions. A tied output layer shares its table's fate."""
    found: set[nn.Parameter] = set()
    for module in model.modules():
        if isinstance(module, nn.Embedding | InputModule | PositionModule):
            found.update(module.parameters(recurse=False))
    return found


def hidden_matrices(model: nn.Module) -> set[nn.Parameter]:
    """Trainable matrices (m, n), or stacks of them (…, m, n), that take hidden states to hidden states.

    Not the matrices of embeddings, of heads and of PyTorch's convolutions: one of their two axes is not a space of
    features. The convolutions of `layers.convolution` are matrices, from all that a place sees to its channels: in
    heads too.
    """
    outside, inside = embedding_parameters(model), set[nn.Parameter]()
    for module in model.modules():
        if isinstance(module, HeadModule | nn.modules.conv._ConvNd):
            outside.update(module.parameters())
        elif isinstance(module, PictureConvolution):
            inside.update(module.parameters())
    outside -= inside
    return {p for p in model.parameters() if p.requires_grad and p.ndim >= 2 and p not in outside}


def freeze(model: nn.Module, patterns: Iterable[str]) -> None:
    """Take the gradient from every parameter that a pattern names."""
    for pattern in patterns:
        for parameter in matching(model, pattern, "freeze"):
            parameter.requires_grad_(False)


def scales(model: nn.Module, layer_decay: float, rates: Mapping[str, float]) -> dict[nn.Parameter, float]:
    """Each parameter's factor on the learning rate: its layer's, times that of each pattern which names it."""
    factors = dict.fromkeys(model.parameters(), 1.0)
    if layer_decay != 1.0:
        factors = {parameter: layer_decay**distance for parameter, distance in from_the_top(model).items()}
    for pattern, factor in rates.items():
        for parameter in matching(model, pattern, "rates"):
            factors[parameter] *= factor
    return factors


def from_the_top(model: nn.Module) -> dict[nn.Parameter, int]:
    """How many layers a parameter lies below the head: the k-th block from the top of its stack k, its embeddings one
    more than the lowest block, everything else 0. Tables that stacks share count as the first one's."""
    names = {parameter: name for name, parameter in model.named_parameters()}
    places = {p: place for p, name in names.items() if (place := _place(name))}
    heights: dict[str, int] = {}
    for stack, index in (*places.values(), *filter(None, map(_place, elsewhere(model)))):
        heights[stack] = max(heights.get(stack, 0), index + 1)
    if not heights:
        raise ValueError(
            "layer_decay needs a model with numbered blocks (`blocks.0` …), and this one has none; leave it 1"
        )
    distances = {p: heights[places[p][0]] - places[p][1] if p in places else 0 for p in names}
    embedding = set(embedding_parameters(model))
    for module in model.modules():
        if isinstance(module, InputModule):
            embedding.update(module.parameters())
    for parameter in embedding.difference(places):
        below = [height for stack, height in heights.items() if names[parameter].startswith(f"{stack}.")]
        distances[parameter] = 1 + max(below or heights.values())
    return distances


def _place(name: str) -> tuple[str, int] | None:
    """The stack and the number of the block that a parameter belongs to."""
    found = _BLOCK.search(name)
    return None if found is None else (name[: found.start()], int(found[1]))


def elsewhere(model: nn.Module) -> frozenset[str]:
    """The names of the parameters that only other stages of a pipeline have."""
    names: frozenset[str] = vars(model).get(ELSEWHERE, frozenset())
    return names


def matching(model: nn.Module, pattern: str, setting: str) -> list[nn.Parameter]:
    """The parameters with a name that a pattern matches. Raises ValueError if there is none, on other ranks too."""
    named = list(model.named_parameters(remove_duplicate=False))
    found = [parameter for name, parameter in named if fnmatchcase(name, pattern)]
    if not found and not any(fnmatchcase(name, pattern) for name in elsewhere(model)):
        raise ValueError(
            f"{setting} names {brief(pattern)}, which no parameter of this model matches; {_near(pattern, named)}"
        )
    return found


def _near(pattern: str, named: Iterable[tuple[str, nn.Parameter]]) -> str:
    """The names, and the patterns for everything below a module, that look most like a pattern."""
    names = [name for name, _ in named]
    below = {".".join(name.split(".")[:n]) + ".*": None for name in names for n in range(1, name.count(".") + 1)}
    close = difflib.get_close_matches(pattern, [*below, *names], n=3, cutoff=0.5)
    return nearest(pattern, close or [name for name in below if name.count(".") == 1])


def count(model: nn.Module) -> tuple[int, int]:
    """How many numbers of a model's parameters are frozen, and how many there are; tied ones once."""
    sizes = [(parameter.numel(), parameter.requires_grad) for parameter in model.parameters()]
    return sum(n for n, moves in sizes if not moves), sum(n for n, _ in sizes)
