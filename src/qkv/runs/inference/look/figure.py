"""Look into a trained model: the attention of each layer and head on an input, with what it predicts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from ....core import several
from ....core.spec import brief
from ....generation import Generation
from ....look.analysis.head_scores import induction_scores
from ....look.head_grid import DIVERGED
from ....look.view.analysis_panels import MOST_TOKENS, head_scores_panel, lens_panel
from ....look.view.attention import AttentionGroup, attention_groups, by_group
from ....look.view.axis import Axis, patch_labels, spread, window
from ....look.view.experts import expert_panels, record_routing
from ....look.view.figure import Figure, InputView
from ....look.view.labels import find_word, token_labels
from ....look.view.panels import Panel
from ....look.view.rollout import rollout_group
from ....nn.activations import intervene
from ....nn.activations.intervene import Changes
from ....nn.attention import tap
from ....nn.attention.mixer import Mixer
from ....nn.kernels.request import Request
from ....nn.models.transformer import TransformerModel
from ..loaded import LoadedModel
from .passes import ForwardPass, TokenSequence, recorded_calls, sequence_of, tower_of

BESIDE = ("cross", "tower")
"""Groups of attention to tokens outside a model's only stack: to a source, or to the patches of pictures."""
INDUCTION = 16  # random tokens that are repeated to measure induction


def look(
    run: LoadedModel,
    inputs: str | Path | Sequence[str | Path],
    *,
    target: str | None = None,
    generate: int = 0,
    tokens: tuple[int, int] | None = None,
    layers: Sequence[int] | None = None,
    heads: Sequence[int] | None = None,
    word: str | None = None,
    settings: Generation | None = None,
    changes: Changes | None = None,
    neuron: str | None = None,
    texts: Sequence[str] | None = None,
    patch: str | None = None,
    kind: str | None = None,
    compare: bool = False,
) -> Figure:
    """Return a figure of the attention of every layer and head on each input: texts, or files if the run reads files.

    target:   an encoder–decoder's output to read along, by default what it generates with `settings`.
    generate: tokens by which a language model continues the text first.
    tokens:   (start, stop) of the tokens to draw, by default the first 64 of a text and all patches of a picture. Weights
              are computed for these alone.
    layers, heads: indices from 0 to draw, by default all that a page has room for.
    word:     the word whose dependencies are drawn alone.
    changes:  of activations, under which the model runs (`qkv.nn.activations.intervene`).
    neuron:   a neuron of a feed-forward layer, such as "1.17" or "decoder.1.17", to show with the texts that excite it the
              most, chosen from `texts`, by default from the run's validation split. Inputs may be empty then.
    kind:     of attention, "encoder", "decoder" or "cross", that the page opens with and a picture shows.
    patch:    a second text of as many tokens as the only input, for activation patching between the two.
    compare:  also compare `word` between all places where the inputs have it (`comparing.compare`), by default the longest
              word that they have in common.

    Raises ValueError for an input that the run can't read, for tokens, layers, heads, words or neurons that are not there,
    and for a second text that doesn't fit.
    """
    items = several.paths(inputs, "inputs", "a text or a path")
    if not items and neuron is None:
        raise ValueError("there is nothing to look at; give a text or a file")
    if patch is not None and len(items) != 1:
        raise ValueError(
            f"activations are patched between two texts: give one input besides the other, not {len(items)}"
        )
    run, passing = tower_of(run, items)
    compared = None
    if compare:
        from .comparing import compare as compare_word

        with intervene(run.model, changes) if changes else nullcontext():
            compared = compare_word(run, [str(item) for item in items], word)
        word = compared.word
    options = {"target": target, "generate": generate, "settings": settings}
    with intervene(run.model, changes) if changes else nullcontext():
        views = tuple(
            _view(run, str(item), passing(run, item, **options), tokens, layers, heads, word) for item in items
        )
        if compared is not None:
            from .comparing import with_comparison

            views = with_comparison(views, compared)
        if neuron is not None:
            from .neurons import neuron_panel

            views = _with_panel(views, neuron_panel(run, neuron, texts))
        if patch is not None:
            from .patching import patching_panel

            views = _with_panel(views, patching_panel(run, str(items[0]), patch, target))
    first = None if layers is None and heads is None else ((layers or [0])[0], (heads or [0])[0])
    for view in views if kind is not None else ():
        view.group(kind)  # raises ValueError for a kind that is not there
    return Figure(run.title, views, run.model, first, kind)


