"""Runs whose length is given in passes over the data."""

from __future__ import annotations

import pytest
from train_stand_in import batch, train

from qkv.training.checkpoints.checkpoint import Checkpoints, step_of
from qkv.training.logging.metrics_file import read_metrics
from qkv.training.settings import Training

BATCHES = 5  # of an epoch


def stream_of(epochs: int):
    """An epoch of five batches, as many times as there are epochs."""

    def open_stream(position=None):
        for i in range(position["next"] if position else 0, BATCHES * epochs):
            made = batch(i % BATCHES)
            yield type(made)(**{**vars(made), "position": {"next": i + 1, "passed": (i + 1) / BATCHES}})

    return open_stream


def run(folder, epochs=3, **changes):
    changes = {"max_steps": None, "max_epochs": epochs, "accumulate": 1, "eval_every": None, "log_every": 1, **changes}
    return train(folder, stream=stream_of(epochs), **changes)


def rates(folder) -> list[float]:
    return [line["lr"] for line in read_metrics(folder / "metrics.jsonl") if line["type"] == "train"]


def test_a_run_ends_with_its_last_epoch(tmp_path):
    done = run(tmp_path)
    assert (done.ending, done.state.step, done.state.epochs) == ("max_epochs", 15, 3.0)
    assert str(done).startswith("all epochs are done after 15 steps")


def test_batches_left_over_by_accumulation_are_trained_on(tmp_path):
    done = run(tmp_path, accumulate=4)
    assert (done.ending, done.state.step, done.state.epochs) == ("max_epochs", 4, 3.0)


def test_a_schedule_spans_the_epochs_as_it_would_the_steps(tmp_path):
    schedule = {"kind": "cosine", "warmup": 2}
    run(tmp_path / "epochs", schedule=schedule)
    train(tmp_path / "steps", schedule=schedule, max_steps=15, accumulate=1, log_every=1)
    assert rates(tmp_path / "epochs") == pytest.approx(rates(tmp_path / "steps"))


def test_the_first_limit_ends_the_run(tmp_path):
    assert run(tmp_path / "a", max_steps=7).ending == "max_steps"
    assert run(tmp_path / "b", max_steps=100).ending == "max_epochs"


def test_evaluations_and_checkpoints_at_the_end_of_each_epoch(tmp_path):
    run(tmp_path, eval_every="epoch", save_every="epoch")
    found = [line["step"] for line in read_metrics(tmp_path / "metrics.jsonl") if line["type"] == "eval"]
    assert found == [5, 10, 15]
    assert sorted(map(step_of, Checkpoints(tmp_path / "checkpoints", 3).all())) == [5, 10, 15]


def test_a_run_by_epochs_continues_to_more(tmp_path):
    schedule = {"kind": "wsd", "warmup": 2}
    run(tmp_path / "two", 2, schedule=schedule, save_every=5)
    run(tmp_path / "two", 3, schedule=schedule, save_every=5, resume=True)
    assert len(rates(tmp_path / "two")) == 15


def test_the_length_in_epochs_takes_the_place_of_the_default_in_steps():
    assert Training.from_dict({"max_epochs": 3}).max_steps is None
    assert Training.from_dict({"max_epochs": 3, "max_steps": 9}).max_steps == 9
    assert Training.from_dict({}).max_steps == 10_000
    with pytest.raises(ValueError, match="number of steps from 1, or epoch, or null, not 'epochs'"):
        Training.from_dict({"eval_every": "epochs"})
