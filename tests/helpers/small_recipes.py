"""A recipe for each task with settings for little data, and what it makes before training: task, model and batches."""

from __future__ import annotations

import itertools
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, NamedTuple

import qkv
from qkv.core.batch import Batch
from qkv.data.loader.stream import stream
from qkv.data.tokenizers.tokenizer import Tokenizer
from qkv.runs.recipes.recipe import Recipe
from qkv.runs.train.tokenizer import make

SMALL = [
    *("training.max_steps=1", "training.eval_every=1", "training.save_every=1", "training.schedule.warmup=1"),
    *("model.d_model=16", "model.n_layers=1", "model.n_heads=2", "model.d_ff=16", "training.final=last"),
    *("evaluation.examples=4", "evaluation.test_examples=4", "evaluation.samples=2"),
]
FEW = ["data.train=24", "data.validation=4", "data.test=4"]
NARROW_DECODER = ["model.decoder_width=16", "model.decoder_heads=2", "model.decoder_d_ff=16"]
NARROW_TEXT = [
    "model.text_d_model=16",
    "model.text_layers=1",
    "model.text_heads=2",
    "model.text_d_ff=16",
    "model.width=8",
]
WORDS = ["data.train=60", "data.validation=6", "data.test=6", "batching.tokens=1024"]
PIECES = [*WORDS, "tokenizer.vocab_size=300"]
TEXT = ["data={kind: text, path: TEXT, documents: block, shares: [0.4, 0.3, 0.3]}", "tokenizer.vocab_size=300"]
PRETRAINING = [*TEXT, "batching.context=48", "batching.tokens=384"]
REGRESSION = ["task.kind=regress", "head.kind=sequence-classifier", "head.pool=first", "objective.kind=labels"]

# A recipe for each task, with settings for little data that a test makes.
RECIPES: dict[str, tuple[str, list[str]]] = {
    "answer": ("answer", [*WORDS, "task.longest=40", "task.overlap=8"]),
    "caption": ("caption", FEW),
    "see": ("see", FEW),
    "choice": ("choose", PIECES),
    "classify": ("classify", PIECES),
    "denoising": ("bart", PRETRAINING),
    "detect": ("detect", FEW),
    "forecast": ("forecast", ["data.length=600", "data.stride=24"]),
    "image-classify": ("vit", []),
    "masked-language-model": ("bert", [*PRETRAINING, 'task.ends=["."]']),
    "masked-patches": ("mae", []),
    "omni": ("omni", [*FEW, "data.sounds.train=20"]),
    "music": ("music", ["data.train=60", "task.prompt=6", "task.goes_on=5"]),
    "prefix-language-model": ("prefix", PRETRAINING),
    "recognize": (
        "recognize",
        [*FEW, "model.mels=8", "model.decoder_layers=1", "data.longest=2", "task.max_length=24"],
    ),
    "recognize-ctc": ("recognize-ctc", [*FEW, "model.mels=8", "data.longest=2"]),
    "regress": ("similarity", [*PIECES, *REGRESSION]),
    "replaced-tokens": ("electra", [*PRETRAINING, "model.embedding_size=12", "head.generator=0.5"]),
    "restore": ("restore", [*FEW, *NARROW_DECODER]),
    "retrieve": ("clip", [*FEW, *NARROW_TEXT]),
    "segment": ("segment", FEW),
    "similarity": ("similarity", PIECES),
    "sound": ("speech", FEW),
    "span-corruption": ("t5", [*PRETRAINING, "model.d_head=8", "task.sentinels=16"]),
    "tag": ("tag", [*WORDS, "task.longest=16"]),
    "upscale": ("upscale", [*FEW, *NARROW_DECODER]),
    "video-classify": ("video", FEW),
}


def write_text(path: Path) -> None:
    lines = (
        f"the {animal} is {n} years old. it likes to sleep." for n in range(60) for animal in ("cat", "dog", "hen")
    )
    path.write_text("\n\n".join(lines), encoding="utf-8")


class Prepared(NamedTuple):
    """What a recipe makes before training."""

    recipe: Recipe
    tokenizer: Tokenizer | None
    model: Any
    batches: list[Batch]


@cache
def prepared(kind: str) -> Prepared:
    """The small recipe of a task, its tokenizer, its model and two batches for evaluation."""
    path = Path(mkdtemp()) / "text.txt"
    write_text(path)
    name, settings = RECIPES[kind]
    return prepare(name, [setting.replace("TEXT", str(path)) for setting in settings])


def prepare(name: str, settings: list[str]) -> Prepared:
    recipe = Recipe.load(name, [*SMALL, *settings])
    tokenizer = make(recipe)
    recipe = recipe.resolve_data(tokenizer)
    spec = recipe.model.spec(None if tokenizer is None else tokenizer.vocab_size)
    recipe = recipe.resolve(spec.vocab_size)
    batching = recipe.batching.replace(workers=0, pool=16)
    opened = stream(
        recipe.data,
        tokenizer,
        batching,
        seq2seq=spec.is_encoder_decoder,
        task=recipe.task,
        split="validation",
        epochs=1,
    )
    with opened as stream_:
        batches = list(itertools.islice(stream_, 2))
    return Prepared(recipe, tokenizer, qkv.build(spec, seed=0).eval(), batches)
