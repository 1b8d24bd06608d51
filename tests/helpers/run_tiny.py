"""A run small enough to be trained in a test."""

from __future__ import annotations

import json
from pathlib import Path

from qkv.runs.recipes.recipe import Recipe
from qkv.runs.train.train import train

TINY = (
    "model.d_model=16",
    "model.d_ff=32",
    "model.n_layers=1",
    "model.n_heads=2",
    "batching.tokens=256",
    "data.longest=6",
    "data.train=300",
    "data.test=20",
    "data.validation=20",
    "training.max_steps=4",
    "training.eval_every=2",
    "training.save_every=2",
    "training.metric=loss",
    "training.mode=min",
    "generation.max_new_tokens=8",
)

LANGUAGE_MODEL = (
    "model.d_model=16",
    "model.n_layers=1",
    "model.n_heads=2",
    "tokenizer.vocab_size=300",
    "tokenizer.bos=null",  # so that there is no token to start from
    "batching.tokens=128",
    "batching.context=32",
    "training.max_steps=3",
    "training.eval_every=2",
    "training.save_every=2",
    "evaluation.examples=4",
    "evaluation.test_examples=4",
    "evaluation.samples=1",
    "generation.max_new_tokens=4",
    "generation.temperature=null",
    "generation.top_p=null",
)


def write_text(folder: Path) -> Path:
    """A small made text."""
    path = folder / "text.txt"
    path.write_text(
        "\n".join(f"the {w} is {n} years old\n" for n in range(60) for w in ("cat", "dog")), encoding="utf-8"
    )
    return path


def translator(folder: Path) -> Path:
    train(Recipe.load("reverse", TINY), folder / "reverse", device="cpu")
    return folder / "reverse"


def language_model(folder: Path) -> Path:
    settings = [*LANGUAGE_MODEL, f"data.path={write_text(folder)}", "data.documents=line"]
    train(Recipe.load("lm", settings), folder / "lm", device="cpu")
    return folder / "lm"


def write_chats(folder: Path) -> Path:
    """A small made file of conversations."""
    path = folder / "chats.jsonl"
    turns = [(f"{n} + 1?", str(n + 1)) for n in range(60)]
    chats = [
        [{"role": "user", "content": question}, {"role": "assistant", "content": answer}] for question, answer in turns
    ]
    path.write_text("".join(json.dumps({"messages": chat}) + "\n" for chat in chats), encoding="utf-8")
    return path


CHAT = (
    *(setting for setting in LANGUAGE_MODEL if not setting.startswith("tokenizer.bos")),
    "batching.context=64",
    "model.d_ff=32",
)


def assistant(folder: Path) -> Path:
    train(Recipe.load("chat", [*CHAT, f"data.path={write_chats(folder)}"]), folder / "chat", device="cpu")
    return folder / "chat"
