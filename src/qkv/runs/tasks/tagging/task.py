"""The task `tag`: token classification, a tag for each word of a text or each symbol of a string (NER, POS tags)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import ClassVar, Self

import numpy as np
from pydantic import Field

from ....core.batch import IGNORE, Batch
from ....core.metrics.baselines import Baseline, usual_tags
from ....core.metrics.entities import Scheme, entities, misfit, near, scheme_of
from ....core.spec import brief, counted, nearest
from ....data.batching.ragged import Index
from ....data.classes import Others
from ....data.source import SPLITS, Example, Skipped, Source
from ....data.task import Item, Labels, RandomContext, Task
from ....data.tokenizers.protocol import Encoder, TextDecoder
from ....nn.layers.embedding import Input
from ..framing import Framed, frame_of, framed
from ..pieces import Pieces, pieces_of
from ..samples import learned, learned_from
from .metric import TagMetric

_INSPECTED = 10_000  # sentences that show the scheme
_NAMED = 8  # types of entities named in a note


class Tag(Task, kind="tag"):
    """Each word has a tag: entities, parts of speech, the secondary structure at each position of a protein.

    An example has a `"text"`, the `"words"` in it from left to right (the text itself, if each symbol is a word), and their
    `"tags"`; "" is an unknown tag, which is not counted. The label is at a word's first token; its other tokens have none
    (Devlin et al. 2019, §5.3).

    tags:    the names of the tags, by index; by default as in the training data, in order.
    scheme:  how tags encode entities, see `qkv.core.metrics.entities`; by default recognized from the tags.
    symbols: whether each symbol of a text is a word; by default as in the training data.
    longest: the most tokens in a row, special tokens included. A longer text becomes several rows, each beginning with a
             word.
    """

    fields = ("text", "words", "tags")
    outputs: ClassVar[str] = "tags"

    tags: tuple[str, ...] = ()
    scheme: Scheme | None = None
    symbols: bool | None = None
    longest: int = Field(default=256, ge=8)

    def resolve(self, source: Source, tokenizer: Encoder | None, inputs: Input) -> Self:
        """Raises ValueError if the data have no tags, or only one."""
        tags = self.tags or getattr(source, "tags", ()) or _tags_in(source)
        if len(tags) < 2:
            raise ValueError(f"a tagger needs at least two tags to tell apart, and the data have {list(tags)}")
        symbols = _of_symbols(source) if self.symbols is None else self.symbols
        if self.scheme is not None and (why := misfit(self.scheme, tags)):
            raise ValueError(
                f"task.scheme is {self.scheme}, and the data have other tags: {why}; leave it out, or change it"
            )
        sentences = (example["tags"] for example in islice(source.examples("train", shuffle=False), _INSPECTED))
        return self.replace(tags=tags, scheme=self.scheme or scheme_of(tags, sentences), symbols=symbols)

    def check_labels(self, source: Source) -> list[str]:
        """Name tags that the training data lack, which count as errors in evaluation, and words that hold white space."""
        notes = list(_spaced(source))
        for split in SPLITS[1:]:
            unknown, known = Others(), {"", *self.tags}
            for example in source.examples(split, shuffle=False):
                for tag in example.get("tags", ()):
                    if tag not in known:
                        unknown.add(tag, example)
            if unknown.counts:
                notes.append(
                    f"the {split} split has {counted(len(unknown.counts), 'tag')} that the training data lack, and which "
                    f"therefore count as errors: {unknown.listed('word')}"
                )
        return notes

    def notes(self, example: Example) -> tuple[str, ...]:
        if self.scheme in (None, "plain"):
            like, others = near(self.tags)
            mixed = bool(like) and len(like) >= len(others)
            said = f"the tags spell no entities: {', '.join(like[:3])} are spelled as entities"
            return (f"{said}, and {', '.join(others[:3] or like[-1:])} otherwise",) if mixed else ()
        types = sorted({one.type for tag in self.tags for one in entities([tag], "conll")} - {""})
        more = " …" if len(types) > _NAMED else ""
        named = f" of the types {', '.join(types[:_NAMED])}{more}" if types else ""
        return (f"the tags are read as entities{named}, by the scheme {self.scheme} (task.scheme)",)

    @property
    def n_labels(self) -> int | None:
        return len(self.tags) or None

    def why_missing(self, metric: str) -> str | None:
        if metric.startswith("entity_") and self.scheme == "plain":
            tags = ", ".join(self.tags[:4]) + (" …" if len(self.tags) > 4 else "")
            return f"the tags spell no entities ({tags}); give training.metric=accuracy"
        return None

    def inputs_of(
        self, examples: Sequence[Example], tokenizer: Encoder | None, randomness: RandomContext
    ) -> list[Sequence[Item] | Skipped]:
        items: list[Sequence[Item] | Skipped] = []
        for example, pieces in zip(examples, pieces_of([e["text"] for e in examples], tokenizer), strict=True):
            first = first_pieces(example, pieces)
            if (first < 0).all():
                items.append(Skipped("without a token"))
            elif randomness.training and not self._has_known_tag(example, first):
                items.append(Skipped("without a tag that is known"))
            else:
                items.append(list(self._rows(example, pieces, first, tokenizer)))
        return items

    def repeats(self, tokenizer: Encoder | None) -> bool:
        return True

    def _has_known_tag(self, example: Example, first: Index) -> bool:
        """Whether there is a label to learn from. Raises ValueError for a tag that is not one of the task's."""
        known = self._indices(example) != IGNORE
        for i in np.flatnonzero(~known).tolist():
            if tag := example["tags"][i]:
                where = f"{example['where']}: " if "where" in example else ""
                raise ValueError(
                    f"{where}{brief(example['words'][i])} has the tag {brief(tag)}; {nearest(tag, self.tags)}"
                )
        return bool(known[first >= 0].any())

    def _indices(self, example: Example) -> Index:
        """The index of each word's tag, −100 for an unknown tag."""
        indices = {tag: i for i, tag in enumerate(self.tags)}
        return np.array([indices.get(tag, IGNORE) for tag in example["tags"]], np.int64)

    def labels(self, example: Example, inputs: Item) -> Labels | Skipped:
        labels, at = np.full(len(inputs.arrays["ids"]), IGNORE, np.int64), np.array(inputs.example["at"], np.int64)
        word = inputs.example["first"]
        labels[at[at >= 0]] = self._indices(example)[word : word + len(at)][at >= 0]
        return labels

    def _rows(self, example: Example, pieces: Pieces, first: Index, tokenizer: Encoder | None) -> Iterator[Item]:
        """Cut a text into rows of at most `longest` tokens, at the beginnings of words, or within a word that is longer."""
        assert tokenizer is not None
        room = self.longest - frame_of(tokenizer).size
        words = np.flatnonzero(first >= 0)
        begins = first[words]
        start = word = 0
        while start < len(pieces):
            stop, until = start + room, len(first)
            if stop < len(pieces):
                fit = begins[(begins > start) & (begins <= stop)]
                stop = int(fit[-1]) if len(fit) else stop
                later = words[begins >= stop]
                until = int(later[0]) if len(later) else len(first)
            if until > word:  # else the row is the rest of a long word, without a label
                yield _row(example, framed(tokenizer, pieces.ids[start:stop]), first[word:until] - start, word)
            start, word = stop, until

    def untagged(self, text: str) -> Example:
        """Make an example of a text without tags, in which words are separated by white space, or are single symbols."""
        words: Sequence[str] = text.strip() if self.symbols else text.split()
        return {"text": words if isinstance(words, str) else " ".join(words), "words": words}

    def baselines(self, source: Source, examples: Iterable[Example]) -> list[Baseline]:
        """The most frequent tag of all words, and of each word."""
        training, known = learned(source), [one for one in examples if any(one.get("tags", ()))]
        if not training or not known:
            return []
        tag_of, usual = usual_tags((one["words"], one["tags"]) for one in training)
        metric = self.metric(None)
        constant = metric.scores([(one["words"], one["tags"], [usual] * len(one["words"])) for one in known])
        by_word = [(one["words"], one["tags"], [tag_of.get(word, usual) for word in one["words"]]) for one in known]
        about = f"{brief(usual)} for unknown words, {learned_from(training)}"
        return [
            Baseline("the most frequent tag", constant, f"always {brief(usual)}"),
            Baseline("the usual tag of each word", metric.scores(by_word), about),
        ]

    def metric(self, tokenizer: Encoder | None) -> TagMetric:
        return TagMetric(self.tags, self.scheme or scheme_of(self.tags))

    def preview(self, batch: Batch, row: int, tokenizer: TextDecoder | None) -> list[tuple[str, str]]:
        """Return the tokens, with the tags beside the tokens that have one."""
        ids, labels = batch.inputs["ids"][row].tolist(), batch.labels
        assert labels is not None
        assert tokenizer is not None
        tokens = tokenizer.tokens(ids[: batch.inputs["layout"].lengths[row]])
        tagged = (
            f"{token}/{self.tags[label]}" if label != IGNORE else token
            for token, label in zip(tokens, labels[row].tolist(), strict=False)
        )
        return [("text", batch.texts[row]["text"]), ("tags", " ".join(tagged))]


