"""From a table's examples to token ids, and a memory of them, so that files are tokenized once and not in every epoch."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from ...core.shuffle import mix
from ..source import Counts, Example, Skipped, Table
from .ragged import Ids, Index, Ragged

_AT_ONCE = 1000  # texts given to the tokenizer in one call
_PART = 1 << 18  # characters of running text given to it in one piece
_OTHER_SPLIT = ""  # the reason why an entry is no example: it belongs to another split, and isn't counted
_CONVERSATION = "conversation"
_PIECES = ("", "first", "middle", "last", _CONVERSATION)


class Encoder(Protocol):
    """What is needed of a tokenizer. `encode_batch` adds no token of its own.

    One with a `dropout` above 0 also has `sample(texts, seeds)`: ids by chance, the same for the same seed, which
    training reads in place of the one encoding that `encode_batch` gives. One with a chat template has it as `chat` (see
    `Conversations`); that of a loaded encoder–decoder says by its `frame` what stands around texts.
    """

    @property
    def pad_id(self) -> int | None: ...
    @property
    def bos_id(self) -> int | None: ...
    @property
    def eos_id(self) -> int | None: ...

    def encode_batch(self, texts: list[str], /) -> Sequence[Sequence[int]]: ...

    def __hash__(self) -> int: ...


class Frame(NamedTuple):
    """What stands around the texts of an encoder–decoder.

    start:         the token that its decoder begins with.
    before, after: the tokens around a source, and around a target.
    """

    start: int
    before: tuple[int, ...] = ()
    after: tuple[int, ...] = ()


class Reach(NamedTuple):
    """How many characters of a side are read, and whether a pair with a longer one is skipped rather than cut there."""

    characters: int
    skip: bool


@dataclass(frozen=True, eq=False)
class Encoded:
    """The good examples among some entries, in ids.

    places:   which of the entries asked for each example is, ascending.
    sides:    (source, target) of pairs, (text,) of running text, no token added; (whole, learned) of conversations, where
              `learned` is 1 for each token that the assistant says.
    pieces:   what each text is of its document, as a place in ("", "first", "middle", "last"); "" is all of it. Behind
              these there is the place of a conversation.
    examples: the texts, where they are wanted.
    """

    places: Index
    sides: tuple[Ragged, ...]
    pieces: Ids
    examples: tuple[Example, ...] = ()

    def __len__(self) -> int:
        return len(self.places)

    @property
    def running(self) -> bool:
        """Texts, not pairs."""
        return len(self.sides) == 1

    @property
    def conversations(self) -> bool:
        return bool(len(self)) and self.pieces[0] == _PIECES.index(_CONVERSATION)

    @property
    def begins(self) -> NDArray[np.bool_]:
        """Whether a text begins its document."""
        return self.pieces <= 1

    @property
    def ends(self) -> NDArray[np.bool_]:
        """Whether a text ends its document."""
        return self.pieces % 3 == 0

    def take(self, which: Index | NDArray[np.bool_]) -> Encoded:
        numbers = np.arange(len(self))[which].tolist()
        texts = tuple(self.examples[i] for i in numbers) if self.examples else ()
        return Encoded(self.places[which], tuple(side.take(which) for side in self.sides), self.pieces[which], texts)

    def merged(self, other: Encoded) -> Encoded:
        """Both, in the order of their places."""
        places = np.concatenate([self.places, other.places])
        sides = tuple(Ragged.join(both) for both in zip(self.sides, other.sides, strict=True))
        joined = Encoded(places, sides, np.concatenate([self.pieces, other.pieces]), self.examples + other.examples)
        return joined.take(np.argsort(places, kind="stable"))


Speak = Callable[[list[str], Sequence[tuple[int, ...]]], Sequence[Sequence[int]]]
"""`speak(texts, names)` gives the ids of texts; a name, numbers that no other text has, seeds the chance in them."""


def speaking(tokenizer: Encoder, seed: int | None) -> Speak:
    """A tokenizer's way from texts to ids: by chance where there is a seed, else the one encoding. The second number of a
    name is the side of a pair; a tokenizer with `sources` or `targets` of its own reads the sides by them."""
    sides = sides_of(tokenizer)

    def speak(texts: list[str], names: Sequence[tuple[int, ...]]) -> Sequence[Sequence[int]]:
        side = sides[names[0][1]]
        if seed is None:
            return side.encode_batch(texts)
        return side.sample(texts, [mix(seed, *name) for name in names])

    return speak


def sides_of(tokenizer: Encoder) -> tuple[Any, Any]:
    """What reads the source of a pair, and what the target."""
    return getattr(tokenizer, "sources", tokenizer), getattr(
        tokenizer, "targets", tokenizer
    )  # not every Encoder has them


Converse = Callable[[list[dict[str, Any]]], tuple[list[int], list[int]]]
"""The ids of a conversation, and for each 1 where it is learned."""


def conversing(tokenizer: Encoder) -> Converse:
    """A tokenizer's way from conversations to ids. Raises ValueError where it has none."""
    chat: Any = getattr(tokenizer, "chat", None)  # not every Encoder has it
    if chat is None:
        raise ValueError("conversations need a tokenizer with a chat template, and this one has none")
    return chat.row


