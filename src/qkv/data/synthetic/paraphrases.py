"""Generated sentence pairs with a score for semantic textual similarity.

    the dog chased the girl in the yard | in the garden the girl was followed by the hound       5.0
    the dog chased the girl in the yard | the girl chased the dog in the yard                    2.5

Paraphrases use different words, and the same words in different roles have a different meaning.
"""

from __future__ import annotations

from random import Random

from ..source import Example
from .base import GeneratedSource


def _synonyms(text: str) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(pair.split("/")) for pair in text.split())


_BEINGS = _synonyms(
    "dog/hound girl/child doctor/physician thief/robber teacher/tutor farmer/peasant cat/kitten soldier/fighter"
)
_DEEDS = _synonyms("chased/followed helped/aided found/noticed scared/frightened called/phoned hit/struck")
_PLACES = _synonyms("yard/garden street/road house/home forest/woods shop/store harbor/port")
_HIGHEST = 5.0


class Paraphrases(GeneratedSource, kind="paraphrases"):
    """Two sentences on who does what to whom and where; the score is 5 times the share of these four that agree."""

    def generate(self, random: Random) -> Example:
        who, whom = random.sample(range(len(_BEINGS)), 2)
        first = (who, random.randrange(len(_DEEDS)), whom, random.randrange(len(_PLACES)))
        second = _changed(first, random)
        same = sum(a == b for a, b in zip(first, second, strict=True))
        pair = {"text": _sentence(first, random), "pair": _sentence(second, random)}
        return {**pair, "score": _HIGHEST * same / len(first)}


def _changed(meaning: tuple[int, int, int, int], random: Random) -> tuple[int, int, int, int]:
    """The meaning with some parts replaced, and perhaps with who and whom swapped."""
    kept = random.choice((0.2, 0.6, 0.9))
    who, deed, whom, place = meaning
    others = [being for being in range(len(_BEINGS)) if being not in (who, whom)]
    random.shuffle(others)
    who, whom = (being if random.random() < kept else others.pop() for being in (who, whom))
    if random.random() < 0.3:
        who, whom = whom, who
    deed = deed if random.random() < kept else random.randrange(len(_DEEDS))
    return who, deed, whom, place if random.random() < kept else random.randrange(len(_PLACES))


def _sentence(meaning: tuple[int, int, int, int], random: Random) -> str:
    who, deed, whom, place = (
        random.choice(words[i]) for words, i in zip((_BEINGS, _DEEDS, _BEINGS, _PLACES), meaning, strict=True)
    )
    event = f"the {who} {deed} the {whom}" if random.random() < 0.5 else f"the {whom} was {deed} by the {who}"
    return f"{event} in the {place}" if random.random() < 0.5 else f"in the {place} {event}"
