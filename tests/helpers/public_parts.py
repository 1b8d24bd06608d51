"""Public functions that work on values rather than runs, with arguments that they take; and values of wrong types."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from run_untrained import of, words

import qkv
from qkv import data
from qkv.core.layout import Layout
from qkv.core.metrics import (
    average_precision,
    baselines,
    bootstrap,
    classification,
    correlation,
    display,
    entities,
    intersection_over_union,
    pictures,
    retrieval,
    squad,
    text,
)
from qkv.generation import generate, row_seed, score
from qkv.look import attention_maps
from qkv.look.analysis import head_scores, logit_lens, neurons, patching, position_criteria
from qkv.look.gradient_reach import reach
from qkv.look.pictures import draws
from qkv.nn.activations import intervene, record
from qkv.nn.cost.kv_cache import cache_bytes
from qkv.nn.layers.patches import masked_layout

Call = tuple[Callable[..., Any], dict[str, Any]]
WRONG: tuple[Any, ...] = (
    *(None, 3, -1, 2.5, float("nan"), 10**30, True, "ab", b"ab", Path("ab"), [None], ["ab", 3], ("a",), {"a": 1}, {3}),
    *(object(), torch.zeros(2, 2), torch.zeros(2, 2, dtype=torch.long), torch.zeros(()), np.zeros(2)),
)


@cache
def model() -> Any:
    return of("gpt2", words(), "continue").model


@cache
def recorded() -> Any:
    with qkv.record_attention() as requests:
        model()(ids=torch.tensor([[3, 4]]))
    return requests[0]


def layouts() -> dict[str, Call]:
    layout = Layout.full(3)
    return {
        "Layout": (Layout, {"positions": torch.zeros(1, 3, 1, dtype=torch.long)}),
        "Layout, used": (
            lambda **given: Layout(**given).keys(),
            {"positions": torch.zeros(1, 3, dtype=torch.long), "segments": None, "roles": None},
        ),
        "Layout.full": (Layout.full, {"length": 3, "start": 0, "device": "cpu"}),
        "Layout.from_lengths": (Layout.from_lengths, {"lengths": [1, 2], "width": 3, "side": "left", "device": "cpu"}),
        "Layout.from_mask": (Layout.from_mask, {"mask": torch.ones(1, 3)}),
        "Layout.packed": (Layout.packed, {"rows": [[1, 2]], "width": 3, "device": "cpu"}),
        "Layout.select": (Layout.from_lengths([1, 2]).select, {"rows": torch.tensor([0])}),
        "Layout.slice": (layout.slice, {"start": 0, "stop": 1}),
        "Layout.with_global": (layout.with_global, {"mask": torch.ones(1, 3)}),
        "Layout.to": (layout.to, {"device": "cpu"}),
        "masked_layout": (
            masked_layout,
            {"grid": qkv.Patches(image=(4, 4), patch=(2, 2)).grid, "noise": torch.rand(1, 4), "masked": 0.5},
        ),
        "Batch": (qkv.Batch, {"inputs": {}, "counts": {}, "tokens": 0, "slots": 0, "position": {}, "targets": {}}),
        "Batch.to": (qkv.Batch({"ids": torch.zeros(1, 2)}).to, {"device": "cpu"}),
    }


def measures() -> dict[str, Call]:
    outputs: dict[str, Any] = {"outputs": ["a b", "c"], "references": ["a b", "c"]}
    picture = {"made": np.ones((1, 12, 12)), "truth": np.zeros((1, 12, 12))}
    table = np.array([[2, 1], [0, 3]])
    return {
        **{
            name: (getattr(text, name), outputs)
            for name in ("exact_match", "chrf", "chrf_plus_plus", "ter", "word_error_rate", "character_error_rate")
        },
        "bleu": (text.bleu, {**outputs, "tokenize": "13a", "sentence": False}),
        "rouge": (text.rouge, {**outputs, "what": "rouge1"}),
        "perplexity": (text.perplexity, {"nll": 1.0, "count": 2}),
        "bits_per_byte": (text.bits_per_byte, {"nll": 1.0, "size": 2}),
        "psnr": (pictures.psnr, picture),
        "ssim": (pictures.ssim, picture),
        "squad.exact": (squad.exact, {"answer": "a", "truths": ["a"]}),
        "squad.token_f1": (squad.token_f1, {"answer": "a", "truths": ["a"]}),
        "f1": (classification.f1, {"table": table}),
        "mcc": (classification.mcc, {"table": table}),
        "ious": (intersection_over_union.ious, {"confusion": table}),
        "correlations": (correlation.correlations, {"truth": [1.0, 2.0], "predicted": [1.0, 3.0]}),
        "scheme_of": (entities.scheme_of, {"tags": ["B-X", "I-X", "O"]}),
        "entities": (entities.entities, {"tags": ["B-X"], "scheme": "iob2"}),
        "agreement": (entities.agreement, {"predicted": [["B-X"]], "true": [["B-X"]], "scheme": "iob2"}),
        "ranks_of": (retrieval.ranks_of, {"blocks": [torch.rand(1, 3)], "relevant": [[1]]}),
        "metrics_of": (retrieval.metrics_of, {"ranks": [[1]], "documents": 3}),
        "naive_bayes": (baselines.naive_bayes, {"texts": ["a b", "c"], "labels": ["x", "y"], "new": ["a"]}),
        "ridge": (baselines.ridge, {"texts": ["a b", "c"], "numbers": [1.0, 2.0], "new": ["a"]}),
        "paired_bootstrap": (
            bootstrap.paired_bootstrap,
            {"metric": "exact_match", "outputs": [["a"]], "baseline": [["b"]], "references": ["a"]},
        ),
        "display_of": (display.display_of, {"name": "bleu"}),
        "average_precision": (
            average_precision.average_precision,
            {"images": [{"id": 0}], "truths": [], "detections": [], "classes": 1},
        ),
    }


def looks() -> dict[str, Call]:
    ids = torch.tensor([[3, 4, 5]])
    batches = lambda batches: neurons.top_texts(model(), batches, 0, k=1)  # noqa: E731
    return {
        "attention": (
            attention_maps.attention,
            {"model": model(), "ids": ids, "heads": [0], "rows": [0], "choose": None},
        ),
        "head_scores": (head_scores.head_scores, {"model": model(), "ids": ids}),
        "scores_of": (head_scores.scores_of, {"requests": []}),
        "induction_scores": (head_scores.induction_scores, {"model": model(), "length": 4, "batch": 1, "seed": 0}),
        "logit_lens": (logit_lens.logit_lens, {"model": model(), "ids": ids, "top_k": 1, "positions": [0]}),
        "top_texts": (neurons.top_texts, {"model": model(), "batches": [(ids, None)], "neuron": 0, "k": 1}),
        "top_texts, batches": (batches, {"batches": [(ids, None)]}),
        "activation_patching": (
            patching.activation_patching,
            {"model": model(), "clean": [ids], "corrupted": [ids + 1], "metric": patching.logit_difference(1, 2)},
        ),
        "logit_difference": (
            lambda answer, other, position: patching.logit_difference(answer, other, position)(torch.zeros(1, 3, 9)),
            {"answer": 1, "other": 2, "position": -1},
        ),
        "position_criteria": (position_criteria.position_criteria, {"scheme": qkv.ALiBi()}),
        "rises": (position_criteria.rises, {"values": [1.0, 2.0], "tolerance": 0.0}),
        "reach": (reach, {"model": model(), "ids": ids, "seed": 0}),
        "draws": (lambda cls: draws(cls), {"cls": int}),
        "record": (lambda model, names: record(model, names).__enter__(), {"model": model(), "names": "*"}),
        "intervene": (lambda model, changes: intervene(model, changes).__enter__(), {"model": model(), "changes": {}}),
    }


def others() -> dict[str, Call]:
    source, tokenizer = data.Copy(train=9, validation=2, test=2), words()
    given = {
        "source": source,
        "tokenizer": tokenizer,
        "batching": data.Batching(tokens=1024, workers=0),
        "seq2seq": True,
    }

    def stream(**given: Any) -> Any:
        with data.stream(**given) as batches:
            return next(batches)

    cache = lambda **given: model().start(**{"batch_size": 1, **given})  # noqa: E731
    q = torch.zeros(1, 2, 1, 8)
    return {
        "stream": (
            stream,
            {**given, "split": "train", "seed": 0, "position": None, "epochs": 1, "length": None, "task": None},
        ),
        "model.start": (cache, {"batch_size": 1, "capacity": 4, "cache": qkv.FullCache()}),
        "Cache.reorder": (lambda rows: cache().reorder(rows), {"rows": torch.tensor([0])}),
        "Cache.rewind": (lambda n: cache().rewind(n), {"n": 0}),
        "Cache.crop": (lambda n: cache().crop(n), {"n": 0}),
        "Cache.save": (lambda path: cache().save(path), {"path": "cache.safetensors"}),
        "Cache.load": (
            lambda path: (cache().save("cache.safetensors"), cache().load(path)),
            {"path": "cache.safetensors"},
        ),
        "Cache.fork": (lambda rows: cache().fork(rows), {"rows": torch.tensor([0])}),
        "generate": (
            lambda **given: generate(model(), **given),
            {
                "ids": [[3, 4]],
                "max_new_tokens": 1,
                "layout": None,
                "attention_mask": None,
                "settings": None,
                "bos_id": None,
                "eos_id": None,
                "stop": None,
                "stream": None,
                "processors": (),
                "seeds": None,
            },
        ),
        "score": (lambda ids: score(model(), ids), {"ids": [[3, 4]]}),
        "Spec.replace": (lambda changes: model().spec.replace(changes), {"changes": {}}),
        "Spec.diff": (model().spec.diff, {"other": model().spec}),
        "Spec.from_dict": (type(model().spec).from_dict, {"data": model().spec.to_dict()}),
        "Spec.from_json": (type(model().spec).from_json, {"text": model().spec.to_json()}),
        "Pattern.save_picture": (qkv.causal().save_picture, {"path": "x.svg", "n": 2, "cell": 2}),
        "row_seed": (row_seed, {"seed": 1, "row": 2}),
        "build, seed": (lambda seed: qkv.build(model().spec, seed=seed), {"seed": 0}),
        "weights": (lambda request: qkv.weights(request), {"request": recorded()}),
        "cache_bytes": (cache_bytes, {"spec": model().spec, "tokens": 4}),
        "attend": (
            lambda **given: qkv.attend(q, q, q, **given),
            {
                "scale": 1.0,
                "dropout": 0.0,
                "softcap": 1.0,
                "backend": "reference",
                "name": "",
                "sinks": torch.zeros(1),
                "return_lse": False,
                "clean": False,
                "score": None,
                "weighting": None,
                "observe": None,
                "plan": None,
                "pattern": qkv.causal(),
                "layout": Layout.full(2),
                "kv_layout": Layout.full(2),
                "bias": torch.zeros(2, 2),
            },
        ),
        "model": (lambda ids, layout: model()(ids=ids, layout=layout), {"ids": torch.tensor([[1]]), "layout": None}),
    }


@cache
def parts() -> dict[str, Call]:
    return {**layouts(), **measures(), **looks(), **others()}
