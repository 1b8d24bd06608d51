"""One library that decodes, in its own interpreter: `python peer.py LIBRARY MODEL PRECISION BATCH PROMPT NEW THREADS`.

It says `{"version": …}` when it is ready; for every line that it is given it decodes once and answers `{"seconds": …}`, or
for the line `probe` `{"gb_per_s": …}`, the pace at which PyTorch's sum reads memory. This file imports nothing of qkv at its
top, because the other libraries' interpreters don't have it.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

Ids = list[int]
Decode = Callable[[list[Ids], int], list[Ids]]
"""The new ids of each row, for equally long prompts and a number of new tokens."""


def qkv(model: str, precision: str, threads: int) -> Decode:
    import torch

    from qkv.generation import generate
    from qkv.nn.models.quantized.quantize import quantize
    from qkv.nn.quantization.scheme import Scheme
    from qkv.runs.inference.run import load

    torch.set_num_threads(threads)
    module: Any = load(model, "cpu", dtype="bfloat16" if precision == "bf16" else "float32").model
    if precision in ("int8", "int4"):
        group = 32 if precision == "int4" else None  # as in Q4_0; int8 by its default, a scale for each row
        scheme = Scheme(weights=precision, group_size=group, activations="int8")  # type: ignore[arg-type]
        quantize(module, scheme, embeddings=True, head=True)

    def decode(rows: list[Ids], new: int) -> list[Ids]:
        found = generate(module, torch.tensor(rows), max_new_tokens=new, min_new_tokens=new)
        return [row[0] for row in found.sequences]

    return decode


def huggingface(model: str, precision: str, threads: int) -> Decode:
    import torch
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(threads)
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    module = AutoModelForCausalLM.from_pretrained(model, dtype=dtype).eval()

    def decode(rows: list[Ids], new: int) -> list[Ids]:
        ids = torch.tensor(rows)
        options = {"max_new_tokens": new, "min_new_tokens": new, "do_sample": False, "pad_token_id": 0}
        found = module.generate(ids, attention_mask=torch.ones_like(ids), **options)
        return found[:, ids.shape[1] :].tolist()

    return decode


def ctranslate2(model: str, precision: str, threads: int) -> Decode:
    import ctranslate2 as library

    types = {"fp32": "float32", "int8": "int8"}
    generator = library.Generator(model, compute_type=types[precision], intra_threads=threads, inter_threads=1)
    words = json.loads(Path(model, "vocabulary.json").read_text(encoding="utf-8"))

    def decode(rows: list[Ids], new: int) -> list[Ids]:
        prompts = [[words[i] for i in row] for row in rows]
        options = {"max_length": new, "min_length": new, "include_prompt_in_result": False, "sampling_topk": 1}
        found = generator.generate_batch(prompts, max_batch_size=len(rows), **options)
        return [result.sequences_ids[0] for result in found]

    return decode


def onnxruntime(model: str, precision: str, threads: int) -> Decode:
    import numpy as np
    import onnxruntime as library

    options = library.SessionOptions()
    options.intra_op_num_threads = threads
    session = library.InferenceSession(f"{model}/model.onnx", options)
    outputs = [one.name for one in session.get_outputs()]
    pasts = {one.name: one.shape for one in session.get_inputs() if one.name.startswith("past_key_values")}

    def decode(rows: list[Ids], new: int) -> list[Ids]:
        ids, before, found = np.array(rows), 0, []
        past = {name: np.zeros((len(rows), shape[1], 0, shape[3]), np.float32) for name, shape in pasts.items()}
        for _ in range(new):
            after = before + ids.shape[1]
            places = np.broadcast_to(np.arange(before, after)[None], ids.shape)
            feed = {"attention_mask": np.ones((len(rows), after), np.int64), "position_ids": places}
            out = dict(zip(outputs, session.run(outputs, {"input_ids": ids, **feed, **past}), strict=True))
            ids, before = out.pop("logits")[:, -1:].argmax(-1), after
            past = {name.replace("present", "past_key_values"): tensor for name, tensor in out.items()}
            found.append(ids)
        return np.concatenate(found, 1).tolist()

    return decode


def openvino(model: str, precision: str, threads: int) -> Decode:
    import numpy as np
    import openvino as library

    core = library.Core()
    hint = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": "f32"}
    compiled = core.compile_model(f"{model}/model.onnx", "CPU", hint)
    names = [one.get_any_name() for one in compiled.outputs]
    inputs = {one.get_any_name(): one.get_partial_shape() for one in compiled.inputs}
    pasts = {name: shape for name, shape in inputs.items() if name.startswith("past_key_values")}
    request = compiled.create_infer_request()

    def decode(rows: list[Ids], new: int) -> list[Ids]:
        ids, before, found = np.array(rows), 0, []
        past: dict[str, Any] = {
            name: np.zeros((len(rows), shape[1].get_length(), 0, shape[3].get_length()), np.float32)
            for name, shape in pasts.items()
        }
        for _ in range(new):
            after = before + ids.shape[1]
            places = np.ascontiguousarray(np.broadcast_to(np.arange(before, after)[None], ids.shape))
            feed = {"attention_mask": np.ones((len(rows), after), np.int64), "position_ids": places}
            request.infer({"input_ids": ids, **feed, **past})
            ids, before = request.get_tensor("logits").data[:, -1:].argmax(-1), after
            past = {
                name.replace("present", "past_key_values"): np.array(request.get_tensor(name).data)
                for name in names
                if name != "logits"
            }
            found.append(ids)
        return np.concatenate(found, 1).tolist()

    return decode


def llama_cpp(model: str, precision: str, threads: int) -> Decode:
    """llama.cpp through cyllama: every row is a separate sequence, and a batch has a token of each."""
    from cyllama.llama import llama_cpp as library

    library.disable_logging()
    loaded = library.LlamaModel(model, library.LlamaModelParams())
    sampler = library.LlamaSampler(library.LlamaSamplerChainParams())
    sampler.add_greedy()

    def decode(rows: list[Ids], new: int) -> list[Ids]:
        length, count = len(rows[0]), len(rows)
        params = library.LlamaContextParams()
        room = -(-(length + new) // 256) * 256  # llama.cpp gives each sequence a multiple of 256
        params.n_ctx, params.n_seq_max, params.n_batch = room * count, count, length * count
        params.n_threads, params.n_threads_batch = threads, threads
        context = library.LlamaContext(loaded, params)
        batch = library.LlamaBatch(n_tokens=length * count, embd=0, n_seq_max=1)
        for row, ids in enumerate(rows):
            for place, token in enumerate(ids):
                batch.add(token, place, [row], place == length - 1)
        outputs = range(length - 1, length * count, length)  # places in the batch of each row's last token
        found: list[Ids] = [[] for _ in rows]
        while True:
            context.decode(batch)
            for row, output in zip(found, outputs, strict=True):
                row.append(int(sampler.sample(context, output)))
            if len(found[0]) == new:
                return found
            batch.clear()
            for number, row in enumerate(found):
                batch.add(row[-1], length + len(row) - 1, [number], True)
            outputs = range(count)

    return decode


LIBRARIES: dict[str, tuple[Callable[[str, str, int], Decode], str]] = {
    "qkv": (qkv, "torch"),
    "Hugging Face": (huggingface, "transformers"),
    "CTranslate2": (ctranslate2, "ctranslate2"),
    "ONNX Runtime": (onnxruntime, "onnxruntime"),
    "OpenVINO": (openvino, "openvino"),
    "llama.cpp": (llama_cpp, "cyllama"),
}
"""By the name in the table: what loads a model, and the package whose version is told."""


def gb_per_s() -> float:
    """How fast memory is read by PyTorch's sum, the best of three."""
    import torch

    memory = torch.ones(64 << 10, 1024)  # 256 MiB
    seconds = []
    for _ in range(3):
        start = time.perf_counter()
        memory.sum()
        seconds.append(time.perf_counter() - start)
    return memory.numel() * 4 / 1e9 / min(seconds)


def main(words: list[str]) -> None:
    library, model, precision, *numbers = words
    batch, prompt, new, threads = map(int, numbers)
    make, package = LIBRARIES[library]
    decode = make(model, precision, threads)
    rows = [[100 + (row * 37 + i * 11) % 1000 for i in range(prompt)] for row in range(batch)]
    decode(rows, 2)
    print(json.dumps({"version": f"{package} {version(package)}"}), flush=True)
    for line in sys.stdin:
        if line.strip() == "probe":
            print(json.dumps({"gb_per_s": gb_per_s()}), flush=True)
            continue
        start = time.perf_counter()
        found = decode(rows, new)
        seconds = time.perf_counter() - start
        if any(len(row) != new for row in found):
            raise SystemExit(f"{library} gave {[len(row) for row in found]} new tokens, not {new}")
        print(json.dumps({"seconds": seconds, "first": found[0][:8]}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
