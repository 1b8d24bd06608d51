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


COMMANDS = {"mean-spectrum": mean_spectrum, "linear-forecast": linear_forecast}