def _row(example: Example, row: Framed, at: Index, word: int) -> Item:
    """The row of the words from index `word` on; `at` are the indices of their first tokens, negative for none."""
    places = np.where(at >= 0, at + row.spans[0][0], -1)
    return Item({"ids": row.ids}, example={**example, "first": word, "at": places.tolist()})


def first_pieces(example: Example, pieces: Pieces) -> Index:
    """The index of the first token of each word, −1 for none. Raises ValueError if the words are not in the text."""
    text, words = example["text"], example["words"]
    if "tags" in example and len(words) != len(example["tags"]):
        raise ValueError(f"{example.get('where', text[:40])}: {len(words)} words have {len(example['tags'])} tags")
    begins = places_of(text, words)
    seen = np.flatnonzero(pieces.starts < pieces.ends)  # the others cover white space alone
    word_of = np.searchsorted(begins, pieces.starts[seen], side="right") - 1
    known, places = np.unique(word_of, return_index=True)
    first = np.full(len(words), -1, np.int64)
    first[known[known >= 0]] = seen[places[known >= 0]]
    return first


def places_of(text: str, words: Sequence[str]) -> Index:
    """The first character of each word, from left to right. Raises ValueError if a word is not in the text."""
    if words is text:
        return np.arange(len(text))
    places, at = [], 0
    for word in words:
        place = text.find(word, at)
        if not word or place < 0:
            raise ValueError(f"the word {brief(word)} does not stand in {text[at : at + 60]!r}, where it has a tag")
        places.append(place)
        at = place + len(word)
    return np.array(places, np.int64)


