"""Continue texts greedily in llama.cpp, for `test_llama_cpp.py`: run by a Python that has llama-cpp-python, or cyllama.

Reads jobs as JSON, [{"file": …, "text": …, "new": …}], from standard input and prints for each the tokens of the text,
the new ones, and the logits after the text (null if the peer gives none). A text may be a list of ids. With "embed" in place
of "text", it prints the tokens and the vector of a text.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

Ids = list[int]
Step = tuple[int, list[float] | None]


def with_llama_cpp(path: str, length: int) -> tuple[Callable[[str], Ids], Callable[[Ids, int], Step]]:
    """The file's tokenizer, and its model: `step(ids, done)` gives the likeliest token and the logits after all ids, `done`
    of which were fed before."""
    from llama_cpp import Llama

    llm = Llama(path, n_ctx=length, n_threads=1, n_threads_batch=1, logits_all=True, verbose=False)

    def step(ids: Ids, done: int) -> Step:
        llm.eval(ids[done:])
        logits = [float(x) for x in llm.scores[len(ids) - 1]]
        return max(range(len(logits)), key=logits.__getitem__), logits

    return lambda text: llm.tokenize(text.encode(), add_bos=True, special=False), step


def with_cyllama(path: str, length: int) -> tuple[Callable[[str], Ids], Callable[[Ids, int], Step]]:
    """The same with cyllama, of which there are wheels. It gives tokens but no logits."""
    from cyllama.llama import llama_cpp

    llama_cpp.disable_logging()
    model = llama_cpp.LlamaModel(path, llama_cpp.LlamaModelParams())
    params = llama_cpp.LlamaContextParams()
    params.n_ctx = length
    context = llama_cpp.LlamaContext(model, params)
    sampler = llama_cpp.LlamaSampler(llama_cpp.LlamaSamplerChainParams())
    sampler.add_greedy()

    def step(ids: Ids, done: int) -> Step:
        context.decode(llama_cpp.llama_batch_get_one(ids[done:], done))
        return int(sampler.sample(context, -1)), None

    return lambda text: list(model.get_vocab().tokenize(text, add_special=True, parse_special=False)), step


def embedded(job: dict[str, Any]) -> dict[str, Any]:
    """The tokens and the vector of a text, by an encoder."""
    from llama_cpp import Llama

    llm = Llama(job["file"], embedding=True, n_ctx=64, n_threads=1, n_threads_batch=1, verbose=False)
    tokens = llm.tokenize(job["embed"].encode(), add_bos=True, special=False)
    return {"tokens": tokens, "vector": llm.embed(job["embed"], normalize=False)}


def answer(job: dict[str, Any], peer: Any) -> dict[str, Any]:
    if "embed" in job:
        return embedded(job)
    text = job["text"]
    tokenize, step = peer(job["file"], 64)
    ids = tokenize(text) if isinstance(text, str) else list(text)
    tokens = list(ids)
    likeliest, first = step(ids, 0) if job["new"] else (0, None)
    for _ in range(job["new"]):
        ids.append(likeliest)
        likeliest, _ = step(ids, len(ids) - 1)
    return {"tokens": tokens, "new": ids[len(tokens) :], "logits": first}


def main() -> None:
    try:
        import llama_cpp  # noqa: F401

        peer: Any = with_llama_cpp
    except ImportError:
        peer = with_cyllama
    answers = []
    for job in json.load(sys.stdin):
        try:
            answers.append(answer(job, peer))
        except Exception as error:
            answers.append({"error": f"{type(error).__name__}: {error}"})
    print(json.dumps({"peer": peer.__name__, "answers": answers}))


if __name__ == "__main__":
    main()
