"""A small language model and an engine that serves it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fused_models import varied_model

from qkv.data.tokenizers.tokenizer import train
from qkv.data.tokenizers.training.bpe import BPE
from qkv.runs.inference.run import Run
from qkv.serving.engine.decoder import Decoder
from qkv.serving.engine.engine import Engine


@pytest.fixture(scope="session")
def run() -> Run:
    text = "the cat is 3 years old and the dog is 40 years young, or so it seems\n"
    tokenizer = train(BPE(vocab_size=300), [text] * 3)
    sizes = {"d_model": 32, "n_heads": 4, "n_layers": 2, "vocab_size": 300, "max_positions": 512}
    return Run(varied_model("llama", sizes, {}), tokenizer)


@pytest.fixture
def engine(run: Run) -> Iterator[tuple[Engine, Decoder]]:
    engine = Engine(4096, threads=1)
    decoder = Decoder(run, engine.statistics, prefix_bytes=1 << 22)
    engine.decoders.append(decoder)
    engine.start()
    yield engine, decoder
    engine.close(60)
