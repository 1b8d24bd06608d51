"""Report section on attention: where the model looks in two examples, drawn again if the run loads.

Beside the report, `attention.html` shows every layer and head of these examples as `qkv look` does.
"""

from __future__ import annotations

import base64
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

import torch
from markupsafe import Markup
from torch import Tensor

from ...core.atomic import remove
from ...core.batch import Batch
from ...core.layout import Layout
from ...data.loader.stream import stream
from ...data.source import Example, Split
from ...data.task import Task
from ...look import attention_maps, attention_picture
from ...look.attention_picture import MOST_TOKENS, AnyPicture, Picture
from ...look.head_grid import rounded
from ...look.patch_attention import PatchPicture
from ...look.svg import join, tag
from ...look.view.attention import AttentionGroup, LayerAttention
from ...look.view.axis import Axis
from ...look.view.figure import Figure, InputView
from ...nn.layers.patches import shown_patches
from ..evaluate.evaluate import FixedExamples
from .samples import is_right
from .story import Section, Story

if TYPE_CHECKING:
    from ...nn.models.build import AnyModel
    from ..inference.run import Run

ATTENTION = "attention.json"
PAGE = "attention.html"
_PICTURED = 2  # examples with their attention
_TRIED = 20  # examples of a split, of which some can't be used
_MOST_WORDS = 12  # of an output over a picture


def attention(story: Story) -> Section | None:
    """Where the model looks, in two examples: drawn again if the run and its data load, else from `attention.json`."""
    if not story.samples and not story.task:
        return None
    path = story.run_dir / ATTENTION
    try:
        pictures, page = _look(story)
        attention_picture.save(path, pictures)
        if page.views:
            page.save(story.run_dir / PAGE)
        else:
            remove(story.run_dir / PAGE)
    except (OSError, ValueError) as error:
        pictures = attention_picture.load(path)
        if not pictures:
            return Section("Attention", Markup(""), f"Not drawn, because the run can't be loaded: {error}")
    if not pictures:
        return None
    pictures = [one for one in pictures if one.layers]
    if not pictures:
        return Section("Attention", Markup(""), "This model's mechanism has no weights to draw.")
    drawings = [picture.draw(f"attention-{n}") for n, picture in enumerate(pictures, 1)]
    body = tag("div", *drawings, class_="pictures")
    if (story.run_dir / PAGE).is_file():
        body = join(tag("p", tag("a", "Every layer and head of these examples, interactive", href=PAGE)), body)
    return Section("Attention", body, _note(pictures[0]))


def _note(picture: AnyPicture) -> str:
    """How to read the pictures."""
    if isinstance(picture, PatchPicture):
        return (
            "The clearer a patch, the more of the attention goes there; patches without attention are covered in blue."
        )
    own = picture.rows == picture.columns
    what = "Each row is a token, the columns what it looks at" if own else "Source tokens across, target tokens down"
    return f"{what}; the stronger the ink, the more of a row's attention goes there. Point at a cell for its weight."


def _look(story: Story) -> tuple[list[AnyPicture], Figure]:
    """The attention of two examples in the trained model, as pictures and as a page. Raises ValueError if the run or its
    data can't be loaded."""
    from ..inference.run import load

    run = load(story.run_dir, device="cpu")
    if story.task:
        seen = list(islice(_of_task(story, run), _PICTURED))
        return [picture for picture, _ in seen], Figure(run.title, tuple(view for _, view in seen), run.model)
    samples, note = choose(story.samples), ""
    if not samples:
        samples = choose([{**one, "output": one["target"]} for one in story.samples if one.get("target")])
        note = "The model writes nothing here, so the truth stands in its place"
    views = (_view(run, sample) for sample in samples)
    pictures = [_of_sample(run, sample) for sample in samples]
    pictures = [replace(one, note=". ".join(filter(None, (note, one.note)))) for one in pictures]
    return [*pictures], Figure(run.title, tuple(view for view in views if view is not None), run.model)


# -- samples of texts and pairs -----------------------------------------------------------------------------------


def choose(samples: Sequence[Mapping[str, Any]], count: int = _PICTURED) -> list[Mapping[str, Any]]:
    """The samples whose attention says most: right ones first, then one of each first word (target tag), then long."""
    chosen: list[Mapping[str, Any]] = []
    rest = [sample for sample in samples if sample["output"]]
    while rest and len(chosen) < count:
        seen = {_first_word(sample) for sample in chosen}
        best = max(rest, key=lambda s: (is_right(s), _first_word(s) not in seen, _length(s)))
        rest.remove(best)
        chosen.append(best)
    return chosen


def _first_word(sample: Mapping[str, Any]) -> str:
    return next(iter(str(sample.get("source", "")).split()), "")


