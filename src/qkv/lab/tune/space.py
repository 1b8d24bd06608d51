"""Read a space of settings to search: `training.optimizer.lr=1e-4..1e-2,log`, `n_layers=2..6`, `position=rotary,alibi`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pydantic import Field

from ...core.spec import Spec, brief, short
from ..ablate.grid import as_text, split_values

if TYPE_CHECKING:
    from optuna import Trial

_RANGE = re.compile(r"^([^.,]+(?:\.\d+)?(?:e[+-]?\d+)?)\.\.([^,]+?)(\s*,\s*log)?$")
_HOW = "write KEY=LOW..HIGH, KEY=LOW..HIGH,log or KEY=VALUE,VALUE"


class Dimension(Spec):
    """A key of the recipe and the values to search.

    choices:   values as they are written in a setting; empty for a range.
    low, high: bounds of a range, both included; whole numbers if `whole`, drawn by their logarithm if `log`.
    """

    key: str
    choices: tuple[str, ...] = ()
    low: float = 0.0
    high: float = 0.0
    whole: bool = Field(default=False)
    log: bool = False

    @classmethod
    def parse(cls, text: str) -> Dimension:
        """Read `key=low..high[,log]` or `key=a,b,c`. Raises ValueError for anything else and for fewer than two values."""
        key, equals, values = text.partition("=")
        if not equals or not values.strip() or not all(key.strip().split(".")):
            raise ValueError(f"--space {short(text)} is not a space; {_HOW}")
        return cls._read(key.strip(), values.strip(), f"--space {short(text)}")

    @classmethod
    def of(cls, key: str, values: object) -> Dimension:
        """The dimension of a key in a recipe's `tune.space`: a text `low..high, log` or a list of values."""
        if isinstance(values, list):
            return cls._choices(key, [as_text(value) for value in values], f"tune.space.{key}")
        if not isinstance(values, str):
            raise ValueError(
                f"tune.space.{key} is a range such as 1e-4..1e-2,log or a list of values, not {brief(values)}"
            )
        return cls._read(key, values, f"tune.space.{short(key)}={short(values)}")

    @classmethod
    def _read(cls, key: str, values: str, name: str) -> Dimension:
        match = _RANGE.match(values)
        if match is None:
            if ".." in values:
                raise ValueError(f"{name} is not a range; {_HOW}")
            return cls._choices(key, split_values(values), name)
        low, high = match[1].strip(), match[2].strip()
        try:
            bounds = float(low), float(high)
        except ValueError:
            raise ValueError(f"{name} has a bound that is not a number; {_HOW}") from None
        if not bounds[0] < bounds[1]:
            raise ValueError(f"{name}: the lower bound has to be less than the upper one")
        if match[3] and bounds[0] <= 0:
            raise ValueError(f"{name}: a logarithmic range begins above 0")
        whole = all(re.fullmatch(r"[+-]?\d+", bound) for bound in (low, high))
        return cls(key=key, low=bounds[0], high=bounds[1], whole=whole, log=bool(match[3]))

    @classmethod
    def _choices(cls, key: str, values: list[str], name: str) -> Dimension:
        if not all(values):
            raise ValueError(f"{name} has an empty value; {_HOW}")
        if len(set(values)) < len(values):
            raise ValueError(f"{name} has a value twice; leave one out")
        if len(values) < 2:
            raise ValueError(
                f"{name} has one value, so there is nothing to tune; give more, or set it as {short(key)}={short(values[0])}"
            )
        return cls(key=key, choices=tuple(values))

    def ends(self) -> tuple[str, ...]:
        """Settings to check: every choice, or both bounds."""
        values = self.choices or tuple(map(self.text, (self.low, self.high)))
        return tuple(f"{self.key}={value}" for value in values)

    def text(self, value: str | float) -> str:
        """A value as it is written in a setting."""
        if self.choices:
            return str(value)
        return str(int(value)) if self.whole else f"{value:.6g}"

    def suggest(self, trial: Trial) -> str:
        """Ask an Optuna trial for a value. Returns the setting."""
        if self.choices:
            value: str | float = trial.suggest_categorical(self.key, list(self.choices))
        elif self.whole:
            value = trial.suggest_int(self.key, int(self.low), int(self.high), log=self.log)
        else:
            value = trial.suggest_float(self.key, self.low, self.high, log=self.log)
        return f"{self.key}={self.text(value)}"

    def __str__(self) -> str:
        if self.choices:
            return ", ".join(self.choices)
        return f"{self.text(self.low)} to {self.text(self.high)}{', logarithmic' if self.log else ''}"
