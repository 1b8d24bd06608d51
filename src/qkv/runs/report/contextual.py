"""Report section on words with several meanings: scatter plots of their hidden states, layer by layer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from markupsafe import Markup

from ...core.layout import Layout
from ...core.spec import brief
from ...data.source import Example
from ...data.synthetic.word_senses import Senses
from ...data.tokenizers.tokenizer import Tokenizer
from ...io.directories.build import build
from ...io.directories.layout import write_json
from ...look.chart import Series, line_chart
from ...look.hidden_states import LayerStates, layer_states, separation
from ...look.scatter import Point, principal, scatter
from ...look.svg import join, readable, tag
from ...nn.models.transformer import TransformerModel
from ..inference.loaded import LoadedModel
from .story import Section, Story

SENSES = "senses.json"
_SHOWN = 48  # sentences of each meaning


@dataclass(frozen=True, eq=False)
class WordStates:
    """One word's states in sentences of the test split; `groups[n]` is the place of sentence n's meaning in `senses`."""

    word: str
    senses: tuple[str, ...]
    texts: tuple[str, ...]
    groups: tuple[int, ...]
    layers: tuple[LayerStates, ...]

    @property
    def separations(self) -> dict[str, float]:
        """By layer, see `qkv.look.hidden_states.separation`."""
        return {layer.name: separation(layer.states, self.groups) for layer in self.layers}

    def draw(self) -> list[Markup]:
        """A picture for each layer, on the two directions in which its states differ most."""
        return [self._picture(layer) for layer in self.layers]

    def _picture(self, layer: LayerStates) -> Markup:
        places = principal(layer.states)
        first = torch.tensor(self.groups) == 0
        if places[first, 0].mean() > places[~first, 0].mean():  # the first meaning stands on the left in every picture
            places = places * torch.tensor([-1.0, 1.0])
        points = [
            Point(x, y, group, text)
            for (x, y), group, text in zip(places.tolist(), self.groups, self.texts, strict=True)
        ]
        apart = separation(layer.states, self.groups)
        note = f"separation {readable(apart)}" if apart else f"one point for all {len(points)} sentences"
        return scatter(f"{self.word}: {layer.name}", points, self.senses, note=note)


def senses(story: Story) -> Section | None:
    """Drawn for runs on the data `senses`; `senses.json` gets the numbers."""
    data = story.recipe.get("data") or {}
    if data.get("kind") != Senses.kind:
        return None
    try:
        words, untrained = look(story)
    except (OSError, ValueError) as error:
        return Section("Meanings", Markup(""), f"Not drawn, because the run can't be loaded: {error}")
    write_json(story.run_dir / SENSES, {"trained": _separations(words), "untrained": _separations(untrained)})
    lines = [
        Series("trained", _means(words), dots=True),
        Series("the same model, untrained", _means(untrained), dots=True),
    ]
    chart = line_chart("Separation of meanings, mean of the words", lines, x_label="layer (0: embedding)", zero=True)
    pictures = [tag("div", *word.draw(), class_="charts small") for word in words]
    note = (
        "Each dot is a sentence of the test split, placed by the word's vector there and colored by its meaning; point at "
        "it to read it. Separation: the distance between meanings over the spread within them."
    )
    return Section("Meanings", join(tag("div", chart, class_="charts"), *pictures), note)


def look(story: Story) -> tuple[list[WordStates], list[WordStates]]:
    """The words of a run's data, as its model sees them, and as it saw them before training. Raises ValueError if the
    run can't be loaded."""
    from ..inference.run import load

    data = Senses.from_dict({key: value for key, value in story.recipe["data"].items() if key != "kind"})
    run = load(story.run_dir, device="cpu")
    if not isinstance(run.model, TransformerModel):
        raise ValueError(f"{story.run_dir} has no layers of attention to look into; `contextual` is for Transformers")
    table = data.table("test")
    examples = [example for i in range(len(table)) if isinstance(example := table[i], dict)]
    models = run.model, build(run.model.spec, seed=int(story.recipe.get("seed", 0)))
    trained, untrained = (
        [_seen(model, run, word, [e for e in examples if e["word"] == word]) for word in data.words] for model in models
    )
    return trained, untrained


def _separations(words: Sequence[WordStates]) -> dict[str, dict[str, float]]:
    return {word.word: word.separations for word in words}


def _means(words: Sequence[WordStates]) -> list[tuple[float, float]]:
    """(layer, separation), the mean over words."""
    layers = zip(*(word.separations.values() for word in words), strict=True)
    return [(float(i), sum(layer) / len(words)) for i, layer in enumerate(layers)]


def _seen(model: TransformerModel, run: LoadedModel, word: str, examples: Sequence[Example]) -> WordStates:
    names = tuple(dict.fromkeys(example["sense"] for example in examples))
    chosen = [example for name in names for example in [e for e in examples if e["sense"] == name][:_SHOWN]]
    texts = tuple(example["text"] for example in chosen)
    rows = [run.encode(text) for text in texts]
    lengths = [len(row) for row in rows]
    ids = torch.zeros(len(rows), max(lengths), dtype=torch.long)
    for i, row in enumerate(rows):
        ids[i, : len(row)] = torch.tensor(row)
    places = [_place(run.words, row, word) for row in rows]
    layers = layer_states(model, ids, Layout.from_lengths(lengths), places)
    groups = tuple(names.index(example["sense"]) for example in chosen)
    return WordStates(word, names, texts, groups, tuple(layers))


def _place(tokenizer: Tokenizer, row: Sequence[int], word: str) -> int:
    """Where the last piece of a word stands. Raises ValueError if the tokenizer splits it beyond recognition."""
    pieces = [piece.strip("▁#") for piece in tokenizer.tokens(row)]
    ends = [i for i in range(len(row)) if any("".join(pieces[j : i + 1]) == word for j in range(i + 1))]
    if not ends:
        raise ValueError(f"the tokenizer does not give the word {brief(word)} back in pieces; use kind: word")
    return ends[0]
