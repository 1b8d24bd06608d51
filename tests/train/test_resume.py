"""Resumed = uninterrupted, bit for bit: weights, optimizer, generators, data order and logged losses."""

import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from train_stand_in import Tiny, open_stream, train

from qkv.train.checkpoint import MODEL, OPTIMIZER, load_state
from qkv.train.metrics import read_metrics
from qkv.train.outcome import Outcome

TIMES = ("elapsed", "tokens_per_s", "mfu")


class Killed(BaseException):
    pass


def dies_at(microbatch: int):
    """A stream in which the process ends as the batch of a number is fetched."""

    def opened(position):
        for one in open_stream(position):
            if one.position["next"] > microbatch:
                raise Killed
            yield one

    return opened


def fingerprint(out: Path, outcome: Outcome) -> dict:
    """Everything that two runs must have in common."""
    state = load_state(outcome.checkpoint)
    state["run"].pop("elapsed")
    state.pop("training")
    told = [line for line in read_metrics(out / "metrics.jsonl") if line["type"] in ("train", "eval", "final")]
    told = [{key: value for key, value in line.items() if key not in TIMES} for line in told]
    return {
        "state": state,
        "told": json.dumps(told),
        "kept": sorted(path.name for path in (out / "checkpoints").iterdir()),
        "model": (outcome.checkpoint / MODEL).read_bytes(),
        "optimizer": (outcome.checkpoint / OPTIMIZER).read_bytes(),
        "delivered": outcome.weights.read_bytes(),
    }


VARIANTS = {
    "fp32": {},
    "bf16": {"precision": "bf16"},
    "fp16": {"precision": "fp16"},
    "sgd": {"optimizer": {"kind": "sgd", "lr": 0.05}},
    "running average": {"average": "running"},
    "mean of checkpoints": {"average": 3},
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_killed_at_any_batch_and_resumed(tmp_path, variant):
    changes = VARIANTS[variant]
    wanted = fingerprint(tmp_path / "whole", train(tmp_path / "whole", **changes))
    # before the first save, in mid-accumulation, just before and after a save, and off every grid
    for microbatch in (2, 8, 9, 15, 21):
        out = tmp_path / str(microbatch)
        with pytest.raises(Killed):
            train(out, stream=dies_at(microbatch), **changes)
        got = fingerprint(out, train(out, Tiny(seed=0), resume=True, **changes))
        for name in wanted:
            assert got[name] == wanted[name], f"{name} differs after a kill at batch {microbatch}"


@pytest.mark.parametrize("variant", VARIANTS)
def test_interrupted_at_any_step_and_resumed(tmp_path, variant):
    """Ctrl-C saves off the grid, which must not change what is kept, averaged or evaluated."""
    changes = VARIANTS[variant]
    wanted = fingerprint(tmp_path / "whole", train(tmp_path / "whole", **changes))
    out, stops = tmp_path / "stopped", iter([7, 10, 15, 18, 21])

    def interrupted(position):
        stop = next(stops, None)
        for one in open_stream(position):
            if one.position["next"] == stop:
                os.kill(os.getpid(), signal.SIGINT)
            yield one

    outcome = train(out, stream=interrupted, **changes)
    sessions = 1
    while outcome.interrupted:
        outcome = train(out, Tiny(seed=5), stream=interrupted, resume=True, **changes)
        sessions += 1
    assert sessions == 6
    got = fingerprint(out, outcome)
    for name in wanted:
        assert got[name] == wanted[name], f"{name} differs"


def test_a_finished_run_resumes_to_itself_and_can_be_made_longer(tmp_path):
    first = fingerprint(tmp_path, train(tmp_path))
    assert fingerprint(tmp_path, train(tmp_path, resume=True)) == first
    outcome = train(tmp_path, max_steps=16, resume=True)
    assert outcome.state.step == 16
    events = [line for line in read_metrics(tmp_path / "metrics.jsonl") if line.get("event") == "resumed"]
    assert events[-1]["changed"] == {"max_steps": [12, 16]}


def test_the_throughput_right_after_a_resume_counts_this_session_only(tmp_path):
    with pytest.raises(Killed):
        train(tmp_path, stream=dies_at(9), log_every=3)  # saved at step 4, in the middle of a window
    train(tmp_path, resume=True, log_every=3)
    rates = [line["tokens_per_s"] for line in read_metrics(tmp_path / "metrics.jsonl") if line["type"] == "train"]
    assert max(rates) < 100 * min(rates)


def test_another_optimizer_is_a_clear_error(tmp_path):
    train(tmp_path)
    with pytest.raises(ValueError, match="trained with the optimizer 'adamw', and 'sgd' can't go on"):
        train(tmp_path, optimizer="sgd", resume=True)


def test_settings_by_which_the_optimizer_keeps_other_tensors_are_a_clear_error(tmp_path):
    train(tmp_path, optimizer={"kind": "adafactor"})
    with pytest.raises(
        ValueError, match=r"optimizer.safetensors lack .*/momentum'.*beta1 from 0.0 to 0.9\): resume with"
    ):
        train(tmp_path, optimizer={"kind": "adafactor", "beta1": 0.9}, resume=True)
    train(tmp_path, optimizer={"kind": "adafactor", "lr": 0.5}, max_steps=14, resume=True)


def test_another_model_is_a_clear_error(tmp_path):
    train(tmp_path)
    model = Tiny()
    model.norm = torch.nn.LayerNorm(4)
    with pytest.raises(ValueError, match=r"model.safetensors hold norm.weight of shape \(8,\)"):
        train(tmp_path, model, resume=True)


@pytest.mark.parametrize("name", [MODEL, OPTIMIZER])
def test_a_damaged_checkpoint_is_named(tmp_path, name):
    path = train(tmp_path).checkpoint / name
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(bytes(content))
    with pytest.raises(ValueError, match=rf"step-00000012/{name} was changed"):
        train(tmp_path, resume=True)


def test_resuming_nothing_begins(tmp_path):
    assert train(tmp_path, resume=True).state.step == 12


def kill_script(out: Path, seed: int, trials: int) -> dict:
    script = Path(__file__).with_name("train_kill_run.py")
    done = subprocess.run(
        [sys.executable, str(script), str(out), str(seed), str(trials)], capture_output=True, text=True, timeout=280
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_kill_9_and_resume_until_it_ends(tmp_path):
    result = kill_script(tmp_path, seed=0, trials=5)
    assert result == {"kills": 5, "same": True}


@pytest.mark.slow
def test_kill_9_and_resume_100_times(tmp_path):
    result = kill_script(tmp_path, seed=random.randrange(1000), trials=100)
    assert result == {"kills": 100, "same": True}
