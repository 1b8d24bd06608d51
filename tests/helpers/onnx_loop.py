"""Decode with exported ONNX graphs by onnxruntime and NumPy alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray

Array = NDArray[Any]
Choose = Callable[[Array], Array]  # the next token of each row, from its logits


def greedy(logits: Array) -> Array:
    return logits.argmax(-1)


def session(folder: Path, name: str = "model") -> onnxruntime.InferenceSession:
    return onnxruntime.InferenceSession(str(folder / f"{name}.onnx"))


def run(graph: onnxruntime.InferenceSession, feed: dict[str, Array]) -> dict[str, Array]:
    names = [output.name for output in graph.get_outputs()]
    return dict(zip(names, graph.run(names, feed), strict=True))


def continued(folder: Path, prompts: Sequence[Sequence[int]], count: int, choose: Choose = greedy) -> list[list[int]]:
    """`count` new tokens of each prompt, with the prompts padded on the left."""
    graph, width = session(folder), max(map(len, prompts))
    ids = np.array([[0] * (width - len(row)) + list(row) for row in prompts])
    mask = np.array([[0] * (width - len(row)) + [1] * len(row) for row in prompts])
    positions = np.maximum(mask.cumsum(1) - 1, 0)
    past = {
        one.name: np.zeros((len(prompts), one.shape[1], 0, one.shape[3]), np.float32)
        for one in graph.get_inputs()
        if one.name.startswith("past_key_values")
    }
    new = []
    for _ in range(count):
        out = run(graph, {"input_ids": ids, "attention_mask": mask, "position_ids": positions, **past})
        ids = choose(out.pop("logits")[:, -1])[:, None]
        new.append(ids)
        past = {name.replace("present", "past_key_values"): tensor for name, tensor in out.items()}
        mask = np.concatenate([mask, np.ones_like(ids)], 1)
        positions = positions[:, -1:] + 1
    return np.concatenate(new, 1).tolist()


def translated(folder: Path, source: Array, mask: Array | None, bos: int, count: int) -> list[list[int]]:
    """`count` tokens of each target, greedily."""
    encoder, first, later = (session(folder, f"{name}_model") for name in ("encoder", "decoder", "decoder_with_past"))
    inputs = {"pixel_values": source} if mask is None else {"input_ids": source, "attention_mask": mask}
    masks = {} if mask is None else {"encoder_attention_mask": mask}
    memory = run(encoder, inputs)["last_hidden_state"]
    ids, past, new = np.full((len(source), 1), bos), {}, []
    for _ in range(count):
        more = past or {"encoder_hidden_states": memory}
        out = run(later if past else first, {"input_ids": ids, **masks, **more})
        ids = out.pop("logits")[:, -1].argmax(-1)[:, None]
        new.append(ids)
        past = past | {name.replace("present", "past_key_values"): tensor for name, tensor in out.items()}
    return np.concatenate(new, 1).tolist()
