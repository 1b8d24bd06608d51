"""Compare a word between texts: its vector by layer, and the words that move it, as panels and facts of a figure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from ....core import several
from ....core.spec import brief
from ....look.analysis.word_contexts import Occurrence, WordContexts, word_contexts
from ....look.view.figure import InputView
from ....look.view.labels import is_mark, token_labels, whole_words, word_ranges
from ....look.view.panels import Panel, heat_panel, table_panel
from ....nn.models.transformer import TransformerModel
from ..loaded import LoadedModel
from ..uses import kind_of, reads_text
from .passes import forward_pass, recorded_calls

MOST_CONTEXTS = 8
MOST_WORDS = 100  # other words of a text
LEAST = 5e-4  # a word that moves another by less is not named
_NAMED = 3  # words in a fact


@dataclass(frozen=True, eq=False)
class WordComparison:
    """A word in its contexts, one for each occurrence in the texts.

    names:  of the contexts: the number of the text, and after a point that of the place if there are several.
    texts:  of the contexts, by index of the given texts.
    tokens: labels of the word's tokens in each context.
    words:  the other words of each context, in their order; `measured.moved` and `measured.apart` have one number for each.
    """

    word: str
    names: tuple[str, ...]
    texts: tuple[int, ...]
    tokens: tuple[tuple[str, ...], ...]
    words: tuple[tuple[str, ...], ...]
    measured: WordContexts

    def movers(self, context: int) -> list[tuple[str, float, float]]:
        """The other words of a context by how much they move the word after the last layer: (word, moved, apart)."""
        moved, apart = self.measured.moved[context], self.measured.apart[context]
        last = moved[-1].tolist() if moved.shape[1] else []
        rows = zip(self.words[context], last, apart.tolist(), strict=True)
        return sorted(rows, key=lambda row: -row[1])


def compare(run: LoadedModel, texts: str | Sequence[str], word: str | None = None) -> WordComparison:
    """Measure a word in every place where it occurs in the texts, at least two; by default the longest word that all texts
    have in common.

    The encoder gives the vectors, or the decoder if there is no encoder. A word of several tokens has the mean of
    theirs. Raises ValueError for a text without the word, for a model without Transformer layers, and for one that reads no
    texts.
    """
    items = several.texts(texts)
    if not items:
        raise ValueError("there are no texts to compare a word between; give two")
    if not reads_text(run) or not isinstance(run.model, TransformerModel):
        raise ValueError(f"{run.name} is {kind_of(run)}; words are compared in Transformers that read texts")
    stack = "decoder" if run.model.spec.encoder is None else "encoder"
    read = [_read(run, text, stack) for text in items]
    word = _common([labels for _, labels in read]) if word is None else word.strip()
    places = [whole_words(word, labels) for _, labels in read]
    for text, found in zip(items, places, strict=True):
        if not found:
            raise ValueError(f"the word {brief(word)} does not occur in {brief(text)}; compare texts that all have it")
    names, of, contexts, tokens, words = [], [], [], [], []
    for i, ((context, labels), found) in enumerate(zip(read, places, strict=True)):
        for number, place in enumerate(found, 1):
            others = [r for r in word_ranges(labels) if not is_mark(labels[r[-1]]) and not set(r) & set(place)]
            names.append(f"{i + 1}.{number}" if len(found) > 1 else f"{i + 1}")
            of.append(i)
            contexts.append(replace(context, word=tuple(place), others=tuple(map(tuple, others[:MOST_WORDS]))))
            tokens.append(tuple(labels[token] for token in place))
            words.append(tuple(_spelling([labels[token] for token in r]) for r in others[:MOST_WORDS]))
    if not 2 <= len(contexts) <= MOST_CONTEXTS:
        raise ValueError(
            f"a word is compared between 2 and {MOST_CONTEXTS} places; {brief(word)} occurs in {len(contexts)} here"
        )
    measured = word_contexts(run.model, stack, contexts)
    return WordComparison(word, tuple(names), tuple(of), tuple(tokens), tuple(words), measured)


@torch.inference_mode()
def _read(run: LoadedModel, text: str, stack: str) -> tuple[Occurrence, list[str]]:
    """What a stack reads for a text, and the labels of its tokens."""
    with recorded_calls(run.model) as calls:
        forward_pass(run, text).run()
    ids, layout = calls[stack].args[:2]
    count = int(layout.valid[0].sum()) if layout.padding == "right" else ids.shape[1]
    reader = run.reader if stack == "encoder" else run.words
    row = replace(
        layout,
        positions=layout.positions[:1, :count],
        segments=None if layout.segments is None else layout.segments[:1, :count],
        roles=None if layout.roles is None else layout.roles[:1, :count],
        lengths=None,
    )
    return Occurrence(ids[:1, :count], row, (), ()), token_labels(reader, ids[0, :count].tolist())


def _common(texts: Sequence[Sequence[str]]) -> str:
    """The longest word of the first text that all have."""
    first = {_spelling([texts[0][token] for token in r]) for r in word_ranges(texts[0]) if not is_mark(texts[0][r[-1]])}
    shared = [word for word in first if all(whole_words(word, labels) for labels in texts)]
    if not shared:
        raise ValueError("the texts have no word in common; name one that all have")
    return max(sorted(shared), key=len)


def _spelling(labels: Sequence[str]) -> str:
    return "".join(label.removeprefix("##") for label in labels).replace("▁", " ").strip()


# -- the figure --------------------------------------------------------------------------------------------------------


def with_comparison(views: tuple[InputView, ...], found: WordComparison) -> tuple[InputView, ...]:
    """The views of a figure with a word's facts and panels: all contexts, and which words move it in each."""
    shared = (_alike(found), _static(found), _movers(found))
    moved: dict[int, list[Panel]] = {}
    facts: dict[int, list[tuple[str, str]]] = {0: [(f"{found.word}, cosine between contexts", _summary(found))]}
    for i, text in enumerate(found.texts):
        moved.setdefault(text, []).append(_moved(found, i))
        named = "  ".join(f"{word} {value:.3f}" for word, value, _ in found.movers(i)[:_NAMED] if value > LEAST)
        facts.setdefault(text, []).append((f"{found.word} ({found.names[i]}) is moved most by", named or "no word"))
    notes = _notes(found)
    return tuple(
        replace(
            view,
            facts=(*view.facts, *facts.get(i, [])),
            notes=(*view.notes, *(notes if i == 0 else ())),
            panels=(*shared, *moved.get(i, []), *view.panels),
        )
        for i, view in enumerate(views)
    )


