"""Patterns traced to arithmetic on one pair of tokens, which a compiler can build into a kernel.

`Pattern.allowed` is ordinary Python over all tokens. It is traced once with single tokens, which leaves only operations on
numbers; what does not depend on the pair is computed while tracing and becomes a table.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor, fx

from ...core.layout import View
from ...core.spec import brief
from ..patterns.basic import Pattern

_aten = torch.ops.aten
_PLAIN = {_aten.index, _aten._to_copy, _aten.floor_divide}  # besides what PyTorch marks as pointwise


class Rule(NamedTuple):
    """`decide(head, query's numbers, key's numbers, tables)` → boolean; numbers are positions …, segment, role.

    `of_query` and `of_key` are the indices of the numbers that it reads.
    """

    decide: Callable[..., Tensor]
    tables: tuple[Tensor, ...]
    of_query: frozenset[int]
    of_key: frozenset[int]


def refuses(pattern: Pattern, n_axes: int) -> str | None:
    """Why a pattern can't be traced so; None when it can."""
    try:
        rule(pattern, n_axes, torch.device("cpu"))
    except ValueError as error:
        return str(error)
    return None


@lru_cache(maxsize=256)
def rule(pattern: Pattern, n_axes: int, device: torch.device) -> Rule:
    """Trace a pattern. Raises ValueError if it is not arithmetic on one pair."""
    from torch.fx.experimental.proxy_tensor import make_fx  # takes long to import

    n = n_axes + 2

    def allowed(head: Tensor, *numbers: Tensor) -> Tensor:
        q, k = _view(numbers[:n]), _view(numbers[n:])
        return pattern.allowed(q, k, head if pattern.per_head else None)

    # Shape (1,), not (): indexing by it is traced as an operation, while indexing by a number would read its value.
    ones = [torch.zeros(1, dtype=torch.int64, device=device) for _ in range(1 + 2 * n)]
    try:
        traced = make_fx(allowed)(*ones)
    except Exception as error:
        raise ValueError(f"{brief(pattern)} can't be traced for one pair ({error})") from error
    _unstack(traced.graph)
    tables = _fold(traced)
    strange = [node.target for node in traced.graph.nodes if node.op == "call_function" and not _is_plain(node.target)]
    if strange:
        raise ValueError(f"{brief(pattern)} is more than arithmetic on one pair: it calls {strange[0]}")
    traced.recompile()
    forward = type(traced).forward

    def decide(head: Tensor, q: list[Tensor], k: list[Tensor], tables: tuple[Tensor, ...]) -> Tensor:
        return forward(None, head, *q, *k, *tables)

    read = [bool(node.users) for node in traced.graph.nodes if node.op == "placeholder"][1 : 1 + 2 * n]
    of_query, of_key = (frozenset(i for i in range(n) if side[i]) for side in (read[:n], read[n:]))
    return Rule(decide, tables, of_query, of_key)


def _view(numbers: tuple[Tensor, ...]) -> View:
    *axes, segment, role = numbers
    return View(axes[0], segment, role, torch.stack(axes, -1))


def _is_plain(target: Any) -> bool:
    if not isinstance(target, torch._ops.OpOverload):
        return False  # such as an item of a tuple
    return torch.Tag.pointwise in target.tags or target.overloadpacket in _PLAIN


def _unstack(graph: fx.Graph) -> None:
    """Replace an axis selected from a stack of axes by that axis."""
    for node in list(graph.nodes):
        if node.target is _aten.select.int and node.args[0].target is _aten.stack.default:
            axes, number = node.args[0].args[0], node.args[2]
            node.replace_all_uses_with(axes[number])
            graph.erase_node(node)
    graph.eliminate_dead_code()


def _fold(traced: fx.GraphModule) -> tuple[Tensor, ...]:
    """Compute what depends on no input and make it further inputs of the graph; returns their values, in order."""
    graph, known = traced.graph, {}
    for node in graph.nodes:
        if node.op == "get_attr":
            known[node] = getattr(traced, node.target)
        elif node.op == "call_function" and all(of in known for of in node.all_input_nodes):
            args, kwargs = fx.map_arg((node.args, node.kwargs), known.__getitem__)
            known[node] = node.target(*args, **kwargs)
    tables = [node for node in known if any(user not in known for user in node.users)]
    last = [node for node in graph.nodes if node.op == "placeholder"][-1]
    for number, node in enumerate(tables):
        with graph.inserting_after(last):
            last = graph.placeholder(f"table_{number}")
        node.replace_all_uses_with(last, delete_user_cb=lambda user: user not in known)
    for node in reversed(known):
        graph.erase_node(node)
    return tuple(known[node] for node in tables)
