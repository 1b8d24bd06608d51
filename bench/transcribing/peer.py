"""One library that transcribes, in its own interpreter: `python peer.py LIBRARY MODEL PRECISION SOUND.npy NEW THREADS`.

It says `{"version": …}` when it is ready; for every line, a number of beams, it transcribes the sound once and answers
`{"seconds": …, "rows": …}`, the tokens of each window. This file imports nothing of qkv at its top, because the other
libraries' interpreters don't have it.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

WARM_UP = (1, 5)  # numbers of beams: kernels are compiled, and memory is allocated, before the readings

Ids = list[int]
Transcribe = Callable[[Any, int, int], list[Ids]]
"""The tokens of each window of a waveform, for a number of new tokens and a number of beams."""


def qkv(model: str, precision: str, threads: int) -> Transcribe:
    from dataclasses import replace

    import torch

    from qkv.nn.models.quantized.quantize import quantize
    from qkv.nn.quantization.scheme import Scheme
    from qkv.runs.inference.run import load
    from qkv.runs.inference.transcribe import Thresholds

    torch.set_num_threads(threads)
    run = load(model, "cpu", dtype="float32")
    if precision == "int8":
        quantize(run.model, Scheme(weights="int8", activations="int8"), embeddings=True, head=True)

    def transcribe(wave: Any, new: int, beams: int) -> list[Ids]:
        short = replace(run, generation=run.settings(max_new_tokens=new))
        never = Thresholds(compression=None, log_probability=None, no_speech=None)
        heard = short.transcribe(
            (wave, 16_000), language="en", timestamps=False, condition=False, temperatures=(0.0,), thresholds=never,
            num_beams=beams,
        )  # fmt: skip
        return [list(segment.tokens) for segment in heard.segments]

    return transcribe


def faster_whisper(model: str, precision: str, threads: int) -> Transcribe:
    from faster_whisper import WhisperModel

    place = converted(Path(model))
    types = {"fp32": "float32", "int8": "int8"}
    run = WhisperModel(str(place), device="cpu", compute_type=types[precision], cpu_threads=threads, num_workers=1)
    if not run.model.is_multilingual:  # known by an empty word; without it, the prompt names no language and no task
        raise ValueError(f"CTranslate2 takes the model for an English one; remove {place.parent} so it is made anew")
    never = json.loads(Path(model, "generation_config.json").read_text())["suppress_tokens"]

    def transcribe(wave: Any, new: int, beams: int) -> list[Ids]:
        length = 2 * new - 4  # CTranslate2 writes half of this and of the prompt's 4 tokens
        segments, _ = run.transcribe(
            wave, language="en", beam_size=beams, best_of=1, patience=1, temperature=0.0, without_timestamps=True,
            condition_on_previous_text=False, compression_ratio_threshold=None, log_prob_threshold=None,
            no_speech_threshold=None, suppress_tokens=never, suppress_blank=False, max_new_tokens=length,
            vad_filter=False,
        )  # fmt: skip
        return [list(segment.tokens) for segment in segments]

    return transcribe


def converted(source: Path) -> Path:
    """The directory in CTranslate2's format, by its own converter."""
    place = source.with_name(f"{source.name}-ctranslate2")
    if not place.exists():
        from ctranslate2.converters import TransformersConverter

        unfinished = place.with_name(f"{place.name}.unfinished")
        files = ["tokenizer.json", "preprocessor_config.json"]
        TransformersConverter(str(source), copy_files=files).convert(str(unfinished), force=True)
        unfinished.rename(place)
    return place


LIBRARIES: dict[str, tuple[Callable[[str, str, int], Transcribe], tuple[str, ...]]] = {
    "qkv": (qkv, ("torch",)),
    "faster-whisper": (faster_whisper, ("faster-whisper", "ctranslate2")),
}
"""By the name in the table: what loads a model, and the packages whose versions are told."""


def main(words: list[str]) -> None:
    library, model, precision, file, new, threads = words
    make, packages = LIBRARIES[library]
    transcribe, wave = make(model, precision, int(threads)), np.load(file)
    for beams in WARM_UP:
        transcribe(wave[: 30 * 16_000], int(new), beams)
    print(json.dumps({"version": ", ".join(f"{name} {version(name)}" for name in packages)}), flush=True)
    windows = -(-len(wave) // (30 * 16_000))
    for line in sys.stdin:
        start = time.perf_counter()
        rows = transcribe(wave, int(new), int(line))
        seconds = time.perf_counter() - start
        if [len(row) for row in rows] != [int(new)] * windows:
            raise SystemExit(f"{library} gave windows of {[len(row) for row in rows]} tokens, not {windows} of {new}")
        print(json.dumps({"seconds": seconds, "rows": rows}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
