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


def nothing(rows: int, tensor: Any) -> Array:
    """The state before the first token: zeros, of length 0 along axes with a name."""
    return np.zeros([rows, *(0 if isinstance(size, str) else size for size in tensor.shape[1:])], np.float32)


def renamed(present: dict[str, Array]) -> dict[str, Array]:
    """What a pass has given, as inputs of the next."""
    return {name.replace("present", "past_key_values"): tensor for name, tensor in present.items()}


def continued(folder: Path, prompts: Sequence[Sequence[int]], count: int, choose: Choose = greedy) -> list[list[int]]:
    """`count` new tokens of each prompt, with the prompts padded on the left."""
    graph, width = session(folder), max(map(len, prompts))
    ids = np.array([[0] * (width - len(row)) + list(row) for row in prompts])
    mask = np.array([[0] * (width - len(row)) + [1] * len(row) for row in prompts])
    positions = np.maximum(mask.cumsum(1) - 1, 0)
    past = {
        one.name: nothing(len(prompts), one) for one in graph.get_inputs() if one.name.startswith("past_key_values")
    }
    new = []
    for _ in range(count):
        out = run(graph, {"input_ids": ids, "attention_mask": mask, "position_ids": positions, **past})
        ids = choose(out.pop("logits")[:, -1])[:, None]
        new.append(ids)
        past = renamed(out)
        mask = np.concatenate([mask, np.ones_like(ids)], 1)
        positions = positions[:, -1:] + 1
    return np.concatenate(new, 1).tolist()


def translated(folder: Path, source: Array, mask: Array | None, bos: int, count: int) -> list[list[int]]:
    """`count` tokens of each target, greedily."""
    encoder, first, later = (session(folder, f"{name}_model") for name in ("encoder", "decoder", "decoder_with_past"))
    inputs = {"pixel_values": source} if mask is None else {"input_ids": source, "attention_mask": mask}
    masks = {} if mask is None else {"encoder_attention_mask": mask}
    memory = run(encoder, inputs)["last_hidden_state"]
    asks_places = any(one.name == "position_ids" for one in later.get_inputs())
    ids, past, new = np.full((len(source), 1), bos), {}, []
    for i in range(count):
        places = {"position_ids": np.full((len(source), 1), i)} if past and asks_places else {}
        more = past or {"encoder_hidden_states": memory}
        out = run(later if past else first, {"input_ids": ids, **masks, **places, **more})
        ids = out.pop("logits")[:, -1].argmax(-1)[:, None]
        new.append(ids)
        past = past | renamed(out)
    return np.concatenate(new, 1).tolist()


def translated_recurrently(
    folder: Path, source: Array, mask: Array, bos: int, count: int, choose: Choose = greedy
) -> list[list[int]]:
    """`count` tokens of each target, by a recurrent model's two graphs."""
    encoder, decoder = (session(folder, f"{name}_model") for name in ("encoder", "decoder"))
    masks = {one.name: mask for one in decoder.get_inputs() if one.name == "encoder_attention_mask"}
    past = renamed(run(encoder, {"input_ids": source, "attention_mask": mask}))
    ids, new = np.full((len(source), 1), bos), []
    for _ in range(count):
        out = run(decoder, {"input_ids": ids, **masks, **past})
        ids = choose(out.pop("logits")[:, -1])[:, None]
        new.append(ids)
        past = past | renamed(out)
    return np.concatenate(new, 1).tolist()
