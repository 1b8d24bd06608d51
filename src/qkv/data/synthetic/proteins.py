"""Generated protein sequences with secondary structure labels, from a hidden semi-Markov model."""

from __future__ import annotations

from random import Random
from typing import ClassVar, Self

from pydantic import Field, model_validator

from ..source import Example
from .base import GeneratedSource, check_range

_LENGTHS = {"H": (8, 20), "E": (4, 9), "C": (3, 12)}
_NEXT = {"H": "C", "E": "C", "C": "HHEEE"}
_FAVORED = {"H": "AELMQKRH", "E": "VIYFWTLC", "C": "GNPSDTKE"}
_HYDROPHOBIC, _HYDROPHILIC = "AVILMFWC", "DEKRNQST"
_ALL = "ACDEFGHIKLMNPQRSTVWY"


class Folds(GeneratedSource, kind="folds"):
    """Sequences with a label for each residue: H in a helix, E in a strand, C in a coil.

    A hidden semi-Markov model: each state has its own run lengths and favors some residues (Chou & Fasman 1974). One
    residue says little about the state, its neighbors much: every third or fourth residue of a helix (those on one side)
    is hydrophobic, and every second of a strand (Eisenberg et al. 1984).
    """

    tags: ClassVar[tuple[str, ...]] = ("C", "E", "H")

    shortest: int = Field(default=40, ge=8)
    longest: int = Field(default=120, ge=8)
    favor: float = Field(default=0.35, ge=0, le=1)
    """Probability that a residue is drawn from the residues that its state favors."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        check_range(self.shortest, self.longest)
        return self

    def generate(self, random: Random) -> Example:
        size = random.randint(self.shortest, self.longest)
        state = random.choice("HEC")
        residues, labels = "", ""
        while len(labels) < size:
            run = random.randint(*_LENGTHS[state])
            phase = random.random()
            residues += "".join(self._residue(state, i + 3 * phase, random) for i in range(run))
            labels += state * run
            state = random.choice(_NEXT[state])
        text = residues[:size]
        return {"text": text, "words": text, "tags": list(labels[:size])}

    def _residue(self, state: str, place: float, random: Random) -> str:
        if random.random() < self.favor:
            return random.choice(_FAVORED[state])
        period = {"H": 3.6, "E": 2.0}.get(state)
        if period is None or random.random() < 0.3:
            return random.choice(_ALL)
        return random.choice(_HYDROPHOBIC if place % period < period / 2 else _HYDROPHILIC)