def _with_panel(views: tuple[InputView, ...], panel: Panel) -> tuple[InputView, ...]:
    """The views with a further panel in the first, or a view of the panel alone."""
    if not views:
        return (InputView("", {}, (), panels=(panel,)),)
    first, *others = views
    return (replace(first, panels=(*first.panels, panel)), *others)


@torch.inference_mode()
def _view(
    run: LoadedModel,
    text: str,
    passing: ForwardPass,
    tokens: tuple[int, int] | None,
    layers: Sequence[int] | None,
    heads: Sequence[int] | None,
    word: str | None,
) -> InputView:
    with tap.record_attention() as requests, record_routing(run.model) as routings:
        hidden = passing.run()
    axes = {stack: _axis(sequence, tokens) for stack, sequence in passing.sequences.items()}
    axes |= _with_predictions(run, passing, axes, hidden)
    named = _named_axes(axes)
    pairs = _pairs(axes, list(by_group(requests)))
    groups = attention_groups(requests, pairs, layers, heads)
    groups += _rollouts(requests, pairs, groups)
    if passing.joint is not None:
        from .joint import media_groups

        into, more = media_groups(requests, passing.joint, run, layers, heads)
        groups, named = [*into, *groups], {**named, **more}
    focus = _focus(named, word)
    stacks = {stack: axes[stack] for stack in axes if any(r.name.startswith(f"{stack}.") for r in routings.layers)}
    panels = expert_panels(routings, {stack: (axis.labels, axis.shown) for stack, axis in stacks.items()})
    panels += _analysis(run, passing, axes, requests)
    notes = [axis.note for axis in named.values() if axis.note]
    notes += [f"{group.name}: {group.note}" for group in groups if group.note and "rollout" not in group.name]
    if not all(bool(layer.weights.isfinite().all()) for group in groups for layer in group.layers):
        notes.append(DIVERGED)
    if not groups:
        notes.append(_without_attention(run, [panel["title"] for panel in (*panels, *passing.panels)]))
    facts = (*passing.facts, *_next_token(passing, hidden))
    return InputView(text, named, tuple(groups), facts, tuple(notes), focus, (*panels, *passing.panels))


@torch.inference_mode()
def recorded_attention(
    run: LoadedModel, call: Callable[[], object], tokens: tuple[int, int] | None = None
) -> tuple[list[AttentionGroup], dict[str, Axis]]:
    """Call a function that runs the model of a run once, and return its attention and the axes by their names.

    As in `look`, weights are computed for the tokens on display alone, of the first sequence of the batch.
    """
    with tap.record_attention() as requests, recorded_calls(run.model) as calls:
        call()
    axes = {stack: _axis(sequence_of(run, recorded), tokens) for stack, recorded in calls.items()}
    return attention_groups(requests, _pairs(axes, list(by_group(requests)))), _named_axes(axes)


def _axis(sequence: TokenSequence, tokens: tuple[int, int] | None) -> Axis:
    """The tokens on display of a sequence."""
    grid, total = sequence.grid, sequence.total
    if grid is not None:
        labels = patch_labels(grid)
        queries = spread(grid) if tokens is None else window(total, tokens)
        return Axis(sequence.name, labels, tuple(range(total)), total, queries, grid=grid, picture=sequence.picture)
    shown = window(total, tokens)
    ids = sequence.next if sequence.written else sequence.ids
    if not ids or sequence.tokenizer is None:
        return Axis(sequence.name, tuple(str(i) for i in shown), shown, total)
    labels = tuple(token_labels(sequence.tokenizer, ids[shown[0] : shown[-1] + 1]))
    return Axis(sequence.name, labels, shown, total)


def _with_predictions(
    run: LoadedModel, passing: ForwardPass, axes: dict[str, Axis], hidden: Tensor | None
) -> dict[str, Axis]:
    """The axis of the stack that predicts tokens, with the likeliest next or masked token after each token on display."""
    sequence, axis = passing.sequences.get("decoder"), axes.get("decoder")
    if hidden is None or passing.logits is None or sequence is None or axis is None or sequence.written:
        return {}
    assert sequence.tokenizer is not None
    scores = passing.logits(hidden[:, list(axis.shown)])[0, :, : sequence.tokenizer.vocab_size]
    labels = [_label(sequence, i) for i in scores.argmax(-1).tolist()]
    masks = sequence.masks
    writes = tuple(label if masks is None or i in masks else "" for i, label in zip(axis.shown, labels, strict=True))
    predicting = Axis(axis.name, axis.labels, axis.shown, axis.total, writes=writes)
    return {stack: predicting for stack, other in axes.items() if other.name == axis.name}


