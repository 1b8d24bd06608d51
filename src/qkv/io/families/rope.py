"""Read and write the Hub's rotary parameters, in their new and old spelling, as `Rotary`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...core.spec import brief, nearest
from ...nn.positions.base import Position
from ...nn.positions.rope_scaling import DynamicNTK, LinearScaling, Llama3Scaling, LongRoPE, NoScaling, Scaling, YaRN
from ...nn.positions.rotary import Rotary
from ..hub.keys import Config

SCALINGS: dict[str, type[Scaling]] = {
    "default": NoScaling,
    "linear": LinearScaling,
    "dynamic": DynamicNTK,
    "yarn": YaRN,
    "llama3": Llama3Scaling,
    "longrope": LongRoPE,
}
OLD = {"su": "longrope"}  # names that the first checkpoints used
LENGTH, OURS = "original_max_position_embeddings", "original_max_positions"


@dataclass(frozen=True)
class Rope:
    """The field `position` of families with rotary positions.

    `rope_parameters` holds everything since transformers 5; before, `rope_theta` and `partial_rotary_factor` stood beside
    a `rope_scaling`, which could be null and counts if a file has both. `base` and `fraction` are a family's defaults.
    `original` is the context of training, in families that keep it beside the scaling. `partial` says that the family may
    rotate a part of each head; in others, transformers ignores or can't compute another fraction than 1, which is refused.
    `kinds` are the scalings that transformers loads.
    """

    base: float = 10000.0
    fraction: float = 1.0
    theta_key: str = "rope_theta"
    fraction_key: str = "partial_rotary_factor"
    original: int | None = None
    partial: bool = False
    kinds: tuple[str, ...] = tuple(SCALINGS)
    size: str = "position"

    @property
    def keys(self) -> Mapping[str, Any]:
        return {
            "rope_parameters": None,
            "rope_scaling": None,
            LENGTH: self.original,
            self.theta_key: self.base,
            self.fraction_key: self.fraction,
        }

    def read(self, config: Config) -> Position:
        where = "rope_scaling" if config["rope_scaling"] else "rope_parameters"
        parameters = dict(config[where] or {})
        old = parameters.pop("type", "default")
        kind = str(parameters.pop("rope_type", old))
        early = kind == "yarn" and "short_factor" in parameters  # in Phi-3
        kind = "longrope" if early else OLD.get(kind, kind)
        base = parameters.pop("rope_theta", config[self.theta_key])
        fraction = parameters.pop("partial_rotary_factor", None)
        fraction = config[self.fraction_key] if fraction is None else fraction
        if fraction != 1.0 and not self.partial:
            raise ValueError(
                f"{self.fraction_key} is {brief(fraction)}, and transformers rotates whole heads in this family; remove it "
                "from the configuration to do the same"
            )
        if kind not in SCALINGS:
            raise ValueError(f"{where}: rope_type {brief(kind)} is not built here; {nearest(kind[:80], SCALINGS)}")
        return Rotary(base=base, fraction=fraction, scaling=_scaling(SCALINGS[kind], parameters, config, where))

    def write(self, value: object, sizes: Mapping[str, Any]) -> dict[str, Any]:
        if type(value) is not Rotary or value.pairs != "half":
            raise ValueError(f"its positions are rotary, in halves, and this model's are {value}")
        if value.fraction != 1.0 and not self.partial:
            raise ValueError(f"it rotates whole heads, and this model rotates {value.fraction} of each")
        kinds = [name for name, cls in SCALINGS.items() if type(value.scaling) is cls]
        if not kinds:
            raise ValueError(f"rope_type has no {value.scaling.kind!r}; {nearest(value.scaling.kind, SCALINGS)}")
        if kinds[0] not in self.kinds:
            raise ValueError(f"its rope_type is {' or '.join(self.kinds)}, and this model's {kinds[0]}")
        parameters: dict[str, Any] = {"rope_theta": value.base, "rope_type": kinds[0]}
        if self.fraction != 1.0 or value.fraction != 1.0:
            parameters["partial_rotary_factor"] = value.fraction
        for name in type(value.scaling).model_fields:
            setting = getattr(value.scaling, name)
            if setting is not None:
                parameters[LENGTH if name == OURS else name] = list(setting) if isinstance(setting, tuple) else setting
        beside = {LENGTH: parameters[LENGTH]} if self.original and LENGTH in parameters else {}
        return {"rope_parameters": parameters, **beside}


def _scaling(cls: type[Scaling], parameters: dict[str, Any], config: Config, where: str) -> Scaling:
    """A scaling by its parameters. Raises ValueError naming one that is not known."""
    longest, source = config["max_position_embeddings"], LENGTH
    if cls is DynamicNTK:
        parameters[LENGTH] = longest  # the library goes by the context, whatever is said
    elif OURS in cls.model_fields:
        original = config[LENGTH] or parameters.get(LENGTH)
        source = LENGTH if original else "max_position_embeddings"
        parameters[LENGTH] = original = original or longest
        if cls in (LongRoPE, YaRN) and parameters.get("factor") is None:
            parameters["factor"] = longest / original
    else:
        parameters.pop(LENGTH, None)
    fields = {OURS if name == LENGTH else name: value for name, value in parameters.items() if value is not None}
    try:
        return cls(**fields)
    except ValueError as error:
        raise ValueError(f"{where}: {str(error).replace(OURS, source)}") from None
