"""Long sounds beside transformers' generate: languages, segments, tokens and their times, window after window."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.helpers import whispering
from tests.helpers.whispering import ALWAYS, long_form, noise

import qkv
from qkv.data.media.audio import Wave
from qkv.runs.inference.transcribe import Thresholds, Transcript
from qkv.runs.inference.transcribe.pieces import pieces
from qkv.runs.inference.transcribe.window import HeardWindow, compression

transformers = pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, qkv.Run]:
    folder = tmp_path_factory.mktemp("whisper")
    return whispering.save(folder, seed=0), qkv.load(folder, device="cpu")


def compare(pair: tuple[Any, qkv.Run], wave: Wave, condition: bool, language: str | None, num_beams: int = 1) -> None:
    theirs, run = pair
    extractor = transformers.WhisperFeatureExtractor.from_pretrained(run.path)
    inputs = extractor(
        wave, sampling_rate=16_000, return_tensors="pt", truncation=False, padding="longest", return_attention_mask=True
    )
    wanted = theirs.generate(
        inputs.input_features,
        attention_mask=inputs.attention_mask,
        return_timestamps=True,
        condition_on_prev_tokens=condition,
        language=language,
        task="transcribe",
        return_segments=True,
        do_sample=False,
        num_beams=num_beams,
    )["segments"][0]
    ours = long_form(run, condition=condition, language=language, num_beams=num_beams)
    features = ours.listening.features(wave)
    torch.testing.assert_close(features, inputs.input_features, atol=1e-5, rtol=0)
    segments = list(ours.segments(features, features.shape[-1]))
    assert [list(s.tokens) for s in segments] == [s["tokens"].tolist() for s in wanted]
    for segment, other in zip(segments, wanted, strict=True):
        assert (segment.start, segment.end) == pytest.approx((float(other["start"]), float(other["end"])))


def test_a_long_sound_is_transcribed_as_by_transformers(pair: tuple[Any, qkv.Run]) -> None:
    compare(pair, noise(2.3), True, None)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("condition", [False, True])
@pytest.mark.parametrize("language, num_beams", [(None, 1), ("de", 1), ("english", 3)])
def test_long_sounds_are_transcribed_as_by_transformers(
    seed: int, condition: bool, language: str | None, num_beams: int, tmp_path: Path
) -> None:
    theirs = whispering.save(tmp_path, seed)
    compare((theirs, qkv.load(tmp_path, device="cpu")), noise(3.4, seed), condition, language, num_beams)


def test_windows_end_at_the_last_pair_of_timestamps() -> None:
    first = 100
    assert [vars(p) for p in pieces([100, 7, 110], first, 50)[0]] == [{"begin": 0, "end": 3, "start": 0, "stop": 10}]
    assert pieces([100, 7, 110], first, 50)[1] is None
    found, following = pieces([102, 7, 110, 110, 8, 9], first, 50)  # the end of the window cuts the text off
    assert [(p.begin, p.end, p.start, p.stop) for p in found] == [(0, 4, 2, 10)] and following == 10
    found, following = pieces([102, 7, 110, 111, 8, 120], first, 50)  # nothing is said after 120
    assert [(p.begin, p.end, p.start, p.stop) for p in found] == [(0, 3, 2, 10), (3, 6, 11, 20)] and following is None
    assert [(p.start, p.stop) for p in pieces([7, 8], first, 31)[0]] == [(0, 31)]


def test_texts_that_are_not_trusted_are_decoded_again(
    pair: tuple[Any, qkv.Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, run = pair
    long = long_form(run)
    window = HeardWindow(run, long.codes, long.listening.features(noise(1)))
    prompt = long.codes.prompt("en", "transcribe", True)
    once = window.decode(prompt, True, (0.0, 0.7), ALWAYS)
    assert once.temperature == 0.0 and 0 <= (once.no_speech or 0) <= 1
    logits = run.model(window.features, torch.tensor([[*prompt, *once.tokens]]))[0].log_softmax(-1)
    assert once.log_probability >= logits[len(prompt) - 1 :].gather(1, torch.tensor([[*once.tokens, 0]]).T)[:-1].mean()
    for limits in (Thresholds(0.1, None, None), Thresholds(None, 1.0, None)):
        assert window.decode(prompt, True, (0.0, 0.7), limits, seed=3).temperature == 0.7
    assert not window.decode(prompt, True, (0.0, 0.7), Thresholds(None, -99.0, 0.0)).silent  # likely: something is said
    silent = window.decode(prompt, True, (0.0, 0.7), Thresholds(None, 1.0, -1.0))
    assert silent.silent and silent.temperature == 0.0
    assert compression("no no no " * 50) > 2.4 > compression("What a piece of work is a man!")
    nothing = long_form(run, thresholds=Thresholds(None, 1.0, -1.0)).transcribe(noise(2.5))
    assert nothing.text == "" and nothing.segments == ()


def test_a_short_sound_is_read_once_and_not_beyond_its_end(pair: tuple[Any, qkv.Run]) -> None:
    wave = noise(0.4)
    heard = pair[1].transcribe((wave, 16_000), thresholds=ALWAYS, temperatures=(0.0,))
    assert isinstance(heard, Transcript) and heard.duration == 0.4 and heard.language in ("en", "de", "ja")
    assert 0 < (heard.language_probability or 0) <= 1
    twice = pair[1].transcribe([(np.repeat(wave, 3), 48_000)] * 2, language="JAPANESE", words=True, seed=1)
    assert len(twice) == 2 and twice[0].language == "ja" and twice[0].language_probability is None


def test_one_sentence_says_what_is_wrong(pair: tuple[Any, qkv.Run], tmp_path: Path) -> None:
    run, wave = pair[1], noise(0.2)
    for options, message in (
        ({"language": "klingon"}, "no language 'klingon'; there is: de, en, ja"),
        ({"language": "germann"}, "did you mean german"),
        ({"task": "sing"}, "the task is transcribe or translate, not 'sing'"),
        ({"temperatures": ()}, "there are no temperatures"),
        ({"lanuage": "de"}, "no option 'lanuage' of transcribing; did you mean 'language'"),
        ({"num_beams": 0}, "num_beams must be a number of at least 1"),
    ):
        with pytest.raises(ValueError, match=message):
            run.transcribe((wave, 16_000), **options)
    with pytest.raises(ValueError, match="needs a model of speech"):
        qkv.load("small-english", device="cpu").transcribe((wave, 16_000))


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"no_timestamps_token_id": 10**6}, "name the token 1000000, outside 0"),
        ({"lang_to_id": {"<|en|>": "x"}}, "name the token 'x', outside 0"),
        ({"alignment_heads": [[0]]}, "alignment_heads are pairs of a layer and a head"),
        ({"alignment_heads": [[7, 0]]}, "names head 0 of layer 7, and the decoder has 2 layers of 4 heads"),
        ({"max_initial_timestamp_index": -1}, "which is no number of steps"),
    ],
)
def test_settings_that_fit_no_model_are_named(
    pair: tuple[Any, qkv.Run], changes: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = pair[1]
    assert run.origin is not None
    monkeypatch.setitem(run.origin.generation, next(iter(changes)), next(iter(changes.values())))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=message):
        run.transcribe((noise(0.2), 16_000), words=True)
