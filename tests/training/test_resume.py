"""Resumed = uninterrupted, bit for bit: weights, optimizer, generators, data order and logged losses."""

import contextlib
import json
import math
import os
import random
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from fast_subset import fast
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from train_stand_in import Tiny, open_stream, train

from qkv.core import atomic
from qkv.training.checkpoints import checkpoint
from qkv.training.checkpoints.checkpoint import MODEL, OPTIMIZER, STATE, load_state
from qkv.training.logging.metrics_file import read_metrics
from qkv.training.result import Diverged, TrainingResult

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


def fingerprint(out: Path, outcome: TrainingResult) -> dict:
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


@pytest.mark.parametrize("variant", fast(VARIANTS, "fp32", "fp16", "running average"))
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


@pytest.mark.parametrize("variant", fast(VARIANTS, "bf16", "sgd", "mean of checkpoints"))
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
    with pytest.raises(ValueError, match="trained with the optimizer 'adamw', and 'sgd' can't continue"):
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


def spoil(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(bytes(content))


def told(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize("name", [MODEL, OPTIMIZER, STATE])
def test_a_damaged_newest_checkpoint_is_set_aside_and_the_run_continues_from_the_one_before(tmp_path, name, capsys):
    wanted = fingerprint(tmp_path / "whole", train(tmp_path / "whole"))
    spoil(train(tmp_path / "run").checkpoint / name)
    outcome = train(tmp_path / "run", Tiny(seed=3), resume=True)
    said = told(capsys.readouterr().err)
    assert f"step-00000012/{name} was changed" in said and "Going on from step-00000010" in said
    assert (tmp_path / "run/checkpoints/damaged-step-00000012" / name).is_file()
    got = fingerprint(tmp_path / "run", outcome)
    assert got | {"kept": wanted["kept"]} == wanted


def test_a_state_that_holds_none_of_a_run_is_set_aside_too(tmp_path, capsys):
    """Its checksum may fit all the same."""
    path = train(tmp_path).checkpoint / STATE
    content = json.loads(path.read_text())
    for spoiled in ({"run": []}, {"window": 3}, {"rng": {"python": 1}}, {"run": {"step": "many"}}):
        rest = {**content, "state": {**content["state"], **spoiled}}
        rest.pop("sha256")
        path.write_text(json.dumps({"sha256": checkpoint._digest(rest), **rest}))
        assert train(tmp_path, Tiny(seed=3), resume=True).state.step == 12
        assert "holds no state of a run" in told(capsys.readouterr().err)


@pytest.mark.parametrize("name", [MODEL, OPTIMIZER])
def test_numbers_of_a_checkpoint_that_are_not_finite_are_told(tmp_path, name):
    train(tmp_path, Tiny(), max_steps=4, save_every=2)
    newest = checkpoint.Checkpoints(tmp_path / "checkpoints").newest()
    tensors, state = load_file(newest / name), json.loads((newest / STATE).read_text())
    broken = next(key for key, tensor in tensors.items() if tensor.is_floating_point() and tensor.numel() > 1)
    tensors[broken].view(-1)[-1] = math.nan
    with safe_open(newest / name, "pt") as file:
        save_file(tensors, newest / name, file.metadata())
    state["files"][name] = {"sha256": atomic.sha256(newest / name), "bytes": (newest / name).stat().st_size}
    files = state.pop("files")
    checkpoint._write_state(newest, files, {key: value for key, value in state.items() if key != "sha256"})
    told = re.escape(f"step-00000004 has NaN or infinite numbers in '{name}: {broken}'")
    with pytest.warns(UserWarning, match=told), contextlib.suppress(Diverged):  # of weights, nothing can be delivered
        train(tmp_path, Tiny(), max_steps=4, save_every=2, resume=True)


def test_where_every_checkpoint_is_damaged_nothing_is_touched(tmp_path):
    train(tmp_path)
    for path in (tmp_path / "checkpoints").glob("step-*"):
        spoil(path / MODEL)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    for _ in range(2):
        with pytest.raises(
            ValueError, match=r"no checkpoint in .* is intact .*step-00000012/model.safetensors was chang"
        ):
            train(tmp_path, resume=True)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("damage", ["gone", "changed"])
def test_a_best_checkpoint_that_is_damaged_is_not_claimed(tmp_path, damage, capsys):
    def best_at_five(model, step):
        return {"loss": 1.0 if step == 5 else float(step)}

    train(tmp_path, evaluate=best_at_five)
    best = tmp_path / "checkpoints/step-00000005"
    shutil.rmtree(best) if damage == "gone" else spoil(best / MODEL)
    outcome = train(tmp_path, evaluate=best_at_five, max_steps=14, resume=True)
    assert ("is gone" if damage == "gone" else "was changed") in told(capsys.readouterr().err)
    assert (outcome.source, outcome.metrics) == ("the weights of step 14", {"loss": 14.0})


def test_an_interrupt_while_the_best_is_evaluated_does_not_lose_it(tmp_path):
    """What is saved off the grid goes at the next save; the best does not."""

    def interrupted(model, step):
        if step == 5:
            os.kill(os.getpid(), signal.SIGINT)
        return {"loss": 1.0 if step == 5 else float(step)}

    assert train(tmp_path, evaluate=interrupted).interrupted
    outcome = train(tmp_path, Tiny(seed=3), evaluate=interrupted, resume=True)
    assert (outcome.source, outcome.metrics) == ("the weights of step 5", {"loss": 1.0})


def test_a_kill_after_the_last_save_repeats_no_line(tmp_path):
    """12 steps, a line every 5: the line that closes the run is written after the checkpoint."""
    train(tmp_path, log_every=5)
    whole = [line["step"] for line in read_metrics(tmp_path / "metrics.jsonl") if line["type"] == "train"]
    train(tmp_path, log_every=5, resume=True)
    again = [line["step"] for line in read_metrics(tmp_path / "metrics.jsonl") if line["type"] == "train"]
    assert again == whole == [5, 10, 12]
    train(tmp_path, log_every=5, max_steps=17, resume=True)
    longer = [line["step"] for line in read_metrics(tmp_path / "metrics.jsonl") if line["type"] == "train"]
    assert longer == [5, 10, 15, 17]


def test_what_changed_beneath_a_run_is_told(tmp_path, capsys, monkeypatch):
    train(tmp_path, fingerprint={"data": "a" * 64, "rows": 5})
    capsys.readouterr()
    train(tmp_path, fingerprint={"data": "a" * 64, "rows": 5}, max_steps=13, resume=True)
    assert "not as before" not in capsys.readouterr().err
    monkeypatch.setattr(torch, "get_num_threads", lambda: 7)
    train(tmp_path, fingerprint={"data": "b" * 64, "rows": 6}, max_steps=14, resume=True)
    assert "not as before: threads 1 → 7, data changed, rows 5 → 6" in told(capsys.readouterr().err)
    event = [line for line in read_metrics(tmp_path / "metrics.jsonl") if line.get("event") == "differs"]
    assert event[0]["changed"]["rows"] == [5, 6]


def test_another_learning_rate_takes_effect_and_is_told(tmp_path, capsys):
    train(tmp_path, schedule="constant", optimizer={"kind": "adamw", "lr": 0.001}, log_every=1)
    train(tmp_path, schedule="constant", optimizer={"kind": "adamw", "lr": 0.5}, log_every=1, max_steps=13, resume=True)
    rates = [line["lr"] for line in read_metrics(tmp_path / "metrics.jsonl") if line["type"] == "train"]
    assert rates[11:] == [0.001, 0.5]
    assert "with other settings: optimizer.lr 0.5, before 0.001, max_steps 13, before 12" in told(
        capsys.readouterr().err
    )


def test_fewer_steps_than_are_done_are_told(tmp_path, capsys):
    train(tmp_path)
    capsys.readouterr()
    assert train(tmp_path, max_steps=5, resume=True).state.step == 12
    said = told(capsys.readouterr().err)
    assert "12 steps are done already, more than max_steps=5" in said and "of 5" not in said


def test_resuming_nothing_begins(tmp_path):
    assert train(tmp_path, resume=True).state.step == 12


def kill_script(out: Path, seed: int, trials: int) -> dict:
    script = Path(__file__).with_name("train_kill_run.py")
    done = subprocess.run(
        [sys.executable, str(script), str(out), str(seed), str(trials)], capture_output=True, text=True, timeout=280
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow  # tests/hostile/test_kills.py kills at chosen operations
def test_kill_9_and_resume_until_it_ends(tmp_path):
    result = kill_script(tmp_path, seed=0, trials=5)
    assert result == {"kills": 5, "same": True}


@pytest.mark.slow
def test_kill_9_and_resume_100_times(tmp_path):
    result = kill_script(tmp_path, seed=random.randrange(1000), trials=100)
    assert result == {"kills": 100, "same": True}