@dataclass
class Reader:
    """Reads entries of a table as ids.

    reach:   bounds what is tokenized of a pair, and of a conversation.
    keep:    also keep the texts.
    memory:  what was read before, where the table is the same whenever it is opened.
    stopped: asked between one call of the tokenizer and the next; True raises `Stopped`.
    tokenizer: what conversations are read by; pairs and texts go by the `speak` of each call.
    """

    reach: Reach | None
    keep: bool = False
    memory: Memory | None = None
    stopped: Callable[[], bool] = field(default=lambda: False)
    tokenizer: Encoder | None = None

    def read(self, table: Table, indices: Index, speak: Speak, counts: Counts) -> Encoded | None:
        """The good examples among these entries, or None where there is none; the others are counted."""
        if self.memory is None:
            found, reasons = self._encode(table, indices, speak)
        else:
            found, reasons, new = self.memory.recall(indices)
            if len(new):
                fresh, more = self._encode(table, indices[new], speak)
                self.memory.learn(indices[new], fresh, more)
                reasons += more
                if fresh is not None:
                    fresh = Encoded(new[fresh.places], fresh.sides, fresh.pieces)
                    found = fresh if found is None else found.merged(fresh)
        tally = Counter(reason for _, reason in reasons)
        counts.read += len(indices) - tally.pop(_OTHER_SPLIT, 0)
        counts.skipped += tally
        return found

    def _encode(self, table: Table, indices: Index, speak: Speak) -> tuple[Encoded | None, list[tuple[int, str]]]:
        """Good examples, and (place, reason) of the others."""
        good: list[Example] = []
        places: list[int] = []
        reasons: list[tuple[int, str]] = []
        for place, i in enumerate(indices.tolist()):
            entry = table[i]
            if isinstance(entry, dict) and self._within(entry):
                good.append(entry)
                places.append(place)
            else:
                said = _OTHER_SPLIT if entry is None else str(entry) if isinstance(entry, Skipped) else "over-long"
                reasons.append((place, said))
        if not good:
            return None, reasons
        if "messages" in good[0]:
            sides, whole = self._conversations(good), _CONVERSATION
        else:
            count, whole = 1 if "text" in good[0] else 2, ""
            sides = tuple(self._side(good, indices[places], side, speak) for side in range(count))
        pieces = np.fromiter((_PIECES.index(example.get("piece", whole)) for example in good), np.int32)
        return Encoded(np.asarray(places, np.int64), sides, pieces, tuple(good) if self.keep else ()), reasons

    def _within(self, example: Example) -> bool:
        if self.reach is not None and "messages" in example:
            return len(example["text"]) <= self.reach.characters
        if self.reach is None or not self.reach.skip or "text" in example:
            return True
        return max(len(example["source"]), len(example["target"])) <= self.reach.characters

    def _side(self, examples: list[Example], indices: Index, side: int, speak: Speak) -> Ragged:
        name = "text" if "text" in examples[0] else ("source", "target")[side]
        most = None if self.reach is None or name == "text" else self.reach.characters
        made = []
        for at in range(0, len(examples), _AT_ONCE):
            if self.stopped():
                raise Stopped
            texts = [example[name][:most] for example in examples[at : at + _AT_ONCE]]
            made.append(_ids(texts, [(i, side) for i in indices[at : at + _AT_ONCE].tolist()], speak))
        return Ragged.join(made)

    def _conversations(self, examples: list[Example]) -> tuple[Ragged, ...]:
        assert self.tokenizer is not None
        converse, made = conversing(self.tokenizer), []
        for example in examples:
            if self.stopped():
                raise Stopped
            try:
                made.append(converse(json.loads(example["messages"])))
            except ValueError as error:
                raise ValueError(f"{example['where']}: {error}") from None
        return tuple(Ragged.of(side) for side in zip(*made, strict=True))


class Stopped(Exception):
    """Nobody waits any more for what was being read."""


