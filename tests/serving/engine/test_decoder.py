"""The rows of one model: stepped alone if the kernels lack it, and sources of unequal lengths together."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
import torch
from served_runs import Asked

import qkv
from qkv.data.tokenizers.tokenizer import train
from qkv.runs.inference.run import Run
from qkv.serving.engine.continuation import Ending, Work
from qkv.serving.engine.decoder import Decoder
from qkv.serving.engine.engine import Busy, Engine
from qkv.serving.engine.jobs import alone


def test_a_model_that_the_kernels_do_not_have_is_stepped_row_by_row() -> None:
    tokenizer = train("char", ["abc def"])
    model = qkv.build(
        qkv.preset("mixtral-8x7b", n_layers=1, d_model=8, n_heads=2, n_kv_heads=2, d_ff=16, vocab_size=40), seed=0
    ).eval()  # heads of width 4
    run, engine = Run(model, tokenizer), Engine(4096, threads=1)
    decoder = Decoder(run, engine.statistics)
    engine.decoders.append(decoder)
    engine.start()
    asked = [Asked(engine, decoder, text, max_new_tokens=9) for text in ("a", "bc d", "fed")]
    assert decoder.fused is None
    assert [one.texts()[0] for one in asked] == run.generate(["a", "bc d", "fed"], max_new_tokens=9)
    engine.close(60)
    with pytest.raises(Busy, match="shutting down"):
        engine.submit(decoder, asked[0].work)


def test_a_translator_decodes_sources_of_unequal_lengths_together(trained: Path) -> None:
    run, engine = qkv.load(trained, device="cpu"), Engine(4096, threads=1)
    decoder = Decoder(run, engine.statistics)
    engine.decoders.append(decoder)
    engine.start()
    texts = ["a b c d e f", "c", "b a", "f e d"]

    def asked(text: str, **options: Any) -> Future[Ending]:
        future: Future[Ending] = Future()
        work = Work(
            run, [], run.settings(num_beams=1, **options), future.set_result, source=run.encode(text), likeliest=0
        )
        engine.submit(decoder, work)
        return future

    alone_ones = [asked(text, min_new_tokens=3).result(60).tokens for text in texts]
    gate = threading.Event()
    engine.do(alone(gate.wait))  # so that all wait before the first source is read
    together = [asked(text, min_new_tokens=3) for text in texts]
    plain = [asked(text) for text in texts]
    gate.set()
    assert [one.result(60).tokens for one in together] == alone_ones  # with all digits of their log-probabilities
    assert [one.result(60).text for one in plain] == run.generate(texts, num_beams=1)
    engine.close(60)
    assert decoder.statistics.prompt_tokens == 3 * len(texts) and not decoder.reading
    assert not torch.is_inference_mode_enabled()
