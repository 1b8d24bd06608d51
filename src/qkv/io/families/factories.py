"""Factories that take the sizes of another family's factory beside their own."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...nn.models.stack import Stack

Factory = Callable[..., Any]  # a Transformer's spec, or another model's


def based_on(base: Factory, without: Sequence[str] = (), **defaults: Any) -> Callable[[Factory], Factory]:
    """Decorate a factory that is given the sizes of `base` as `**sizes`, with these defaults, beside its own.

    without: sizes of `base` that the factory decides itself.
    """

    def decorate(make: Factory) -> Factory:
        own = {name: p for name, p in inspect.signature(make).parameters.items() if p.kind is p.KEYWORD_ONLY}
        inherited = {
            name: parameter.replace(default=defaults.get(name, parameter.default))
            for name, parameter in inspect.signature(base).parameters.items()
            if name not in own and name not in without
        }
        signature = inspect.Signature([*inherited.values(), *own.values()])

        @functools.wraps(make)
        def factory(**sizes: Any) -> Any:
            bound = signature.bind(**sizes)
            bound.apply_defaults()
            return make(**bound.arguments)

        factory.__signature__ = signature  # type: ignore[attr-defined]
        return factory

    return decorate


def alike(stack: Stack, changes: Mapping[str, Any]) -> Stack:
    """A stack of equal blocks with the same changes in each."""
    return stack.replace(blocks=(stack.blocks[0].replace(changes),) * len(stack.blocks))
