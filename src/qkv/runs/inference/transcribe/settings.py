"""How sounds are transcribed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ....core import several
from ....core.spec import brief, nearest
from .window import TEMPERATURES, Thresholds


@dataclass(frozen=True)
class TranscribeSettings:
    """How a sound is transcribed.

    language:     its name or code; None detects it in the first window.
    task:         "transcribe", or "translate" into English.
    words:        whether to give the times of words.
    timestamps:   whether the model writes the times of segments. Without, each window is one segment.
    condition:    whether a window reads the text of those before it.
    temperatures: that are tried one after another until a text can be trusted; 0 is greedy, or a beam search.
    num_beams:    of temperature 0; by default the model's.
    lm, lm_weight, word_bonus: as in the task `recognize-ctc`, for its runs.
    """

    language: str | None = None
    task: str = "transcribe"
    words: bool = False
    timestamps: bool = True
    condition: bool = True
    temperatures: tuple[float, ...] = TEMPERATURES
    thresholds: Thresholds = field(default_factory=Thresholds)
    num_beams: int | None = None
    seed: int = 0
    lm: str | None = None
    lm_weight: float | None = None
    word_bonus: float | None = None

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> TranscribeSettings:
        """The settings of options by name. Raises ValueError for one that there is not."""
        for name in options:
            if name not in cls.__dataclass_fields__:
                raise ValueError(
                    f"there is no option {brief(name)} of transcribing; {nearest(name, cls.__dataclass_fields__)}"
                )
        return cls(**options)

    def __post_init__(self) -> None:
        several.whole_numbers(1, num_beams=self.num_beams)
        several.numbers(0, lm_weight=self.lm_weight)
        several.numbers(-math.inf, word_bonus=self.word_bonus)
        for temperature in self.temperatures:
            several.numbers(0, temperature=temperature)
        if not self.temperatures:
            raise ValueError("there are no temperatures to decode at; (0.0,) is greedy decoding")
