"""Explain one computation of a run with its own numbers."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace

import torch

from ...core.spec import brief
from ...io.directories.adapters import load_adapter
from ...io.directories.layout import ADAPTER
from ...nn.layers.lora import layers, unmerge
from ...nn.models.transformer import TransformerModel
from ...runs.inference.loaded import LoadedModel
from ...runs.inference.score import target_ids
from ...runs.inference.uses import advice, kind_of, reads_text
from . import registry
from .explanation import Explanation
from .subject import Subject

WRITTEN = 24  # tokens of a translation that are explained if no target was given


def explain(
    name: str,
    run: LoadedModel | None = None,
    text: str | None = None,
    target: str | None = None,
    *,
    layer: int | None = None,
    head: int | None = None,
    token: int | None = None,
) -> Explanation:
    """Return one computation step by step: with the numbers of a run that reads a text, else of a worked example.

    `name` is one of `registry.EXPLANATIONS`, or a word of the field for it. `target` is the output of an encoder–decoder, by
    default its own. `layer`, `head` and `token` are indices from 0; the token is the one whose query is explained, by
    default the last. `lora`
    explains the adapter that a run was trained with. Raises ValueError for a name that is unknown or that the model has no
    numbers for, for indices out of range, and for a run without a text.
    """
    if run is None:
        if not text and target is None and layer is head is token is None:
            return registry.explain(name)
        raise ValueError(
            "a text is explained with the numbers of a run; give both, or only the name for a worked example"
        )
    if not isinstance(run, LoadedModel):
        raise ValueError(f"run is a trained run, as qkv.load gives it, not {type(run).__name__}")
    if text is None:
        raise ValueError(f"give the text whose numbers in {run.name} are shown")
    adapted = _with_adapter(run) if registry.resolved(name) == "lora" and not layers(run.model) else run
    return registry.explain(name, subject(adapted, text, target, layer, head, token))


def _with_adapter(run: LoadedModel) -> LoadedModel:
    """Return a run whose adapter, merged into its weights, is beside them again. Raises ValueError if it was not kept."""
    folder = None if run.path is None else run.path / ADAPTER
    if folder is None or not folder.is_dir() or not isinstance(run.model, TransformerModel):
        if run.recipe is not None and run.recipe.adapter is not None:
            raise ValueError(
                f"{run.name} was trained with a LoRA adapter, which is merged into its weights and was not saved by itself "
                "(models that match a Hub family keep it); run qkv explain lora without --run"
            )
        return run
    model = load_adapter(deepcopy(run.model), folder)
    for layer in layers(model).values():
        layer.merged = True  # the weights of a run hold its adapter already
    unmerge(model)
    return replace(run, model=model.eval())


def subject(
    run: LoadedModel,
    text: str,
    target: str | None = None,
    layer: int | None = None,
    head: int | None = None,
    token: int | None = None,
) -> Subject:
    """Return what is explained: the run's model with the tokens of a text."""
    if not reads_text(run):
        raise ValueError(
            f"{run.name} is {kind_of(run)} and reads no text, so no text of it can be explained; {advice(run)}"
        )
    ids = run.encode(text)
    if not ids:
        raise ValueError(f"the text {brief(text)} has no tokens; give a longer one")
    tokenizer, reader = run.words, run.reader
    pairs = run.model.is_encoder_decoder
    if target is not None and not pairs:
        raise ValueError(f"{run.name} reads one text; --target is for encoder–decoders, leave it out")
    starts = [] if run.start is None else [run.start]
    written = _target(run, text, target) if pairs else []
    quoted = text if len(text) <= 60 else f"{text[:59]}…"
    return Subject(
        name=run.name,
        about=f"Numbers of {run.title} for the text “{quoted}”.",
        model=run.model,
        ids=tuple(ids),
        tokens=tuple(reader.tokens(ids)),
        target=tuple([*starts, *written] if pairs else ()),
        target_tokens=tuple(tokenizer.tokens([*starts, *written]) if pairs else ()),
        text=text,
        reader=reader,
        writer=tokenizer,
        layer=layer,
        head=head,
        token=token,
        start=run.start if pairs else None,
        ends=tuple(run.ends),
        generation=run.generation,
        processors=tuple(run.processors([ids], run.generation)),
    )


@torch.no_grad()
def _target(run: LoadedModel, text: str, target: str | None) -> list[int]:
    """The ids of the target, without the token that ends it: those given, or the model's own greedy output."""
    if target is not None:
        ids = target_ids(run, target)
    else:
        settings = run.generation.replace({"max_new_tokens": WRITTEN, "num_beams": 1, "num_samples": 1})
        ids = run.generated([run.encode(text)], settings, ()).sequences[0][0]
    return ids[:-1] if ids and ids[-1] in run.ends else ids
