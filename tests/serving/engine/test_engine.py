"""The engine: answers are those of `Run.generate`, whatever runs beside them; places are freed; failures stay apart."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from fused_models import varied_model
from served_runs import Asked, settle

import qkv
from qkv.data.tokenizers.tokenizer import train
from qkv.data.tokenizers.training.bpe import BPE
from qkv.runs.inference.run import Run
from qkv.serving.engine import decoder as decoders
from qkv.serving.engine.continuation import Ending, Event, Work
from qkv.serving.engine.decoder import Decoder
from qkv.serving.engine.engine import Busy, Engine
from qkv.serving.engine.jobs import alone

TEXTS = ["the cat is", "a", "the dog is 3 years old and the cat", "cat " * 9]
OPTIONS: list[dict[str, Any]] = [
    {"max_new_tokens": 12},
    {"max_new_tokens": 9, "temperature": 0.9, "seed": 3},
    {"max_new_tokens": 15, "top_p": 0.8, "seed": 5, "repetition_penalty": 1.3},
    {"max_new_tokens": 7, "no_repeat_ngram_size": 2, "min_new_tokens": 3},
]


@pytest.fixture(scope="module")
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


def test_a_request_gets_what_generate_gives_whatever_runs_beside_it(run: Run, engine: tuple[Engine, Decoder]) -> None:
    assert engine[1].fused is not None
    pairs = [(text, options) for text in TEXTS for options in OPTIONS]
    asked = [Asked(*engine, text, streams=bool(i % 2), **options) for i, (text, options) in enumerate(pairs)]
    for i, (one, (text, options)) in enumerate(zip(asked, pairs, strict=True)):
        (found,) = one.texts()
        assert found == run.generate(text, **options)
        assert "".join(one.pieces) == (found if i % 2 else "")
    settle(engine[0])
    assert engine[0].statistics.new_tokens > 100 and engine[0].tokens == 0


def test_log_probabilities_do_not_depend_on_what_runs_beside(engine: tuple[Engine, Decoder]) -> None:
    def tokens(one: Asked) -> tuple[Any, ...]:
        one.texts()
        return one.endings[0].tokens

    alone = [tokens(Asked(*engine, text, likeliest=3, **options)) for text, options in zip(TEXTS, OPTIONS, strict=True)]
    noise = [Asked(*engine, text, max_new_tokens=30) for text in TEXTS]
    beside = [Asked(*engine, text, likeliest=3, **options) for text, options in zip(TEXTS, OPTIONS, strict=True)]
    assert [tokens(one) for one in beside] == alone  # floats, to the bit
    for one in noise:
        one.texts()


def test_samples_of_one_prompt(run: Run, engine: tuple[Engine, Decoder]) -> None:
    options: dict[str, Any] = {"num_samples": 3, "temperature": 1.0, "seed": 4, "max_new_tokens": 8}
    assert Asked(*engine, TEXTS[0], **options).texts() == run.generate(TEXTS[0], **options)


def test_a_stop_string_ends_a_text_and_is_never_told(run: Run, engine: tuple[Engine, Decoder]) -> None:
    whole = run.generate(TEXTS[2], max_new_tokens=20)
    stop = whole[4:6]
    one = Asked(*engine, TEXTS[2], max_new_tokens=20, stop=[stop], streams=True)
    assert one.texts() == [whole[: whole.index(stop)]] == ["".join(one.pieces)]
    assert one.endings[0].outcome == "stop"


def test_the_prompts_tokens_are_scored(run: Run, engine: tuple[Engine, Decoder]) -> None:
    one = Asked(*engine, TEXTS[2], max_new_tokens=2, echo=True, likeliest=2)
    one.texts()
    wanted = run.score(TEXTS[2])
    assert [token.log_prob for token in one.work.read[1:]] == pytest.approx(wanted.log_probs, abs=1e-5)
    assert one.work.read[0].log_prob is None and [token.id for token in one.work.read] == list(one.work.prompt)


def test_a_long_prompt_is_read_in_chunks_and_a_shared_beginning_once(
    run: Run, engine: tuple[Engine, Decoder], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decoders, "CHUNK", 32)
    engine[1].prefixes.chunk = 32
    text = "the dog is 40 years young and the cat is 3 years old, " * 5
    first = Asked(*engine, text + "so", max_new_tokens=6, likeliest=0)
    first.texts()
    second, third = (
        Asked(*engine, text + "so", max_new_tokens=6, likeliest=0),
        Asked(*engine, text + "it", max_new_tokens=6),
    )
    assert second.texts() == first.texts() and first.endings[0].tokens == second.endings[0].tokens
    assert third.texts() == [run.generate(text + "it", max_new_tokens=6)]
    assert first.work.reused == 0 and second.work.reused == third.work.reused >= 64


def test_a_request_that_is_given_up_frees_its_place(engine: tuple[Engine, Decoder]) -> None:
    one = Asked(*engine, "the", max_new_tokens=400, min_new_tokens=400)
    while not engine[0].rows:
        pass
    one.work.cancelled = True
    assert one.done.wait(60) and one.endings[0].outcome == "cancelled"
    Asked(*engine, "the", max_new_tokens=2).texts()
    settle(engine[0])
    assert engine[0].tokens == 0 and engine[0].rows == 0


def test_what_never_fits_is_refused_and_what_does_not_fit_now_waits(run: Run, engine: tuple[Engine, Decoder]) -> None:
    with pytest.raises(ValueError, match="room for 4,096"):
        Asked(*engine, "the", max_new_tokens=400, num_samples=40, temperature=1.0)
    with pytest.raises(ValueError, match="leaves no room in the model's context"):
        Asked(*engine, "the " * 600)
    engine[0].most_tokens, engine[0].most_waiting = 80, 5
    asked = [Asked(*engine, "the cat", max_new_tokens=40) for _ in range(3)]
    assert {one.texts()[0] for one in asked} == {run.generate("the cat", max_new_tokens=40)}
    engine[0].most_waiting = 0
    with pytest.raises(Busy, match="wait already"):
        Asked(*engine, "the")
    with pytest.raises(Busy):
        engine[0].do(alone(lambda: 1))


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
    texts, found, done = ["a b c d e f", "c", "b a", "f e d"], dict[str, str](), threading.Barrier(2)

    def tell(text: str, event: Event) -> None:
        assert isinstance(event, Ending)
        found[text] = event.text
        if len(found) == len(texts):
            done.wait(60)

    for text in texts:
        work = Work(
            run, [], run.settings(num_beams=1), lambda event, text=text: tell(text, event), source=run.encode(text)
        )
        engine.submit(decoder, work)
    done.wait(60)
    engine.close(60)
    assert [found[text] for text in texts] == run.generate(texts, num_beams=1)
    assert not torch.is_inference_mode_enabled()