def _next_token(passing: ForwardPass, hidden: Tensor | None, most: int = 5) -> list[tuple[str, str]]:
    """The likeliest tokens after a text that a language model continues."""
    sequence = passing.sequences.get("decoder")
    continues = sequence is not None and sequence.masks is None and not sequence.next
    if hidden is None or passing.logits is None or sequence is None or not continues:
        return []
    best = passing.logits(hidden[:, -1:])[0, 0].float().softmax(-1).topk(most)
    named = (f"{_label(sequence, i)} {p:.3f}" for i, p in zip(best.indices.tolist(), best.values.tolist(), strict=True))
    return [("next token", "  ".join(named))]


def _label(sequence: TokenSequence, token: int) -> str:
    """The label of a token that a model predicts, which may be beyond the tokenizer's vocabulary."""
    if sequence.tokenizer is None or token >= sequence.tokenizer.vocab_size:
        return f"#{token}"
    return token_labels(sequence.tokenizer, [token])[0]


def _analysis(
    run: LoadedModel, passing: ForwardPass, axes: dict[str, Axis], requests: Sequence[Request]
) -> list[Panel]:
    """The logit lens of a language model, and the scores of its heads."""
    panels: list[Panel] = []
    sequence, axis, model = passing.sequences.get("decoder"), axes.get("decoder"), run.model
    lens = isinstance(model, TransformerModel) and passing.logits is not None and passing.inputs is not None
    if lens and sequence is not None and axis is not None and axis.total <= MOST_TOKENS:
        assert passing.inputs is not None
        panels.append(lens_panel(model, passing.inputs, axis.labels, axis.shown, partial(_label, sequence)))
    induction = None
    if lens and not run.media and not model.is_encoder_decoder and model.spec.decoder is not None:
        longest = model.max_positions or INDUCTION
        induction = induction_scores(model, min(INDUCTION, longest // 2), batch=2) if longest >= 4 else None
    scores = head_scores_panel(requests, induction)
    return [*panels, scores] if scores is not None else panels


def _named_axes(axes: dict[str, Axis]) -> dict[str, Axis]:
    return {axis.name: axis for axis in axes.values()}


def _pairs(axes: dict[str, Axis], names: Sequence[str]) -> dict[str, tuple[Axis, Axis]]:
    """The axes of queries and keys of each group of attention."""
    pairs = {stack: (axis, axis) for stack, axis in axes.items()}
    if "encoder" in axes and "decoder" in axes:
        pairs["cross"] = axes["decoder"], axes["encoder"]
    only = _named_axes(axes)
    if len(only) == 1:  # stacks of a model defined outside qkv may have other names
        (axis,) = only.values()
        pairs |= {name: (axis, axis) for name in names if name not in pairs and name not in BESIDE}
    return pairs


def _rollouts(
    requests: Sequence[Request], pairs: dict[str, tuple[Axis, Axis]], groups: Sequence[AttentionGroup]
) -> list[AttentionGroup]:
    """The rollout of each stack on display."""
    layers = by_group(requests)
    rollouts = (rollout_group(g.name, layers[g.name], pairs[g.name][0]) for g in groups if g.name != "cross")
    return [group for group in rollouts if group is not None]


def _focus(axes: dict[str, Axis], word: str | None) -> dict[str, list[int]]:
    """The places of a word among the tokens on display, by axis. Raises ValueError if it is in none."""
    if word is None:
        return {}
    if not word.strip():
        raise ValueError("the word is empty; give one of the text")
    places, error = {}, ValueError(f"there are no words to find {brief(word)} in")
    for name, axis in axes.items():
        try:
            places[name] = find_word(word.strip(), axis.labels)
        except ValueError as missing:
            error = missing
    if not places:
        raise error
    return places


def _without_attention(run: LoadedModel, sections: Sequence[str]) -> str:
    """Say what can be shown of a model without attention weights."""
    mixers = sorted({mixer.kind for mixer in _mixers(run)})
    what = f" ({', '.join(mixers)})" if mixers else ""
    shown = f"shown instead: {', '.join(sections)}" if sections else "its prediction is all that is shown"
    return f"No layer of this model{what} computes attention weights for pairs of tokens; {shown}"


def _mixers(run: LoadedModel) -> list[Mixer]:
    stacks = getattr(run.model.spec, "stacks", None)
    return [] if stacks is None else [block.attention for _, stack in stacks() for block in stack.blocks]