def _ids(texts: list[str], names: list[tuple[int, ...]], speak: Speak) -> Ragged:
    """Tokens of each text; a huge one is tokenized in parts, which bounds time and memory."""
    if max(map(len, texts)) <= _PART:
        return Ragged.of(speak(texts, names))
    parts = [[text[at : at + _PART] for at in range(0, max(1, len(text)), _PART)] for text in texts]
    told = [(*name, k) for name, text in zip(names, parts, strict=True) for k in range(len(text))]
    spoken = Ragged.of(speak([part for text in parts for part in text], told))
    first = np.cumsum([0, *map(len, parts)])[:-1]
    return Ragged.runs(spoken.flat, np.add.reduceat(spoken.lengths, first))


class Memory:
    """The ids of a table's entries by their number, until `budget` bytes are full; what came too late is read again.

    An entry takes 4 bytes a token, and some 30 more.
    """

    def __init__(self, entries: int, budget: int) -> None:
        self._budget = budget
        self._states = np.full(entries if entries * 8 <= budget else 0, _UNKNOWN, np.int64)
        self._reasons: list[str] = []  # state −2 − n is the n-th reason
        self._ids = _Growing(np.int32, 1)
        self._starts = _Growing(np.int64, 1)
        self._heads: _Growing | None = None  # piece, and length of each side
        self.full = len(self._states) < entries

    @property
    def nbytes(self) -> int:
        heads = self._heads.nbytes if self._heads else 0
        return self._states.nbytes + self._ids.nbytes + self._starts.nbytes + heads

    def recall(self, indices: Index) -> tuple[Encoded | None, list[tuple[int, str]], Index]:
        """The examples that are known, (place, reason) of known others, and the places of what isn't known."""
        states = self._states[indices] if len(self._states) else np.full(len(indices), _UNKNOWN)
        reasons = [(int(i), self._reasons[-2 - int(states[i])]) for i in np.flatnonzero(states < _UNKNOWN)]
        known = np.flatnonzero(states >= 0)
        if not len(known) or self._heads is None:
            return None, reasons, np.flatnonzero(states == _UNKNOWN)
        heads, starts = self._heads.values[states[known]], self._starts.values[states[known], 0]
        lengths = heads[:, 1:].astype(np.int64)
        before = np.cumsum(lengths, 1) - lengths
        flat = self._ids.values[:, 0]
        sides = tuple(Ragged(flat, starts + before[:, k], lengths[:, k]) for k in range(lengths.shape[1]))
        return Encoded(known, sides, heads[:, 0]), reasons, np.flatnonzero(states == _UNKNOWN)

    def learn(self, indices: Index, found: Encoded | None, reasons: list[tuple[int, str]]) -> None:
        """Keep what was read for these entries, if there is room for all of it."""
        if self.full:
            return
        if found is not None:
            tokens = sum(int(side.lengths.sum()) for side in found.sides)
            if self.nbytes + 4 * tokens + 24 * len(found) > self._budget:
                self.full = True
                return
            numbers = self._starts.count + np.arange(len(found))
            self._keep(found)
            self._states[indices[found.places]] = numbers
        for place, reason in reasons:
            if reason not in self._reasons:
                self._reasons.append(reason)
            self._states[indices[place]] = -2 - self._reasons.index(reason)

    def _keep(self, found: Encoded) -> None:
        lengths = np.stack([side.lengths for side in found.sides], 1)
        ends = np.cumsum(lengths.sum(1)) + self._ids.count
        self._starts.add((ends - lengths.sum(1))[:, None])
        self._heads = self._heads or _Growing(np.int32, 1 + len(found.sides))
        self._heads.add(np.concatenate([found.pieces[:, None], lengths], 1))
        laced = Ragged(  # the sides of an example follow one another
            np.concatenate([side.flat for side in found.sides]),
            np.stack([s.starts + o for s, o in zip(found.sides, _offsets(found.sides), strict=True)], 1).ravel(),
            lengths.ravel(),
        )
        self._ids.add(laced.compact().flat[:, None])


_UNKNOWN = -1


def _offsets(sides: tuple[Ragged, ...]) -> list[int]:
    """Where each side's tokens begin when those of all are put one after the other."""
    return [sum(len(side.flat) for side in sides[:k]) for k in range(len(sides))]


class _Growing:
    """Rows of numbers that more are added to, in an array that doubles when it is full."""

    def __init__(self, dtype: type[np.generic], width: int) -> None:
        self.count = 0
        self._array: NDArray[Any] = np.empty((0, width), dtype)

    @property
    def values(self) -> NDArray[Any]:
        return self._array[: self.count]

    @property
    def nbytes(self) -> int:
        """Of the rows in it."""
        return self.values.nbytes

    def add(self, rows: NDArray[Any]) -> None:
        needed = self.count + len(rows)
        if needed > len(self._array):
            larger = np.empty((max(needed, 2 * len(self._array)), self._array.shape[1]), self._array.dtype)
            larger[: self.count] = self.values
            self._array = larger
        self._array[self.count : needed] = rows
        self.count = needed
