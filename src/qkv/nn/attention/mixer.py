"""`Mixer`, the base of attention and of what replaces it, and `Pass`, what layers share in one forward pass."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

from jaxtyping import Float
from torch import Tensor, nn

from ...core.extras import Extras
from ...core.layout import Layout
from ...core.ranks import TokenSplit
from ...core.spec import Cost, Spec
from ..kernels.plan import Plan
from ..kv_cache.full import InputState, KeyValueState, LayerState, SlotTables
from ..kv_cache.kinds import CacheKind
from ..positions.base import Bias, PositionModule, Tables
from .attend import attend


@dataclass(eq=False)
class Pass:
    """What layers with the same positions share in one forward pass; all layers of the model share the plan."""

    layout: Layout
    position: PositionModule
    plan: Plan
    tables: Tables | None = None
    bias: Bias | None = None
    memory: Tensor | None = None  # the encoder's output, for cross-attention
    memory_layout: Layout | None = None
    extras: Extras | None = None  # what layers report besides their output, if it is wanted
    split: TokenSplit | None = None  # how the tokens are divided over ranks, if they are
    attend: Callable[..., Tensor] = attend  # attention; another function where keys are on other ranks
    linear: Callable[..., Tensor] | None = None  # likewise in place of linear attention

    def afresh(self) -> Pass:
        """The same pass with an empty plan and no extras, for blocks that are recomputed in backward."""
        return replace(self, plan=Plan(), extras=None if self.extras is None else Extras())

    def of(self, layout: Layout) -> Pass:
        """A pass over other tokens of the same stack."""
        return replace(Pass.over(layout, self.position), extras=self.extras)

    @classmethod
    def over(cls, layout: Layout, position: PositionModule, plan: Plan | None = None) -> Pass:
        return cls(layout, position, plan or Plan(), position.tables(layout), position.bias(layout.positions.device))

    def rotate_queries(self, q: Float[Tensor, "B T H D"]) -> Float[Tensor, "B T H D"]:
        return q if self.tables is None else self.position.rotate_queries(q, self.tables)

    def rotate_keys(self, k: Float[Tensor, "B T K D"]) -> Float[Tensor, "B T K D"]:
        return k if self.tables is None else self.position.rotate_keys(k, self.tables)


def recomputed(mixer: nn.Module, x: Float[Tensor, "B T M"], run: Pass, state: InputState) -> Float[Tensor, "B T M"]:
    """The output for the last T tokens of a mixer without a state, which runs over all tokens so far."""
    if run.layout.padding != "none":
        x = x.masked_fill(~run.layout.valid[..., None], 0.0)
    all_tokens = run.plan.once("all tokens so far", (state.layout, run.position), lambda: run.of(state.layout))
    out: Tensor = mixer(state.add(x), all_tokens)
    return out[:, -x.shape[1] :]


class Mixer(Spec, role="attention"):
    """Token mixer: attention, or another mechanism in its place.

    `adds_bias`: its module adds the bias of positions (`run.bias`) to scores. Without it, positions that are only a bias,
    such as ALiBi, are refused. `ties_queries_and_keys`: one projection is both, so positions can't treat them differently.
    `keeps_keys`: its decoding state is a KV cache. `divides`: what ranks that have parts of a sequence exchange: keys and
    values, sums over tokens, or the whole sequence. `supports`: what of `Attention` a kind built on it has.
    """

    adds_bias: ClassVar[bool] = False
    ties_queries_and_keys: ClassVar[bool] = False
    keeps_keys: ClassVar[bool] = False
    divides: ClassVar[Literal["keys", "sums", "whole"]] = "whole"
    supports: ClassVar[frozenset[str]] = frozenset()

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        """A kind that defines `module` does not inherit what describes the module: `adds_bias`, `divides`, `supports` and
        `state`. One that defines `state` does not inherit `keeps_keys` and `state_parts`; it may take a base's state."""
        super().__pydantic_init_subclass__(**kwargs)
        own = dict(vars(cls))
        if "module" in own:
            cls.adds_bias, cls.divides = own.get("adds_bias", False), own.get("divides", "whole")
            cls.supports = own.get("supports", frozenset())
            if "state" not in own:
                cls.state, cls.state_parts = Mixer.state, Mixer.state_parts  # type: ignore[method-assign]
        if "module" in own or "state" in own:
            of = next(
                (base for base in cls.__mro__[1:] if vars(base).get("state") is own.get("state", Mixer.state)), Mixer
            )
            cls.keeps_keys = own.get("keeps_keys", getattr(of, "keeps_keys", False))
        if "state" in own and "state_parts" not in own:
            cls.state_parts = _unknown_parts  # type: ignore[method-assign]

    def module(self, d_model: int, cross: bool = False, name: str = "") -> nn.Module:
        """A module called as `module(x, run, state)` with x (B, T, M) and the stack's `Pass`."""
        raise NotImplementedError

    def cost(self, d_model: int, tokens: int = 0, pairs: int = 0, memory: int = 0) -> Cost:
        return Cost()

    def heads(self, d_model: int) -> tuple[int, int] | None:
        """Number of heads and width of a head, for position schemes; None for mixers without heads."""
        return None

    @property
    def shared(self) -> dict[str, tuple[int, ...]]:
        """Names and shapes of parameters that all such layers of a stack share."""
        return {}

    def remembers(self) -> int | None:
        """How many of the last tokens a decoding step needs; None for all."""
        return None

    def state(self, slot_tables: SlotTables, capacity: int | None = None) -> LayerState:
        """An empty decoding state for one layer, passed to its module.

        A mixer that does not define this has none: each step runs it again over all tokens so far.
        """
        return InputState(slot_tables[None], capacity)

    def state_parts(self, d_model: int, tokens: int, itemsize: int) -> dict[str, int] | None:
        """Bytes of the state of one row after `tokens` tokens, by part; None if they are not known."""
        return {"inputs": tokens * d_model * itemsize}

    def held(self, how: CacheKind, slot_tables: SlotTables, capacity: int | None = None) -> LayerState:
        """The state for a kind of cache. Raises ValueError if this mixer does not have that kind."""
        if how.kind == "full":
            return self.state(slot_tables, capacity)
        raise ValueError(
            f"{self.kind} has its own decoding state, for which there is no {how.kind} cache; leave the cache at full"
        )


def _unknown_parts(self: Mixer, d_model: int, tokens: int, itemsize: int) -> dict[str, int] | None:
    return None


class NoMixer(Mixer, kind="none"):
    """No attention: tokens don't exchange information."""

    def module(self, d_model: int, cross: bool = False, name: str = "") -> nn.Module:
        return Nothing()

    def state(self, slot_tables: SlotTables, capacity: int | None = None) -> LayerState:
        return KeyValueState(slot_tables[None], capacity)  # which stays empty

    def state_parts(self, d_model: int, tokens: int, itemsize: int) -> dict[str, int] | None:
        return {}

    def held(self, how: CacheKind, slot_tables: SlotTables, capacity: int | None = None) -> LayerState:
        return self.state(slot_tables, capacity)


class Nothing(nn.Module):
    def forward(self, x: Tensor, run: Pass, state: object = None) -> Tensor:
        return x


def refuse_crossing(spec: Mixer, cross: bool) -> None:
    """Raise ValueError for cross-attention."""
    if cross:
        raise ValueError(f"{spec.kind} is for self-attention only; for cross-attention take attention")
