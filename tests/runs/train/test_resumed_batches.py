"""Every recipe's data are resumable: a stream opened at a batch's position continues with the very batch that came after it,
corruption and augmentation included."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils import _pytree

from qkv.core.batch import Batch
from qkv.data.loader.stream import stream
from qkv.runs.recipes.packaged import packaged
from qkv.runs.recipes.recipe import Recipe
from qkv.runs.train.tokenizer import make

FILES = ("ablate-table3", "chat", "lm", "nanogpt", "translate")  # which read the user's own
CORRUPTED = {
    "bert-words": ("bert", ["task.units=words", "task.next_sentence=false"]),
    "bert-spans": ("bert", ["task.units=spans"]),
    "mae-noise": ("mae", ["task.masked=0", "task.noise=0.3", "task.coarse=2"]),
    "vit-augmented": ("vit", ["task.mix=[mixup, cutmix]"]),
}
SLOW = {
    *("extrapolate", "long-range", "nanogpt", "stdlib", "localise", "listops", "bottleneck", "contextual", "reverse"),
    *("music", "summarize", "choose", "segment", "answer", "similarity", "protein"),
    *("recognize", "recognize-ctc", "clip", "omni"),
    *("ablate-attention", "ablate-heads", "ablate-norms", "ablate-parts"),  # they have the data of `localise`
}
LARGE = ["data.packages=[json]"]  # enough of the standard library


def cases() -> dict[str, tuple[str, list[str]]]:
    plain: dict[str, tuple[str, list[str]]] = {name: (name, []) for name in packaged() if name not in FILES}
    return plain | CORRUPTED


def tensors(batch: Batch) -> list[Tensor]:
    return [t for t in _pytree.tree_leaves((batch.inputs, batch.labels, batch.targets)) if isinstance(t, Tensor)]


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name in SLOW else ()) for name in cases()]
)
def test_a_stream_continues_where_it_was(name: str) -> None:
    recipe_name, settings = cases()[name]
    recipe = Recipe.load(recipe_name, settings)
    if recipe.data.kind == "stdlib":
        recipe = recipe.change(LARGE)
    tokenizer = make(recipe)
    recipe = recipe.resolve_data(tokenizer)
    size = None if tokenizer is None else tokenizer.vocab_size
    seq2seq = recipe.model.spec(size).is_encoder_decoder
    batching = recipe.batching.replace(workers=0)

    def take(count: int, position: dict[str, Any] | None = None) -> list[Batch]:
        options: Any = {"seq2seq": seq2seq, "task": recipe.task, "seed": recipe.seed, "position": position}
        with stream(recipe.data, tokenizer, batching, **options) as batches:
            return list(itertools.islice(batches, count))

    whole = take(5)
    for at in (0, 2):
        position = json.loads(json.dumps(whole[at].position))
        for before, again in zip(whole[at + 1 : at + 3], take(2, position), strict=True):
            mine, theirs = tensors(before), tensors(again)
            assert len(mine) == len(theirs) and all(map(torch.equal, mine, theirs))
    assert len({str([t.flatten()[:50].tolist() for t in tensors(batch)]) for batch in whole}) == 5
