"""Baselines for sounds and series: linear models of what the recipes read."""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np


def mean_spectrum(words: list[str]) -> dict[str, Any]:
    """Logistic regression on the mean and the deviation of each mel band: what is in a sound, not when."""
    import torch
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import StandardScaler

    from qkv.data.media.mel_spectrogram import log_mel
    from qkv.data.readers.audio import Sounds

    parser = argparse.ArgumentParser(prog="mean-spectrum")
    parser.add_argument("path")
    parser.add_argument("--label")
    parser.add_argument("--test")
    given = parser.parse_args(words)
    source = Sounds(path=given.path, label=given.label, test=given.test)

    def read(split: Any) -> tuple[Any, list[str]]:
        rows, labels = [], []
        for example in source.examples(split, shuffle=False):
            mels = log_mel(torch.from_numpy(example["audio"])[None], example["rate"], n_mels=32, n_fft=256, hop=80)[0]
            rows.append(np.concatenate([mels.mean(1), mels.std(1)]))
            labels.append(example["label"])
        return np.stack(rows), labels

    train, test = read("train"), read("test")
    scale = StandardScaler().fit(train[0])
    fitted = LogisticRegression(max_iter=2000).fit(scale.transform(train[0]), train[1])
    right = fitted.predict(scale.transform(test[0])) == np.array(test[1])
    return {"name": "logistic regression on the mean spectrum", "accuracy": float(right.mean())}


def linear_forecast(words: list[str]) -> dict[str, Any]:
    """One ridge regression from a column's history to its future, shared by all columns, less the last value (NLinear,
    Zeng et al. 2023); and the last value repeated."""
    from sklearn.linear_model import Ridge

    from qkv.data.readers.time_series import TimeSeries

    parser = argparse.ArgumentParser(prog="linear-forecast")
    parser.add_argument("path")
    parser.add_argument("--history", type=int, default=96)
    parser.add_argument("--horizon", type=int, default=24)
    parser.add_argument("--rows", type=int, nargs=3)
    given = parser.parse_args(words)
    rows = tuple(given.rows) if given.rows else None
    source = TimeSeries(path=given.path, history=given.history, horizon=given.horizon, rows=rows)

    def read(split: Any, every: int) -> tuple[Any, Any]:
        table = source.table(split)
        windows = [table[i] for i in range(0, len(table), every)]
        past = np.concatenate([one["history"].T for one in windows])
        future = np.concatenate([one["future"].T for one in windows])
        last = past[:, -1:]
        return (past - last, future - last), last

    (x, y), _ = read("train", 4)
    fitted = Ridge(alpha=1.0).fit(x, y)
    (x, y), _ = read("test", 1)
    error = fitted.predict(x) - y
    return {
        "name": "linear (NLinear)",
        "mse": float((error**2).mean()),
        "mae": float(np.abs(error).mean()),
        "mse of the last value": float((y**2).mean()),
    }


_BANDS, _CEPSTRA, _FRAMES, _NEAREST = 24, slice(1, 13), 32, 9  # _FRAMES is what each word is stretched to


def spoken_words(words: list[str]) -> dict[str, Any]:
    """The digit of most of the nearest recordings by other speakers: cepstra and their differences, normalized over each
    recording, compared by dynamic time warping (Sakoe & Chiba 1978). It is told where each word begins and ends."""
    from qkv.data.readers.audio import Sounds

    parser = argparse.ArgumentParser(prog="spoken-words")
    parser.add_argument("path", help="sounds with names such as 7_theo_0.wav")
    parser.add_argument("--held-out", required=True, nargs="+", help="speakers, each held out in turn")
    given = parser.parse_args(words)
    source = Sounds(path=given.path, label="([0-9])_[a-z]+")
    sounds = [one for split in ("train", "validation", "test") for one in source.examples(split, shuffle=False)]
    speakers = np.array([one["where"].split("_")[1] for one in sounds])
    cepstra = np.stack([_cepstra(one["audio"], one["rate"]) for one in sounds])
    digits = np.array([int(one["label"]) for one in sounds])
    name = "a vote of the nearest words by time warping, told where each word is"
    wrong = {who: _vote_errors(cepstra, digits, speakers == who) for who in given.held_out}
    if len(wrong) == 1:
        return {"name": name, "wer": wrong[given.held_out[0]]}
    return {"name": name, **{f"wer of {who}": share for who, share in wrong.items()}}


def _vote_errors(cepstra: Any, digits: Any, held: Any) -> float:
    """The share of held-out words for which most of the nearest others are another digit."""
    known, asked = cepstra[~held], cepstra[held]
    nearest = [digits[~held][_warped(one, known).argsort()[:_NEAREST]] for one in asked]
    found = np.array([np.bincount(some, minlength=10).argmax() for some in nearest])
    return float((found != digits[held]).mean())


def _cepstra(wave: Any, rate: int) -> Any:
    """Cepstral coefficients (frames, coefficients) of a word stretched to `_FRAMES`, and their differences."""
    import torch
    from scipy.fft import dct

    from qkv.data.media.mel_spectrogram import log_mel

    wave = np.pad(wave, (0, max(360 - len(wave), 0)))
    mels = log_mel(torch.from_numpy(wave)[None], rate, n_mels=_BANDS, n_fft=200, hop=120)[0].numpy()
    kept = dct(mels, axis=0, norm="ortho")[_CEPSTRA]
    both = np.concatenate([kept, 2 * np.gradient(kept, axis=1)])
    both = (both - both.mean(1, keepdims=True)) / (both.std(1, keepdims=True) + 1e-3)
    at = np.linspace(0, both.shape[1] - 1, _FRAMES)
    return np.stack([np.interp(at, np.arange(both.shape[1]), row) for row in both], 1).astype(np.float32)


def _warped(one: Any, others: Any) -> Any:
    """The cost of the cheapest alignment of a word (T, D) with each of others (N, T, D), whose ends are aligned."""
    squares = (one**2).sum(1)[:, None] + (others**2).sum(2)[:, None] - 2 * (one @ others.transpose(0, 2, 1))
    costs = np.sqrt(np.maximum(squares, 0))
    total = np.full((len(others), _FRAMES + 1, _FRAMES + 1), np.inf, np.float32)
    total[:, 0, 0] = 0
    for i in range(_FRAMES):
        for j in range(_FRAMES):
            least = np.minimum(np.minimum(total[:, i, j + 1], total[:, i + 1, j]), total[:, i, j])
            total[:, i + 1, j + 1] = costs[:, i, j] + least
    return total[:, -1, -1]


COMMANDS = {
    "mean-spectrum": mean_spectrum,
    "linear-forecast": linear_forecast,
    "spoken-words": spoken_words,
}
