"""Generated reports of football matches with their headlines, for summarization.

on sunday oslo met turin in a cold rain . … the final score was 1 to 3 .       turin beat oslo 3 to 1
"""

from __future__ import annotations

from random import Random

from ..source import Example
from .base import GeneratedSource

# fmt: off
_TEAMS = (
    "oslo", "turin", "porto", "leeds", "basel", "ghent", "malmo", "lyon",
    "parma", "delft", "bergen", "krakow", "seville", "dublin", "zagreb", "riga",
)
# fmt: on
_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_WEATHER = ("in a cold rain", "under a bright sun", "in thick fog", "in front of a full house", "on a wet field")
_PLAYERS = ("berg", "costa", "novak", "smith", "moreau", "keller", "rossi", "olsen")
_ASIDES = (
    "the coach was not pleased with the first half",
    "both goalkeepers had a busy evening",
    "a penalty was saved after the break",
    "the crowd sang until the end",
    "two players were shown a yellow card",
)


class Matches(GeneratedSource, kind="matches"):
    """The `source` is a report, the `target` its headline: who beat whom, and the score. The report gives only the score,
    the home team's goals first. Each epoch generates `train` new ones; validation and test reports never occur in training.
    """

    def generate(self, random: Random) -> Example:
        home, guest = random.sample(_TEAMS, 2)
        ours, theirs = random.choices(range(6), k=2)
        opening = f"on {random.choice(_DAYS)} {home} met {guest} {random.choice(_WEATHER)}"
        shot = (
            f"{random.choice(_PLAYERS)} of {random.choice((home, guest))} hit the bar in minute {random.randint(1, 90)}"
        )
        middle = random.sample((shot, *_ASIDES), 3)
        report = " . ".join((opening, *middle, f"the final score was {ours} to {theirs} ."))
        return {"source": report, "target": _headline(home, guest, ours, theirs)}


def _headline(home: str, guest: str, ours: int, theirs: int) -> str:
    if ours == theirs:
        return f"{home} and {guest} drew {ours} all"
    return f"{home} beat {guest} {ours} to {theirs}" if ours > theirs else f"{guest} beat {home} {theirs} to {ours}"
