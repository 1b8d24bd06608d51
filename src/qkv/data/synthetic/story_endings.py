"""Generated story openings with four endings to choose from, for multiple choice.

    in the evening ann is thirsty at home .      she drinks tea · he drinks tea · she drinks the sofa · she lies on the sofa

Each wrong ending is wrong in one way: the person, the action or the object. No single word reveals it: the ending
would be right after another opening, or its words don't fit together.
"""

from __future__ import annotations

from random import Random

from ..source import Example
from .base import GeneratedSource

_SHE = ("ann", "eve", "ida", "zoe", "mia", "lea", "ruth", "nora")
_HE = ("tom", "max", "leo", "sam", "ben", "carl", "hugo", "paul")
_WHEN = ("in the morning", "at noon", "in the evening", "at night", "after work", "on sunday", "in may", "today")
_WHERE = ("at home", "in town", "by the sea", "at school", "in the mountains", "on the farm")
_NEEDS = {  # a state: the action it calls for, and objects of that action
    "thirsty": ("drinks", ("water", "tea", "milk", "juice")),
    "hungry": ("eats", ("bread", "soup", "cheese", "an apple")),
    "cold": ("puts on", ("a coat", "a scarf", "a hat", "gloves")),
    "tired": ("lies on", ("the bed", "the sofa", "the bench", "a mat")),
    "ill": ("asks", ("a doctor", "a nurse", "a healer", "the chemist")),
    "bored": ("reads", ("a novel", "a poem", "the paper", "a letter")),
    "dirty": ("washes with", ("soap", "a sponge", "hot foam", "a brush")),
    "lost": ("looks at", ("the map", "the compass", "the sign", "the stars")),
    "late": ("runs for", ("the bus", "the train", "the tram", "the ferry")),
    "musical": ("plays", ("the flute", "the piano", "the drum", "the harp")),
}


class Endings(GeneratedSource, kind="endings"):
    """A person in some state at some time and place, and four candidates: what he or she does about it, and three endings
    that differ from it in one way each."""

    def generate(self, random: Random) -> Example:
        (subject, other), names = random.choice(((("she", "he"), _SHE), (("he", "she"), _HE)))
        state, elsewhere, strange = random.sample(sorted(_NEEDS), 3)
        does, things = _NEEDS[state]
        thing = random.choice(things)
        does_else, things_else = _NEEDS[elsewhere]
        right = f"{subject} {does} {thing}"
        candidates = [
            right,
            f"{other} {does} {thing}",
            f"{subject} {does_else} {random.choice(things_else)}",
            f"{subject} {does} {random.choice(_NEEDS[strange][1])}",
        ]
        random.shuffle(candidates)
        return {
            "text": f"{random.choice(_WHEN)} {random.choice(names)} is {state} {random.choice(_WHERE)} .",
            "choices": candidates,
            "answer": candidates.index(right),
        }
