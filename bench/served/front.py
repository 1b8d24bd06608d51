"""A library that has no server, behind a small one: `python front.py LIBRARY MODEL PRECISION THREADS PORT`.

It runs in the library's own interpreter, which needs uvicorn besides, and imports nothing of qkv. Requests that wait at the
same time are computed as one batch of up to 64 texts, so a library is not held back by the server in front of it. Texts are
those of `qkv serve`: `/v1/translate` with `input` and `options.max_new_tokens`, `/v1/embeddings` and `/v1/classify`.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

MOST = 64  # texts of a batch
Compute = Callable[[list[str], int], list[Any]]
"""What is sent back for each text, and the number of new tokens if texts are generated."""


def ctranslate2(model: str, precision: str, threads: int) -> Compute:
    """Translations of sentences of words such as w17, which are ids."""
    import ctranslate2 as library

    types = {"fp32": "float32", "int8": "int8"}
    translator = library.Translator(model, compute_type=types[precision], intra_threads=threads, inter_threads=1)

    def compute(texts: list[str], new: int) -> list[Any]:
        limits = {"max_decoding_length": new, "min_decoding_length": new, "max_input_length": 0}
        rows = [[*text.split(), "</s>"] for text in texts]
        found = translator.translate_batch(rows, beam_size=1, max_batch_size=MOST, **limits)
        return [{"text": " ".join(one.hypotheses[0])} for one in found]

    return compute


def sentence_transformers(model: str, precision: str, threads: int) -> Compute:
    """Embeddings by ONNX Runtime in sentence-transformers, from the directory's own ONNX file or one that it exports."""
    import onnxruntime
    from sentence_transformers import SentenceTransformer

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    given = {"provider": "CPUExecutionProvider", "session_options": options}
    module = SentenceTransformer(model, backend="onnx", device="cpu", model_kwargs=given)

    def compute(texts: list[str], new: int) -> list[Any]:
        return [{"embedding": [float(x) for x in vector]} for vector in module.encode(texts, batch_size=MOST)]

    return compute


def onnxruntime(model: str, precision: str, threads: int) -> Compute:
    """Classes by ONNX Runtime, from tokenizer.json and model.onnx in a directory."""
    import numpy as np
    import onnxruntime as library
    from tokenizers import Tokenizer

    options = library.SessionOptions()
    options.intra_op_num_threads = threads
    session = library.InferenceSession(f"{model}/model.onnx", options)
    names, words = [one.name for one in session.get_inputs()], Tokenizer.from_file(f"{model}/tokenizer.json")
    words.enable_padding()

    def compute(texts: list[str], new: int) -> list[Any]:
        rows = words.encode_batch(texts)
        ids = np.array([one.ids for one in rows])
        mask = np.array([one.attention_mask for one in rows])
        given = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        logits = session.run(["logits"], {name: given[name] for name in names})[0]
        shares = np.exp(logits - logits.max(-1, keepdims=True))
        return [{"probabilities": [float(x) for x in one / one.sum()]} for one in shares]

    return compute


LIBRARIES: dict[str, Callable[[str, str, int], Compute]] = {
    "ctranslate2": ctranslate2,
    "sentence-transformers": sentence_transformers,
    "onnxruntime": onnxruntime,
}


class Front:
    """An ASGI application that computes what waits as one batch, on one thread."""

    def __init__(self, compute: Compute, name: str) -> None:
        self.compute, self.name = compute, name
        self.waiting: asyncio.Queue[tuple[list[str], int, asyncio.Future[list[Any]]]] = asyncio.Queue()
        self.worker: asyncio.Task[None] | None = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        if self.worker is None:
            self.worker = asyncio.ensure_future(self._work())
        body, more = b"", True
        while more:
            part = await receive()
            body, more = body + part.get("body", b""), part.get("more_body", False)
        if scope["method"] == "GET":
            answer: dict[str, Any] = {"data": [{"id": self.name}]}
        else:
            asked = json.loads(body)
            texts = [asked["input"]] if isinstance(asked["input"], str) else asked["input"]
            future: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
            self.waiting.put_nowait((texts, asked.get("options", {}).get("max_new_tokens", 0), future))
            answer = {"data": [{"index": i, **one} for i, one in enumerate(await future)]}
        head = [(b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": 200, "headers": head})
        await send({"type": "http.response.body", "body": json.dumps(answer).encode()})

    async def _work(self) -> None:
        held = None
        while True:
            batch = [held or await self.waiting.get()]
            held, count = None, len(batch[0][0])
            while not self.waiting.empty() and count < MOST and held is None:
                other = self.waiting.get_nowait()
                if other[1] != batch[0][1]:  # a call has one number of new tokens for all
                    held = other
                else:
                    batch.append(other)
                    count += len(other[0])
            texts = [text for one in batch for text in one[0]]
            try:
                found = await asyncio.get_running_loop().run_in_executor(None, self.compute, texts, batch[0][1])
            except Exception as error:  # which is the answer to these requests alone
                for *_, future in batch:
                    if not future.cancelled():
                        future.set_exception(error)
                continue
            start = 0
            for own, _, future in batch:
                if not future.cancelled():
                    future.set_result(found[start : start + len(own)])
                start += len(own)


def main(words: list[str]) -> None:
    import uvicorn

    library, model, precision, threads, port = words
    front = Front(LIBRARIES[library](model, precision, int(threads)), Path(model).name)
    uvicorn.run(front, host="127.0.0.1", port=int(port), log_level="warning", lifespan="off")


if __name__ == "__main__":
    main(sys.argv[1:])
