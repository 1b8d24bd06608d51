"""A tag for each word of a text, or for each symbol of a string."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Self

import numpy as np
from pydantic import Field

from ...core.batch import IGNORE, Batch
from ...core.embedding import Input
from ..encoding import Encoder
from ..judge import Judge
from ..judges.entities import Scheme, scheme_of
from ..judges.tags import TagsJudge
from ..pieces import Pieces, pieces_of
from ..ragged import Index
from ..sources import Example, Skipped, Source
from ..task import Chance, Item, Task, said


class Tag(Task, kind="tag"):
    """Each word has a tag: entities, parts of speech, the secondary structure at each place of a protein.

    An example has a `"text"`, the `"words"` that stand in it in this order (the text itself, where each of its symbols is
    one), and their `"tags"`; "" is a tag that nobody knows and nothing counts. The label stands at a word's first token,
    and the other tokens have none (Devlin et al. 2019, §5.3).

    tags:    by number; by default those of the training data in order.
    scheme:  how tags spell entities, see `judges.entities`; by default as the tags look.
    longest: tokens of a row with those around it. A longer text becomes several rows, each beginning with a word.
    """

    tags: tuple[str, ...] = ()
    scheme: Scheme | None = None
    longest: int = Field(default=256, ge=8)

    def settle(self, source: Source, tokenizer: Encoder | None, seen: Input) -> Self:
        """Raises ValueError where the data have no tags, or only one."""
        tags = self.tags or getattr(source, "tags", ()) or _tags_in(source)
        if len(tags) < 2:
            raise ValueError(f"a tagger needs at least two tags to tell apart, and the data have {list(tags)}")
        return self.replace(tags=tags, scheme=self.scheme or scheme_of(tags))

    @property
    def n_labels(self) -> int | None:
        return len(self.tags) or None

    def items(self, examples: Sequence[Example], tokenizer: Encoder | None, chance: Chance) -> list[Item | Skipped]:
        numbers = {tag: i for i, tag in enumerate(self.tags)}
        before, after = around(tokenizer)
        made: list[Item | Skipped] = []
        for example, pieces in zip(examples, pieces_of([e["text"] for e in examples], tokenizer), strict=True):
            first = first_pieces(example, pieces)
            if (first < 0).all():
                made.append(Skipped("without a token"))
                continue
            labels = self._labels(example["tags"], numbers, chance.training)
            for a, b in _parts(first, len(pieces), self.longest - len(before) - len(after)):
                made.append(_item(example, pieces, first, labels, (a, b), (before, after)))
        return made

    def _labels(self, tags: Sequence[str], numbers: dict[str, int], training: bool) -> Index:
        """The number of each word's tag, −100 for one that is not known."""
        found = np.fromiter((numbers.get(tag, IGNORE) for tag in tags), np.int64, len(tags))
        return found

    def judge(self, tokenizer: Encoder | None) -> Judge:
        return TagsJudge(self.tags, self.scheme or scheme_of(self.tags))
