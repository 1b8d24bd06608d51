"""Times of words: dynamic time warping and the median filter as transformers computes them, and tokens put into words."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tests.helpers import whispering
from tests.helpers.whispering import long_form, noise

import qkv
from qkv.runs.inference.transcribe.words import median, moved_on, split_words, token_ends, warp

theirs = pytest.importorskip("transformers.models.whisper.generation_whisper")


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, qkv.Run]:
    folder = tmp_path_factory.mktemp("whisper")
    return whispering.save(folder, seed=1), qkv.load(folder, device="cpu")


@pytest.mark.parametrize("shape", [(1, 1), (1, 9), (9, 1), (7, 23), (23, 7)])
def test_paths_are_transformers(shape: tuple[int, int]) -> None:
    for seed in range(4):
        costs = np.random.default_rng(seed).normal(size=shape).round(seed)  # with ties
        for ours, wanted in zip(warp(costs), theirs._dynamic_time_warping(costs), strict=True):
            np.testing.assert_array_equal(ours, wanted)


def test_the_median_is_transformers() -> None:
    x = torch.randn(2, 3, 11)
    for width in (1, 3, 7, 21):
        assert torch.equal(median(x, width), theirs._median_filter(x, width)), width
    assert torch.equal(median(x, 33), x)


def test_tokens_end_where_attention_moves_on(pair: tuple[Any, qkv.Run]) -> None:
    model, run = pair
    long = long_form(run)
    features = long.listening.features(noise(1))
    from qkv.runs.inference.transcribe.window import HeardWindow

    window, prompt, tokens = HeardWindow(run, long.codes, features), [257, 258, 262], [271, 5, 9, 300, 12, 280]
    ours = token_ends(window, prompt, tokens, 41)
    model.set_attn_implementation("eager")
    with torch.no_grad():
        out = model(features, decoder_input_ids=torch.tensor([[*prompt, *tokens]]), output_attentions=True)
    weights = torch.stack([out.cross_attentions[layer][0, head] for layer, head in long.codes.heads or ()])
    weights = weights[:, len(prompt) :, :41]
    matrix = (weights - weights.mean(1, keepdim=True)) / weights.std(1, keepdim=True, unbiased=False)
    matrix = theirs._median_filter(matrix, 3).mean(0)
    rows, columns = theirs._dynamic_time_warping(-matrix.double().numpy())
    np.testing.assert_array_equal(ours, columns[np.pad(np.diff(rows), (1, 0), constant_values=1).astype(bool)])
    assert len(token_ends(window, prompt, [], 41)) == 0


def test_the_first_word_without_timestamps_lasts_until_attention_moves_on(pair: tuple[Any, qkv.Run]) -> None:
    model, run = pair
    long = long_form(run)
    features = long.listening.features(noise(1, 9))
    from qkv.runs.inference.transcribe.window import HeardWindow

    window, prompt, tokens = HeardWindow(run, long.codes, features), [257, 258, 262, 265], [40, 70, 12, 5]
    ours = token_ends(window, prompt, tokens, 41)
    model.set_attn_implementation("eager")
    with torch.no_grad():
        out = model(features, decoder_input_ids=torch.tensor([[*prompt, *tokens]]), output_attentions=True)
    weights = torch.stack([out.cross_attentions[layer][0, head] for layer, head in long.codes.heads or ()])
    weights = weights[
        :, len(prompt) - 1 :, :41
    ]  # as OpenAI's code: the row of <|notimestamps|> predicts the first word
    matrix = (weights - weights.mean(1, keepdim=True)) / weights.std(1, keepdim=True, unbiased=False)
    rows, columns = theirs._dynamic_time_warping(-theirs._median_filter(matrix, 3).mean(0).double().numpy())
    starts = columns[np.pad(np.diff(rows), (1, 0), constant_values=1).astype(bool)]
    assert starts[0] == 0 and len(starts) == len(tokens) + 1
    np.testing.assert_array_equal(ours, starts[1:])
    assert ours[0] > 0


def test_a_path_follows_a_diagonal() -> None:
    weights = torch.zeros(2, 4, 40)
    for token in range(4):
        weights[:, token, 10 * token : 10 * token + 10] = 1
    np.testing.assert_array_equal(moved_on(weights + 1e-3 * torch.rand(2, 4, 40), 3), [0, 10, 20, 30])


@pytest.mark.parametrize(
    "text, by_character, words",
    [
        (" the cat in", False, [" the", " cat", " in"]),
        (' "the", in.', False, [' "the",', " in."]),
        (" ü–ß in", False, [" ü–ß", " in"]),
        ("日本。", True, ["日", "本。"]),
    ],
)
def test_tokens_are_put_into_words(pair: tuple[Any, qkv.Run], text: str, by_character: bool, words: list[str]) -> None:
    run = pair[1]
    window: Any = type("Window", (), {"run": run})
    groups = split_words(window, run.words.encode(text), by_character)
    assert [run.words.decode(group) for group in groups] == words


def test_words_lie_in_their_segments(pair: tuple[Any, qkv.Run]) -> None:
    heard = long_form(pair[1], words=True).transcribe(noise(2.2))
    assert heard.words and "".join(word.text for word in heard.words).strip() == heard.text
    for word in heard.words:
        assert 0 <= word.start <= word.end <= 2.2 + 0.02 and 0 < (word.probability or 0) <= 1
    starts = [word.start for word in heard.words]
    assert starts == sorted(starts)
