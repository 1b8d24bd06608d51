"""The number of threads follows measured passes, and the measurement leaves no trace in the training."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from train_stand_in import batch

import qkv
from qkv.nn.layers.moe import MixtureOfExperts
from qkv.nn.models.build import build
from qkv.training import threads
from qkv.training.objective import NextToken
from qkv.training.settings import Training
from qkv.training.step import Stepper
from qkv.training.threads import ThreadTuner, candidates


class Machine:
    """A clock, and passes whose duration depends on the number of threads and on how many cores others use."""

    def __init__(self, cores: int = 2, work: float = 0.1) -> None:
        self.now, self.work, self.cores, self.busy, self.threads, self.passes = 0.0, work, cores, 0.0, cores, 0

    def seconds(self, n: int) -> float:
        """Work divided among threads; if more threads than free cores compute, all wait for the slowest."""
        crowded = n > self.cores - self.busy
        return self.work / n * (4.0 if crowded else 1.0)

    def run(self) -> None:
        self.passes += 1
        self.now += self.seconds(self.threads)

    def set_threads(self, n: int) -> None:
        self.threads = n

    def tuner(self) -> ThreadTuner:
        return ThreadTuner(candidates(self.cores), lambda: self.now, lambda: self.busy, self.set_threads)

    def steps(self, tuner: ThreadTuner, seconds: float) -> int:
        """Train for a time; how often the number was chosen again."""
        until, choices = self.now + seconds, 0
        while self.now < until:
            if tuner.due:
                tuner.choose(self.run)
                choices += 1
            began = self.now
            self.run()
            tuner.watch(1000, self.now - began)
        return choices


def test_candidates_are_halved_down_to_one() -> None:
    assert [candidates(n) for n in (1, 2, 6, 16)] == [[1], [2, 1], [6, 3, 1], [16, 8, 4, 2, 1]]


def test_all_quiet_cores_are_used_and_measured_once() -> None:
    machine = Machine(4)
    assert machine.steps(machine.tuner(), 100.0) == 1
    assert machine.threads == 4 and machine.now < 105


def test_a_busy_core_leads_to_fewer_threads_and_a_free_one_back() -> None:
    machine = Machine(2)
    tuner = machine.tuner()
    machine.steps(tuner, 20.0)
    machine.busy = 1.0
    machine.steps(tuner, 60.0)
    assert tuner.threads == machine.threads == 1
    machine.busy = 0.0
    machine.steps(tuner, 120.0)
    assert machine.threads == 2


def test_choices_in_vain_become_rare() -> None:
    """A load that comes and goes without changing the best number costs little."""
    machine = Machine(2)
    machine.seconds = lambda n: machine.work / n * (1 + machine.busy)  # type: ignore[method-assign]
    tuner, choices = machine.tuner(), 0
    for i in range(100):
        machine.busy = i % 2
        choices += machine.steps(tuner, 10.0)
    assert machine.threads == 2 and 3 <= choices <= 10


def test_a_long_pass_is_timed_once_for_each_number() -> None:
    machine = Machine(2, work=8.0)
    machine.tuner().choose(machine.run)
    assert machine.passes == 2


def test_the_first_step_comes_before_the_choice() -> None:
    machine = Machine(2)
    tuner = machine.tuner()
    assert not tuner.due
    tuner.watch(0, 1.0)  # an empty step
    assert not tuner.due
    tuner.watch(1000, 1.0)
    assert tuner.due


def test_a_resumed_training_begins_with_the_number_of_the_checkpoint() -> None:
    machine = Machine(4)
    tuner = machine.tuner()
    tuner.begin(3)  # of a machine with other cores
    assert machine.threads == tuner.threads == 4
    tuner.begin(1)
    assert machine.threads == tuner.threads == 1
    tuner.watch(1000, 1.0)
    assert tuner.due and tuner.choose(machine.run).before == 1 and machine.threads == 4


def test_a_small_gain_changes_nothing() -> None:
    machine = Machine(2)
    machine.seconds = lambda n: 0.1 if n == 1 else 0.104  # type: ignore[method-assign]
    choice = machine.tuner().choose(machine.run)
    assert choice.threads == 2
    assert str(choice) == "Computing with 2 threads: a pass takes 100 ms with 1, 104 ms with 2."


def test_who_fixes_the_number(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu = torch.device("cpu")
    for name in threads.VARIABLES:
        monkeypatch.delenv(name, raising=False)
    assert isinstance(threads.tuner("auto", False, 1, cpu), ThreadTuner)
    assert threads.tuner("auto", True, 1, cpu) is None
    assert threads.tuner("auto", False, 2, cpu) is None
    assert threads.tuner("auto", False, 1, torch.device("cuda")) is None
    before = torch.get_num_threads()
    try:
        assert threads.tuner(1, False, 1, cpu) is None and torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    assert threads.tuner("auto", False, 1, cpu) is None


def test_the_load_of_others_is_a_number_of_cores() -> None:
    load = threads.OtherLoad()
    sum(range(300_000))
    assert 0 <= load() <= 1024


MODELS: dict[str, dict[str, Any]] = {
    "dropout": {"decoder.embedding.dropout": 0.3, "decoder.blocks.*.attention.dropout": 0.3},
    "experts": {
        "decoder.blocks.0.feedforward": MixtureOfExperts(n_experts=4, top_k=2, d_ff=16, bias_rate=0.1, jitter=0.1),
        "decoder.blocks.1.feedforward": MixtureOfExperts(n_experts=4, top_k=2, d_ff=16, bias_rate=0.1),
    },
    "performer": {"decoder.blocks.0.attention": qkv.Performer(n_heads=2)},
}


@pytest.mark.parametrize("name", MODELS)
def test_a_rehearsal_leaves_no_trace(name: str) -> None:
    spec = qkv.preset("gpt", vocab_size=50, d_model=16, n_layers=2, n_heads=2, max_positions=32).replace(MODELS[name])

    def losses(rehearsals: int) -> list[float]:
        torch.manual_seed(0)
        stepper = Stepper(build(spec, seed=1).train(), NextToken(), Training(), qkv.core.ranks.ALONE)
        taken = []
        for step in range(4):
            one = batch(step)
            for _ in range(rehearsals):
                stepper.rehearse(one)
            taken.append(stepper.take([one], 1e-2).loss.item())
        return taken

    assert losses(0) == losses(2)


def test_a_run_logs_what_was_chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(2)
    machine.busy = 1.0
    tuner = ThreadTuner([2, 1], lambda: machine.now, lambda: machine.busy, machine.set_threads)

    def rehearse(self: Stepper, batch: Any) -> None:
        machine.run()

    monkeypatch.setattr(threads, "tuner", lambda *_: tuner)
    monkeypatch.setattr(Stepper, "rehearse", rehearse)
    out = tmp_path / "run"
    qkv.train("reverse", out, steps=2, changes={"training.eval_every": None, "model.d_model": 16}, progress=False)
    records = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    (event,) = (record for record in records if record.get("event") == "threads")
    assert event["threads"] == 1 and event["seconds"] == {"1": 0.1, "2": 0.2} and event["others"] == 1.0
    assert json.loads((out / "machine.json").read_text())["threads"]["threads"] == 1
