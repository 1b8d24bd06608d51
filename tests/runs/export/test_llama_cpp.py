"""llama.cpp itself: the files that are written give the same tokens for a text, the same logits and the same continuation.

Runs if the environment variable LLAMA_CPP_PYTHON names a Python that has llama-cpp-python (or cyllama):

    LLAMA_CPP_PYTHON=/path/to/venv/bin/python pytest -m slow tests/runs/export/test_llama_cpp.py
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch
from encoder_folders import KINDS, encoder
from encoder_folders import TEXTS as WORDS
from gguf_models import CASES, made, origin_of, pieces, trained

from qkv.io.directories.build import build
from qkv.io.families import preset
from qkv.runs.export.gguf import save
from qkv.runs.inference.run import Run, load

PYTHON = os.environ.get("LLAMA_CPP_PYTHON")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(PYTHON is None, reason="LLAMA_CPP_PYTHON names no Python with llama-cpp-python"),
]
NEW = 12
APART = {"f32": 2e-2, "bf16": 3e-2, "q8_0": 8e-2, "q4_0": 0.15}
"""The relative distance of logits: llama.cpp rounds the cache and GELU to fp16, and activations to 8 bits."""


def ask(jobs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    assert PYTHON is not None
    peer = Path(__file__).with_name("llama_cpp_peer.py")
    done = subprocess.run([PYTHON, str(peer)], input=json.dumps(jobs), capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-2000:]
    answers: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])["answers"]
    return answers


@torch.no_grad()
def ours(model: Any, ids: list[int]) -> tuple[list[int], torch.Tensor]:
    """New tokens by the largest logit, and the logits after the given ones."""
    ids, first = list(ids), None
    for _ in range(NEW):
        logits = model(torch.tensor([ids]))[0, -1].float()
        first = logits if first is None else first
        ids.append(int(logits.argmax()))
    assert first is not None
    return ids[-NEW:], first


def distance(theirs: list[float] | None, logits: torch.Tensor) -> float:
    """The relative distance of logits; 0 if the peer gives none."""
    return 0.0 if theirs is None else float((torch.tensor(theirs) - logits).norm() / logits.norm())


def close_calls(model: Any, ids: list[int], new: list[int], apart: float) -> bool:
    """Whether tokens differ only if the two largest logits are nearer than rounding."""
    with torch.no_grad():
        logits = model(torch.tensor([[*ids, *new]]))[0, len(ids) - 1 : -1].float()
    chosen = logits.gather(1, torch.tensor(new)[:, None])[:, 0]
    return bool(((logits.amax(1) - chosen) <= 2 * apart * logits.std(1)).all())


def test_every_architecture_continues_alike(tmp_path: Path) -> None:
    ids = torch.randint(96, (9,), generator=torch.Generator().manual_seed(1)).tolist()
    jobs, models = [], []
    for i, name in enumerate(CASES):
        models.append(made(name))
        path = save(models[-1], tmp_path / f"{i}.gguf", "f32", origin=origin_of(name))
        jobs.append({"file": str(path), "text": ids, "new": NEW})
    wrong = []
    for name, model, answer in zip(CASES, models, ask(jobs), strict=True):
        if "error" in answer:
            wrong.append((name, answer["error"]))
            continue
        new, logits = ours(model, ids)
        apart = distance(answer["logits"], logits)
        print(f"{name:32} logits {apart:.1e} apart, {'the same' if new == answer['new'] else 'other'} tokens")
        same = new == answer["new"] or close_calls(model, ids, answer["new"], APART["f32"])
        if apart > APART["f32"] or not same:
            wrong.append((name, f"logits {apart:.1e} apart, tokens {new} and {answer['new']}"))
    assert not wrong, "\n".join(f"{name}: {what}" for name, what in wrong)


@pytest.mark.parametrize("kind", ["bf16", "q8_0", "q4_0"])
def test_quantized_files_continue_alike(kind: str, tmp_path: Path) -> None:
    """qkv reads its own file: both sides have the quantized numbers."""
    words = trained()
    model = build(
        preset("llama", vocab_size=300, d_model=64, n_layers=3, n_heads=4, d_ff=128, max_positions=64), seed=2
    )
    path = save(model.eval(), tmp_path / "m.gguf", kind, tokenizer=words)
    run = load(path, "cpu")
    (answer,) = ask([{"file": str(path), "text": "the cat sat", "new": NEW}])
    ids = run.encode("the cat sat")
    assert answer["tokens"] == ids
    new, logits = ours(run.model, ids)
    assert distance(answer["logits"], logits) < APART[kind]
    assert new == answer["new"] or close_calls(run.model, ids, answer["new"], APART[kind])


@pytest.mark.parametrize(("weights", "kind"), [("int8", "q8_0"), ("int4", "q4_0")])
def test_quantized_runs_continue_alike(weights: Any, kind: str, tmp_path: Path) -> None:
    """The codes are the run's, whose scales are rounded to fp16 there."""
    words = trained()
    model = build(
        preset("llama", vocab_size=300, d_model=64, n_layers=3, n_heads=4, d_ff=128, max_positions=64), seed=2
    )
    small = Run(model.eval(), words, task="continue").quantize(weights, group_size=32)
    path = save(small.model, tmp_path / "m.gguf", tokenizer=words)
    (answer,) = ask([{"file": str(path), "text": "the cat sat", "new": NEW}])
    ids = load(path, "cpu").encode("the cat sat")
    assert answer["tokens"] == ids
    new, logits = ours(small.model, ids)
    assert distance(answer["logits"], logits) < APART[kind]
    assert new == answer["new"] or close_calls(small.model, ids, answer["new"], APART[kind])


TEXTS = [
    "the cat's hats, and 12345 mats!",
    "  two  spaces\n\n\tand lines ",
    "naïve Straße 🙂 中文",
    "</s> <de> <s>x",
    "'S it's I'M",
]


@pytest.mark.parametrize("kind", ["byte-level", "bpe", "unigram"])
def test_texts_become_the_same_tokens(kind: str, tmp_path: Path) -> None:
    words = trained() if kind == "byte-level" else pieces(kind == "unigram")
    model = build(preset("gpt2", vocab_size=320, d_model=64, n_layers=1, n_heads=4, max_positions=64), seed=2)
    path = save(model.eval(), tmp_path / "m.gguf", tokenizer=words)
    run = load(path, "cpu")
    answers = ask([{"file": str(path), "text": text, "new": 0} for text in TEXTS])
    for text, answer in zip(TEXTS, answers, strict=True):
        assert answer["tokens"] == run.encode(text) == [words.bos_id, *words.encode(text)], text


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.filterwarnings("ignore:GGUF holds encoders for embeddings")
def test_encoders_embed_alike(kind: str, tmp_path: Path) -> None:
    run = load(encoder(kind, tmp_path / "hub"), "cpu")
    path = tmp_path / "m.gguf"
    save(run.model, path, "f32", tokenizer=run.tokenizer, task="read", origin=run.origin, pooling="mean")
    again = load(path, "cpu")
    for text, answer in zip(WORDS, ask([{"file": str(path), "embed": text} for text in WORDS]), strict=True):
        assert answer["tokens"] == run.encode(text), text
        (vector,) = again.embed([text])
        assert float((torch.tensor(answer["vector"]) - vector).norm() / vector.norm()) < 1e-3