def _length(sample: Mapping[str, Any]) -> int:
    """Characters, as far as they make a picture worth more: a very long one is only harder to read."""
    length = len(str(sample.get("source", "")))
    return length if length <= 60 else 60 - length


def _view(run: Run, sample: Mapping[str, Any]) -> InputView | None:
    """Return a sample in the form that `qkv look` shows, or None for conversations and for samples beyond the context."""
    from ..inference.look.figure import look

    if sample.get("messages"):
        return None
    source, output = str(sample.get("source", "")), str(sample["output"])
    pair = run.model.is_encoder_decoder
    try:
        with warnings.catch_warnings(action="ignore"):
            (view,) = look(run, source if pair else source + output, target=output if pair else None).views
    except ValueError:
        return None
    return view


def _of_sample(run: Run, sample: Mapping[str, Any]) -> Picture:
    model, tokenizer = run.model, run.words
    source, output = str(sample.get("source", "")), str(sample["output"])
    if sample.get("messages"):
        return _of_chat(run, sample["messages"], output)
    read = run.encode(source)
    if model.is_encoder_decoder:
        written = tokenizer.encode(output, eos=True)
        fed = [run.start, *written[:-1]]
        maps = attention_maps.attention(model, _ids(read, model), _ids(fed, model), choose=attention_maps.cross)
        return Picture.of(source, tokenizer.tokens(written), run.reader.tokens(read), maps)
    ids = [*read, *tokenizer.encode(output)]
    tokens = tokenizer.tokens(ids)
    maps = attention_maps.attention(model, _ids(ids[:MOST_TOKENS], model), choose=attention_maps.own)
    return Picture.of(source + output, tokens, tokens, maps)


