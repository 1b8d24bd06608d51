"""A directory of the Hub with random weights, made on first use, and the plain reading of its file."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import torch

FOLDER = Path(__file__).resolve().parent.parent / ".data"

# 1.5 billion parameters each: one whose tensors are ours as they are, and one whose matrices stand on their side.
LLAMA = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 32000,
    "hidden_size": 2048,
    "intermediate_size": 6144,
    "num_hidden_layers": 30,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "tie_word_embeddings": True,
}
GPT2 = {
    "model_type": "gpt2",
    "architectures": ["GPT2LMHeadModel"],
    "vocab_size": 50257,
    "n_positions": 1024,
    "n_embd": 1600,
    "n_layer": 48,
    "n_head": 25,
}
TINY_LLAMA = {  # the shape of TinyLlama 1.1 B
    **LLAMA,
    "intermediate_size": 5632,
    "num_hidden_layers": 22,
    "num_attention_heads": 32,
    "tie_word_embeddings": False,
}
MODELS: dict[str, dict[str, Any]] = {
    "llama, 1.1 B": TINY_LLAMA,
    "llama, 1.5 B": LLAMA,
    "GPT-2 XL": GPT2,
    "tiny llama": {**LLAMA, "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 1, "vocab_size": 64},
}


def place(model: str) -> Path:
    """Where a model lies, or is to lie."""
    return FOLDER / model.lower().replace(", ", "-").replace(" ", "-")


def directory(model: str) -> Path:
    """Where the model lies; it is made if it isn't there yet."""
    folder = place(model)
    if not (folder / "config.json").exists():
        from qkv.io.directories.build import build
        from qkv.io.families import FAMILIES
        from qkv.runs.inference.run import Run

        spec = FAMILIES[MODELS[model]["model_type"]].spec(MODELS[model])
        Run(build(spec, seed=0), None, task="continue").save(folder, to="hub", max_shard_size="100GB")
    return folder


class Reading:
    """The bytes of the file into fresh memory, and nothing else: what any loading has to do at least."""

    def __init__(self, model: str) -> None:
        self.file = directory(model) / "model.safetensors"
        self.facts = {"parameters": parameters(self.file), "bytes": self.file.stat().st_size}

    def __call__(self) -> None:
        room = memoryview(torch.empty(self.file.stat().st_size, dtype=torch.uint8).numpy())  # type: ignore[arg-type]
        with self.file.open("rb", buffering=0) as file:
            while len(room):
                room = room[file.readinto(room) :]


class Ours:
    """`qkv.load`, and one look at every page of the weights."""

    def __init__(self, model: str) -> None:
        self.folder = directory(model)
        self.facts = {"parameters": parameters(self.folder / "model.safetensors")}

    def __call__(self) -> None:
        import qkv

        look(qkv.load(self.folder, device="cpu").model)


class Theirs:
    """`AutoModelForCausalLM.from_pretrained`, and one look at every page of the weights."""

    def __init__(self, model: str) -> None:
        os.environ["HF_HUB_OFFLINE"] = "1"
        self.folder = place(model)  # made by the others: there is no qkv here
        self.facts = {"parameters": parameters(self.folder / "model.safetensors")}

    def __call__(self) -> None:
        from transformers import AutoModelForCausalLM

        model = AutoModelForCausalLM.from_pretrained(self.folder, dtype=torch.float32)
        look(model)


def look(model: torch.nn.Module) -> None:
    """Touch every page: what is only mapped so far comes into memory."""
    for parameter in model.parameters():
        parameter.detach().view(-1)[::1024].sum()


def parameters(file: Path) -> int:
    """By the header of a safetensors file."""
    with file.open("rb") as opened:
        header = json.loads(opened.read(int.from_bytes(opened.read(8), "little")))
    shapes = [entry["shape"] for name, entry in header.items() if name != "__metadata__"]
    return sum(int(torch.tensor(shape).prod()) for shape in shapes)