def _layers(found: WordComparison) -> list[str]:
    return [str(i) for i in range(len(found.measured.vectors) - 1)]


def _pairs(found: WordComparison) -> list[tuple[int, int]]:
    count = len(found.names)
    return [(i, j) for i in range(count) for j in range(i + 1, count)]


def _summary(found: WordComparison) -> str:
    """The mean cosine of all pairs of contexts: static, after the first layer and after the last."""
    means = torch.stack([found.measured.alike[:, i, j] for i, j in _pairs(found)]).mean(0).tolist()
    others = found.measured.others[-1]
    return (
        f"static {means[0]:.3f}, layer 0 {means[1]:.3f}, layer {len(means) - 2} {means[-1]:.3f} "
        f"(other words: {others:.3f})"
    )


def _notes(found: WordComparison) -> list[str]:
    """Say which contexts have a word of several tokens, and how that is averaged."""
    long = {tokens for tokens in found.tokens if len(tokens) > 1}
    return [
        f"{found.word} is {len(tokens)} tokens ({' '.join(tokens)}); its vector is their mean"
        for tokens in sorted(long)
    ]


def _alike(found: WordComparison) -> Panel:
    measured = found.measured
    rows = [measured.alike[:, i, j].tolist() for i, j in _pairs(found)]
    labels = [f"{found.names[i]} and {found.names[j]}" for i, j in _pairs(found)]
    if bool(measured.others.isfinite().all()):
        rows, labels = [*rows, measured.others.tolist()], [*labels, "other words"]
    return heat_panel(
        f"How alike {found.word} is in its contexts",
        rows=labels,
        columns=["static", *_layers(found)],
        values=rows,
        texts=[[f"{value:.2f}" for value in row] for row in rows],
        note="Cosine of the word's vectors in two contexts: its embedding, which is static, and the residual stream after "
        "each layer. Other words: the mean cosine of tokens of different words. Below it, the word is no more alike in two "
        "contexts than any two words are.",
        row_title="contexts",
        column_title="layer",
        diverging=min(min(row) for row in rows) < 0,
    )


def _static(found: WordComparison) -> Panel:
    rows = found.measured.static.T.tolist()
    return heat_panel(
        f"How near {found.word} stays to its static vector",
        rows=list(found.names),
        columns=_layers(found),
        values=rows,
        texts=[[f"{value:.2f}" for value in row] for row in rows],
        note="Cosine of the word's vector after each layer and its embedding.",
        row_title="context",
        column_title="layer",
        diverging=min(min(row) for row in rows) < 0,
    )


def _moved(found: WordComparison, context: int) -> Panel:
    values = found.measured.moved[context].T.clamp(min=0).tolist()
    return heat_panel(
        f"What moves {found.word} in context {found.names[context]}",
        rows=list(found.words[context]),
        columns=_layers(found),
        values=values,
        texts=[[f"{value:.3f}" for value in row] for row in values],
        note="1 − the cosine of the word's vector and of its vector if no token sees the other word (occlusion). In a model "
        "that reads from left to right, words after it can't move it.",
        row_title="without",
        column_title="layer",
    )


def _movers(found: WordComparison) -> Panel:
    rows: list[list[str | float]] = [
        [found.names[i], word, moved, apart]
        for i in range(len(found.names))
        for word, moved, apart in found.movers(i)[:_NAMED]
        if moved > LEAST
    ]
    return table_panel(
        f"The words that move {found.word} most",
        columns=["context", "word", "moves it", "sets it apart"],
        rows=rows,
        note="After the last layer. Moves it: 1 − the cosine with and without the word. Sets it apart: by how much its mean "
        "cosine with the other contexts grows without the word; below 0, the word makes the contexts more alike.",
    )