def _of_chat(run: Run, messages: Sequence[Mapping[str, Any]], output: str) -> Picture:
    """The last turn of a conversation and the reply to it."""
    tokenizer = run.words
    read, reply = tokenizer.chat.prompt(messages), tokenizer.encode(output)
    total = len(read) + len(reply)
    start = max(0, min(len(read) - MOST_TOKENS // 2, total - MOST_TOKENS))
    ids = [*read, *reply][: start + MOST_TOKENS]
    rows = range(start, len(ids))
    maps = attention_maps.attention(run.model, _ids(ids, run.model), choose=attention_maps.own, rows=rows)
    shown = [attention_maps.AttentionMap(one.name, one.weights[..., start:]) for one in maps]
    tokens = tokenizer.tokens(ids[start:])
    picture = Picture.of(str(messages[-1]["content"]), tokens, tokens, shown)
    note = f"Tokens {start + 1} to {len(ids)} of {total:,} are drawn" if len(ids) - start < total else ""
    return replace(picture, facts=[["model", output]], note=note)


def _ids(ids: Sequence[int | None], model: AnyModel) -> Tensor:
    return torch.tensor([list(ids)], device=model.device)


# -- examples of tasks --------------------------------------------------------------------------------------------


def _of_task(story: Story, run: Run) -> Iterator[tuple[AnyPicture, InputView]]:
    """Yield the attention of the first evaluated examples, each as a picture and as a view of the page."""
    from ..inference.look.figure import recorded_attention

    recipe, task = run.recipe, run.trained_on
    if recipe is None or task is None:
        raise ValueError(f"{story.run_dir} has no recipe that names its data")
    split: Split = "validation" if story.evaluation.get("split") == "validation" else "test"
    for number, example in enumerate(islice(recipe.data.examples(split, shuffle=False), _TRIED), 1):
        batch = _batch(run, task, example, split)
        if batch is None:
            continue
        groups, axes = recorded_attention(run, partial(run.model, **batch.inputs))
        picture = _picture(f"{split.capitalize()} split, example {number}", groups, axes, run, task, batch)
        if picture is not None:
            facts = tuple((name, value) for name, value in picture.facts)
            notes = tuple(axis.note for axis in axes.values() if axis.note)
            yield picture, InputView(picture.title, axes, tuple(groups), facts, notes)


def _batch(run: Run, task: Task, example: Example, split: Split) -> Batch | None:
    """The first batch of one example; None if the task skips it."""
    assert run.recipe is not None
    batching = run.recipe.batching.replace(workers=0, shuffle=False)
    source, seq2seq = FixedExamples(entries=(example,)), run.model.is_encoder_decoder
    options: dict[str, Any] = {"seq2seq": seq2seq, "task": task, "split": split, "seed": run.recipe.seed, "epochs": 1}
    try:
        with stream(source, run.tokenizer, batching, **options) as batches:
            batch = next(iter(batches), None)
    except ValueError:
        return None
    return None if batch is None else batch.to(run.model.device)


def _picture(
    place: str, groups: Sequence[AttentionGroup], axes: Mapping[str, Axis], run: Run, task: Task, batch: Batch
) -> AnyPicture | None:
    """The picture of the group of layers that says most: attention to a source, else that of the first stack."""
    group = next((one for one in groups if one.name == "cross"), groups[0] if groups else None)
    if group is None:
        return None
    title, facts = _facts(place, task, run, batch)
    query, key = axes[group.query], axes[group.key]
    if key.grid is not None and key.picture is not None and key.grid.rows * _patch_size(run)[0] > 1:
        return _on_patches(title, facts, group, query, key, run)
    rows, columns = list(query.row_labels)[:MOST_TOKENS], list(key.labels)[:MOST_TOKENS]
    if key.grid is not None:
        rows = columns = _times(key, run)[:MOST_TOKENS]
    elif isinstance(layout := batch.inputs.get("layout"), Layout) and layout.grid is not None:
        rows = columns = _visible_patches(layout)[:MOST_TOKENS]
    layers = [
        {"name": layer.name, "weights": rounded(layer.weights[:, : len(rows), : len(columns)].tolist())}
        for layer in group.layers
    ]
    longest = max(query.total, key.total)
    note = f"The first {MOST_TOKENS} of {longest:,} tokens are drawn" if longest > MOST_TOKENS else ""
    return Picture(title, rows, columns, layers, facts, note)


def _facts(place: str, task: Task, run: Run, batch: Batch) -> tuple[str, list[list[str]]]:
    """The title of an example, and what the model puts out for it beside the truth."""
    metric = task.metric(run.tokenizer)
    with torch.inference_mode():
        metric.evaluate(run.model, batch)
        sample = next(iter(metric.samples(1)), {})
    about = " ".join(str(sample.get("source", "")).split())
    facts = [[name, str(sample[key])] for name, key in (("model", "output"), ("truth", "target")) if sample.get(key)]
    return (f"{place}: {about}" if about else place), facts


def _on_patches(
    title: str, facts: list[list[str]], group: AttentionGroup, query: Axis, key: Axis, run: Run
) -> PatchPicture:
    """Attention over the patches: of the class token if the head reads it alone, else the mean of all queries."""
    grid = key.grid
    assert grid is not None and key.picture is not None
    patches = slice(grid.before, grid.before + grid.patches)
    by_word = group.name == "cross"
    head: Any = run.model.head
    pool = getattr(getattr(head, "spec", None), "pool", None)
    of_class = not by_word and grid.before > 0 and pool == "token"

    def weights(layer: LayerAttention) -> Tensor:
        """(H, T, patches)"""
        return (layer.weights[:, :1] if of_class else layer.weights)[..., patches]

    layers = [{"name": layer.name, "weights": rounded(weights(layer).mean(1).tolist())} for layer in group.layers]
    words: list[Any] = []
    if by_word:
        labels = query.labels[1:] if query.labels else ()  # the token after each one is written
        last = weights(group.layers[-1]).mean(0)
        words = [[label, rounded(row.tolist())] for label, row in zip(labels, last, strict=False)][:_MOST_WORDS]
    name = " and of all words" if by_word else ", class token" if of_class else " and of all patches"
    size = _size(key.picture)
    image, shape = base64.b64encode(key.picture).decode(), [grid.rows, grid.columns]
    upward = key.name == "sound"
    return PatchPicture(title, image, size, shape, name, layers, words, facts, upward=upward)


def _patch_size(run: Run) -> tuple[int, int]:
    model: Any = run.model
    height, width = model.encoder.embedding.spec.patch
    return height, width


def _times(axis: Axis, run: Run) -> list[str]:
    """Labels of the patches of a series: the steps of its history that each covers."""
    assert axis.grid is not None
    _, width = _patch_size(run)
    steps = [f"{i * width + 1}–{(i + 1) * width}" for i in range(axis.grid.patches)]
    return ["class"] * axis.grid.before + steps + ["token"] * axis.grid.after


def _visible_patches(layout: Layout) -> list[str]:
    """Labels of the tokens of a picture with hidden patches: row and column, from 1."""
    grid = layout.grid
    assert grid is not None
    patches = shown_patches(layout)[0].tolist()
    places = [f"{i // grid.columns + 1},{i % grid.columns + 1}" for i in patches]
    return ["class"] * grid.before + places + ["token"] * grid.after


def _size(picture: bytes) -> list[int]:
    """Height and width of a PNG file."""
    return [int.from_bytes(picture[start : start + 4], "big") for start in (20, 16)]  # of its first chunk, IHDR
