"""A panel of the texts that excite a neuron of a feed-forward layer the most, from held-out examples or given texts."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import torch
from torch import Tensor

from ....core.layout import Layout
from ....core.spec import brief
from ....look.analysis.neurons import Excitation, strongest
from ....look.view.labels import token_labels
from ....look.view.panels import ExcitedText, Panel, texts_panel
from ....nn.activations import record, sites
from ..held_out import batches
from ..loaded import LoadedModel
from ..uses import kind_of, reads_text
from .passes import forward_pass, recorded_calls

SHOWN = 10  # texts
EXAMPLES = 256  # held-out examples that are read
BEFORE, AFTER = 20, 11  # tokens around the one that excites a neuron the most
_NEURON = re.compile(r"(?:(encoder|decoder)\.)?(\d+)\.(\d+)")


def neuron_panel(run: LoadedModel, neuron: str, texts: Sequence[str] | None = None) -> Panel:
    """Return the texts that excite a neuron the most, with its activation at every token.

    `neuron` is LAYER.INDEX, in the encoder if there is one, or STACK.LAYER.INDEX. `texts` are the texts to choose from, by
    default the first 256 examples of the run's validation split; of an encoder–decoder the texts are sources.

    Raises ValueError for a neuron that the model does not have, and for models that read no texts.
    """
    stack, layer, index = _parsed(run, neuron)
    site = f"{stack}.layers.{layer}.feedforward.neurons"
    _check(run, neuron, site)
    read: list[list[int]] = []

    def passes() -> Iterator[tuple[Tensor, Layout | None]]:
        for call in _calls(run, texts):
            with torch.inference_mode(), record(run.model, site) as activations, recorded_calls(run.model) as recorded:
                call()
            ids, layout = recorded[stack].args[:2]
            read.extend(ids.tolist())
            yield activations[site], layout

    best = strongest(passes(), index, site, SHOWN)
    reader = run.reader if stack == "encoder" else run.words
    source = "given texts" if texts is not None else "examples of the validation split"
    panel = texts_panel(
        f"Neuron {index} of {stack} layer {layer}",
        [_excited(one, token_labels(reader, read[one.text][: len(one.values)])) for one in best],
        note=f"{len(best)} of {len(read):,} {source}, by the largest activation. The shade of each token, and the "
        "number below, is its activation; the largest is framed.",
    )
    return panel | {"neuron": f"{stack}.{layer}.{index}"}


def _parsed(run: LoadedModel, neuron: str) -> tuple[str, int, int]:
    """Stack, layer and index of a neuron's name."""
    match = _NEURON.fullmatch(neuron.strip())
    if match is None:
        raise ValueError(f"a neuron is LAYER.INDEX, such as 1.17, or decoder.1.17, not {brief(neuron)}")
    usual = "decoder" if getattr(run.model.spec, "encoder", None) is None else "encoder"
    return match[1] or usual, int(match[2]), int(match[3])


def _check(run: LoadedModel, neuron: str, site: str) -> None:
    """Raise ValueError if the run reads no texts, or its model has no such layer."""
    if not reads_text(run):
        raise ValueError(f"texts excite neurons of models that read texts, and {run.name} is {kind_of(run)}")
    layers = [name for name in sites(run.model) if name.endswith(".feedforward.neurons")]
    if site not in layers:
        known = [name.replace("layers.", "").removesuffix(".feedforward.neurons") for name in layers]
        index = neuron.rpartition(".")[2].strip()
        near = difflib.get_close_matches(neuron.rpartition(".")[0], known, n=3, cutoff=0.0)
        there = (
            "choose " + " or ".join(f"{layer}.{index}" for layer in near) if near else "none of its layers has neurons"
        )
        raise ValueError(f"{run.name} has no layer of neuron {neuron}; {there}")


def _calls(run: LoadedModel, texts: Sequence[str] | None) -> Iterator[Callable[[], object]]:
    """Functions that run the model over each text, or over batches of held-out examples."""
    if texts is not None:
        given = [text for text in texts if text.strip()]
        if not given:
            raise ValueError("there are no texts to choose from; give some that are not blank")
        yield from (forward_pass(run, text).run for text in given)
        return
    if run.recipe is None:
        raise ValueError(
            f"{run.name} has no recipe.yaml, which names its data; give texts to choose from (--texts FILE)"
        )
    for batch in batches(run, "validation", EXAMPLES):
        yield partial(run.model, **batch.inputs)


def _excited(one: Excitation, labels: Sequence[str]) -> ExcitedText:
    """The tokens around the one that excites the most."""
    start, stop = max(0, one.position - BEFORE), one.position + AFTER + 1
    return ExcitedText(
        tuple(labels[start:stop]),
        one.values[start:stop],
        one.position - start,
        cut_before=start > 0,
        cut_after=stop < len(labels),
    )
