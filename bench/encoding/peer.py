"""One library that encodes, in its own interpreter: `python peer.py LIBRARY MODEL PRECISION WORK.json THREADS`.

WORK.json is a list of batches: rows of ids of one text each, or a number of images. It says `{"version": …}` when it is
ready; for every line it reads all batches once and answers `{"seconds": …, "outputs": …}`, the logits of each row. This file
imports nothing of qkv at its top, because the other libraries' interpreters don't have it.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

Work = list[Any]
Encode = Callable[[Work], list[list[float]]]
"""The logits of each row of all batches."""
SIDE, CHANNELS = 224, 3


def images(count: int) -> Any:
    """The same images in every library: (count, channels, side, side)."""
    import numpy as np

    return np.sin(np.arange(count * CHANNELS * SIDE * SIDE, dtype=np.float32)).reshape(count, CHANNELS, SIDE, SIDE)


def padded(rows: list[list[int]]) -> tuple[Any, Any]:
    """Ids with zeros on the right, and the mask of those that are no padding."""
    import numpy as np

    longest = max(map(len, rows))
    ids = np.array([row + [0] * (longest - len(row)) for row in rows])
    return ids, np.array([[1] * len(row) + [0] * (longest - len(row)) for row in rows])


def qkv(model: str, precision: str, threads: int) -> Encode:
    import torch

    from qkv.core.layout import Layout
    from qkv.nn.models.quantized.quantize import quantize
    from qkv.nn.quantization.scheme import Scheme
    from qkv.runs.inference.run import load

    torch.set_num_threads(threads)
    module: Any = load(model, "cpu", dtype="bfloat16" if precision == "bf16" else "float32").model
    if precision == "int8":
        quantize(module, Scheme(weights="int8", activations="int8"))

    @torch.inference_mode()
    def encode(work: Work) -> list[list[float]]:
        found = []
        for batch in work:
            if isinstance(batch, int):
                out = module(torch.from_numpy(images(batch)).to(module.dtype))
            else:
                lengths = [len(row) for row in batch]
                layout = Layout.from_lengths(lengths, side="right") if min(lengths) < max(lengths) else None
                out = module(torch.from_numpy(padded(batch)[0]), layout=layout)
            found += out.float().tolist()
        return found

    return encode


def huggingface(model: str, precision: str, threads: int) -> Encode:
    import torch
    from transformers import AutoModelForImageClassification, AutoModelForSequenceClassification

    torch.set_num_threads(threads)
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    sees = json.loads((Path(model) / "config.json").read_text())["model_type"] == "vit"
    kind = AutoModelForImageClassification if sees else AutoModelForSequenceClassification
    module = kind.from_pretrained(model, dtype=dtype).eval()

    @torch.inference_mode()
    def encode(work: Work) -> list[list[float]]:
        found = []
        for batch in work:
            if isinstance(batch, int):
                out = module(torch.from_numpy(images(batch)).to(dtype)).logits
            else:
                ids, mask = map(torch.from_numpy, padded(batch))
                out = module(ids, attention_mask=mask).logits
            found += out.float().tolist()
        return found

    return encode


def onnxruntime(model: str, precision: str, threads: int) -> Encode:
    import onnxruntime as library

    options = library.SessionOptions()
    options.intra_op_num_threads = threads
    session = library.InferenceSession(f"{model}/model.onnx", options)
    names = [one.name for one in session.get_inputs()]
    return lambda work: [row for batch in work for row in session.run(["logits"], _feed(batch, names))[0].tolist()]


def openvino(model: str, precision: str, threads: int) -> Encode:
    import openvino as library

    kind = "bf16" if precision == "bf16" else "f32"
    hint = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": kind}
    compiled = library.Core().compile_model(f"{model}/model.onnx", "CPU", hint)
    names = [one.get_any_name() for one in compiled.inputs]
    request = compiled.create_infer_request()

    def encode(work: Work) -> list[list[float]]:
        found = []
        for batch in work:
            request.infer(_feed(batch, names))
            found += request.get_tensor("logits").data.tolist()
        return found

    return encode


def _feed(batch: Any, names: list[str]) -> dict[str, Any]:
    """A batch as the graphs of `qkv convert --to onnx` read it."""
    if isinstance(batch, int):
        return {"pixel_values": images(batch)}
    ids, mask = padded(batch)
    feed = {"input_ids": ids, "attention_mask": mask, "token_type_ids": 0 * ids}
    return {name: feed[name] for name in names}


LIBRARIES: dict[str, tuple[Callable[[str, str, int], Encode], str]] = {
    "qkv": (qkv, "torch"),
    "Hugging Face": (huggingface, "transformers"),
    "ONNX Runtime": (onnxruntime, "onnxruntime"),
    "OpenVINO": (openvino, "openvino"),
}
"""By the name in the table: what loads a model, and the package whose version is told."""


def main(words: list[str]) -> None:
    library, model, precision, file, threads = words
    make, package = LIBRARIES[library]
    encode, work = make(model, precision, int(threads)), json.loads(Path(file).read_text())
    encode(work)
    print(json.dumps({"version": f"{package} {version(package)}"}), flush=True)
    for _ in sys.stdin:
        start = time.perf_counter()
        outputs = encode(work)
        print(json.dumps({"seconds": time.perf_counter() - start, "outputs": outputs}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
