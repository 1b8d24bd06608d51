"""One library that translates, in its own interpreter: `python peer.py LIBRARY MODEL PRECISION BATCHES.json THREADS`.

It says `{"version": …}` when it is ready; for every line, a number of beams, it translates all batches once and answers
`{"seconds": …, "rows": …}`. This file imports nothing of qkv at its top, because the other libraries' interpreters don't
have it.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

WARM_UP = (1, 4)  # numbers of beams: kernels are compiled, and memory is allocated, before the readings

Ids = list[int]
Translate = Callable[[list[Ids], int, int], list[Ids]]
"""The new ids of each row, for sources, a number of new tokens and a number of beams."""


def qkv(model: str, precision: str, threads: int) -> Translate:
    import torch

    from qkv.generation import generate
    from qkv.nn.models.quantized.quantize import quantize
    from qkv.nn.quantization.scheme import Scheme
    from qkv.runs.inference.run import load

    torch.set_num_threads(threads)
    module: Any = load(model, "cpu", dtype="float32").model
    pad, end = special(model)
    if precision == "int8":
        quantize(module, Scheme(weights="int8", activations="int8"), embeddings=True, head=True)

    def translate(rows: list[Ids], new: int, beams: int) -> list[Ids]:
        found = generate(module, rows, bos_id=pad, eos_id=end, num_beams=beams, max_new_tokens=new, min_new_tokens=new)
        return [row[0] for row in found.sequences]

    return translate


def huggingface(model: str, precision: str, threads: int) -> Translate:
    import torch
    from transformers import AutoModelForSeq2SeqLM

    torch.set_num_threads(threads)
    module = AutoModelForSeq2SeqLM.from_pretrained(model, dtype=torch.float32).eval()
    pad, end = special(model)
    names = {"decoder_start_token_id": pad, "pad_token_id": pad, "eos_token_id": end}

    def translate(rows: list[Ids], new: int, beams: int) -> list[Ids]:
        longest = max(map(len, rows))
        ids = torch.tensor([row + [pad] * (longest - len(row)) for row in rows])
        limits = {"max_new_tokens": new, "min_new_tokens": new}
        found = module.generate(
            ids, attention_mask=(ids != pad).long(), num_beams=beams, do_sample=False, **limits, **names
        )
        return found[:, 1:].tolist()

    return translate


def ctranslate2(model: str, precision: str, threads: int) -> Translate:
    import ctranslate2 as library

    place = converted(Path(model))
    types = {"fp32": "float32", "int8": "int8"}
    translator = library.Translator(str(place), compute_type=types[precision], intra_threads=threads, inter_threads=1)
    words = json.loads((place / "shared_vocabulary.json").read_text(encoding="utf-8"))
    ids = {word: i for i, word in enumerate(words)}

    def translate(rows: list[Ids], new: int, beams: int) -> list[Ids]:
        sources = [[words[i] for i in row] for row in rows]
        limits = {"max_decoding_length": new, "min_decoding_length": new, "max_input_length": 0}
        found = translator.translate_batch(sources, beam_size=beams, max_batch_size=len(rows), **limits)
        return [[ids[word] for word in result.hypotheses[0]] for result in found]

    return translate


def converted(source: Path) -> Path:
    """The model in CTranslate2's format, converted by its own loader, with words made of ids in place of a tokenizer's."""
    place = source.with_name(f"{source.name}-ctranslate2")
    if not place.exists():
        import torch
        from ctranslate2.converters.transformers import MarianMTLoader
        from transformers import MarianMTModel

        pad, _ = special(source)
        vocabulary = {"</s>": 0, "<unk>": 1, **{f"w{i}": i for i in range(2, pad)}, "<pad>": pad}
        tokenizer = SimpleNamespace(get_vocab=lambda: vocabulary, eos_token="</s>", unk_token="<unk>")
        with torch.no_grad():
            spec = MarianMTLoader()(MarianMTModel.from_pretrained(source, dtype=torch.float32), tokenizer)
            spec.validate()
            spec.optimize()
        unfinished = place.with_name(f"{place.name}.unfinished")
        unfinished.mkdir(exist_ok=True)
        spec.save(str(unfinished))
        unfinished.rename(place)
    return place


def special(model: str | Path) -> tuple[int, int]:
    """The ids of <pad>, from which decoding starts, and </s>."""
    config = json.loads(Path(model, "config.json").read_text(encoding="utf-8"))
    return config["pad_token_id"], config["eos_token_id"]


LIBRARIES: dict[str, tuple[Callable[[str, str, int], Translate], str]] = {
    "qkv": (qkv, "torch"),
    "Hugging Face": (huggingface, "transformers"),
    "CTranslate2": (ctranslate2, "ctranslate2"),
}
"""By the name in the table: what loads a model, and the package whose version is told."""


def main(words: list[str]) -> None:
    library, model, precision, file, threads = words
    make, package = LIBRARIES[library]
    translate = make(model, precision, int(threads))
    batches = json.loads(Path(file).read_text(encoding="utf-8"))
    for batch, beams in product((batches[0], batches[-1]), WARM_UP):
        translate(batch["rows"], batch["new"], beams)
    print(json.dumps({"version": f"{package} {version(package)}"}), flush=True)
    for line in sys.stdin:
        beams, found = int(line), list[list[Ids]]()
        start = time.perf_counter()
        for batch in batches:
            found.append(translate(batch["rows"], batch["new"], beams))
        seconds = time.perf_counter() - start
        for batch, rows in zip(batches, found, strict=True):
            if any(len(row) != batch["new"] for row in rows):
                raise SystemExit(f"{library} gave {sorted({*map(len, rows)})} new tokens, not {batch['new']}")
        print(json.dumps({"seconds": seconds, "rows": [row for rows in found for row in rows]}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