def _tags_in(source: Source) -> tuple[str, ...]:
    """All tags of the training data, `O` first. Raises ValueError if an example has none."""
    tags: set[str] = set()
    for example in source.examples("train", shuffle=False):
        if "tags" not in example:
            raise ValueError(f"the {source.kind} source gives no tags; give one that does, such as columns")
        tags.update(example["tags"])
    return tuple(sorted(tags - {""}, key=lambda tag: (tag != "O", tag)))


def _spaced(source: Source) -> Iterator[str]:
    """Yield a note if words of the training data hold white space, at which `untagged` separates words."""
    inspected = islice(source.examples("train", shuffle=False), _INSPECTED)
    spaced = [(word, one) for one in inspected for word in one["words"] if len(word.split()) > 1]
    if spaced:
        word, example = spaced[0]
        where = f" ({example['where']})" if "where" in example else ""
        hold, have = ("holds", "has") if len(spaced) == 1 else ("hold", "have")
        words = counted(len(spaced), "word")
        yield (
            f"{words} of the training data {hold} a space, such as {brief(word)}{where}, and {have} one "
            "tag each; in new texts a word ends at a space, so give each part its tag if tags should be found there"
        )


def _of_symbols(source: Source) -> bool:
    """Whether the words of the training data are the symbols of a string."""
    first = next(source.examples("train", shuffle=False), None)
    return first is not None and isinstance(first.get("words"), str)
