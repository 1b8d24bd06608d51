"""`qkv train --nproc`: several ranks of one command, their errors, and restarts after a crash."""

import json
import os
import re
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import torch

from qkv.cli import main
from qkv.training.parallel import launch
from qkv.training.parallel.launch import Failure, _failure, check_count, leave_error, threads_of

pytestmark = pytest.mark.xdist_group("ranks")
TINY = ("model.d_model=16", "model.n_heads=2", "model.n_layers=1", "batching.tokens=300", "training.precision=fp32")
QUICK = (
    *TINY,
    "training.max_steps=4",
    "training.eval_every=null",
    "evaluation.test_examples=8",
    "evaluation.examples=8",
)


def qkv(*arguments, timeout=150, **environment):
    command = [sys.executable, "-m", "qkv", *map(str, arguments)]
    env = {**os.environ, "OMP_NUM_THREADS": "1", **environment}
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout, env=env, check=False)


def start(*arguments):
    command = [sys.executable, "-m", "qkv", *map(str, arguments)]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)


def rank(process, number):
    """The process of a rank under a launcher."""
    for child in psutil.Process(process.pid).children():
        if child.environ().get("RANK") == str(number):
            return child
    raise AssertionError(f"there is no rank {number}")


def wait_for(path, process, seconds=90):
    end = time.monotonic() + seconds
    while not path.exists():
        assert time.monotonic() < end, f"no {path}"
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)


@pytest.mark.slow
def test_two_ranks_train_a_run_as_one_does(tmp_path, capfd, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    status = main(["train", "reverse", *QUICK, "--out", str(tmp_path / "two"), "--nproc", "2"])
    done = capfd.readouterr()
    assert status == 0, done.err
    assert done.out.count("Training reverse") == 1 and "step 4 of 4" in done.out
    assert done.out.startswith("Starting 2 ranks of 1 thread")
    command = json.loads((tmp_path / "two" / "start.json").read_text())["command"]
    assert command.startswith("qkv train reverse ") and command.endswith(" --nproc 2")
    assert main(["train", "reverse", *QUICK, "--out", str(tmp_path / "one")]) == 0
    losses = [
        json.loads((tmp_path / name / "evaluation.json").read_text())["metrics"]["loss"] for name in ("one", "two")
    ]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)
    assert not (tmp_path / "two" / ".lock").exists()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (("scale.shard=3",), "scale: shard=3 does not fit 2 ranks; data × shard can be 2 × 1, 1 × 2"),
        (("scale.data=4",), "scale: data × shard = 4 × 1 = 4 does not fit 2 ranks"),
        (
            ("scale.tensor=4", "scale.data=1"),
            "scale: data × shard × tensor = 1 × 1 × 4 = 4 does not fit 2 ranks; data × shard × tensor can be 2 × 1 × 1, "
            "1 × 2 × 1, 1 × 1 × 2",
        ),
        (("scale.context=3",), "scale: shard × context = 1 × 3 = 3 does not fit 2 ranks"),
        (("scale.zero=2",), "zero=2 divides over `shard` ranks, and shard is 1"),
    ],
)
def test_a_mesh_that_does_not_fit_is_refused_before_anything_starts(tmp_path, capsys, settings, message):
    assert main(["train", "reverse", *QUICK, *settings, "--out", str(tmp_path / "run"), "--nproc", "2"]) == 2
    errors = capsys.readouterr().err
    assert message in errors and errors.count("qkv:") == 1
    assert not (tmp_path / "run").exists()


def test_a_comparison_on_many_ranks_is_refused_before_they_start(capsys, tmp_path):
    assert main(["train", "long-range", "--out", str(tmp_path / "run"), "--nproc", "2"]) == 2
    assert "long-range compares several models, and one process trains them all" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_a_missing_device_is_told_before_anything_starts(tmp_path, capsys):
    assert main(["train", "reverse", *QUICK, "--out", str(tmp_path / "run"), "--nproc", "2", "--device", "cuda"]) == 2
    errors = capsys.readouterr().err
    assert errors.startswith("qkv: this machine has no CUDA device") and errors.count("qkv:") == 1
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("ranks", "device", "message"),
    [
        (
            33,
            "cpu",
            "--nproc 33 is too many for this machine, which has 4 cores; give at most --nproc 32, 8 ranks a core",
        ),
        (20, "cpu", "needs at least 6.0 GB of memory, 0.3 GB a rank, and 4.0 GB are free; give at most --nproc 13"),
        (4, "cuda", "needs a GPU for each rank, and this machine has 2 GPUs; give at most --nproc 2, or --device cpu"),
        (2, "cuda:1", "--device cuda:1 is one GPU, and each of 2 ranks needs its own; give --device cuda"),
    ],
)
def test_more_ranks_than_the_machine_has_room_for_are_refused(monkeypatch, ranks, device, message):
    monkeypatch.setattr(launch, "usable_cores", lambda: 4)
    monkeypatch.setattr(launch, "available", lambda device: 4_000_000_000)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(ValueError, match=re.escape(message)):
        check_count(ranks, device)
    for fits in {"cpu": (1, 13), "cuda": (1, 2), "cuda:1": (1,)}[device]:
        check_count(fits, device)  # what the message advises


def test_the_cores_are_divided_among_the_ranks(monkeypatch):
    monkeypatch.setattr(launch, "cores", lambda: 8)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert [threads_of(ranks) for ranks in (1, 2, 3, 16)] == [8, 4, 2, 1]
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert threads_of(2) == 3


@pytest.mark.parametrize("given", ["0", "x", "1000"])
def test_a_wrong_number_of_ranks_starts_nothing(tmp_path, capsys, monkeypatch, given):
    monkeypatch.setattr(launch, "usable_cores", lambda: 4)
    assert main(["train", "reverse", *QUICK, "--out", str(tmp_path / "run"), "--nproc", given, "--device", "cpu"]) == 2
    errors = capsys.readouterr().err
    assert errors.startswith("qkv: ") and "--nproc" in errors and errors.count("\n") == 1
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_an_error_that_every_rank_meets_is_printed_once(tmp_path):
    settings = (*QUICK, "scale.shard=2", "training.optimizer={kind: muon, lr: 0.01}")
    done = qkv("train", "reverse", *settings, "--out", tmp_path / "run", "--nproc", 2)
    assert done.returncode == 2
    assert done.stderr.strip() == (
        "qkv: the optimizer 'muon' needs whole parameters, and zero=3 divides them; give scale.zero=2, or an element-wise "
        "optimizer such as adamw"
    )


@pytest.mark.slow
def test_a_killed_rank_is_named_and_a_restart_continues_from_the_last_save(tmp_path):
    arguments = (
        "train",
        "reverse",
        *TINY,
        "training.max_steps=60",
        "training.save_every=5",
        "evaluation.test_examples=8",
    )
    process = start(*arguments, "--out", tmp_path / "run", "--nproc", 2, "--restarts", 1)
    wait_for(tmp_path / "run/checkpoints/step-00000010", process)
    rank(process, 1).kill()
    _, errors = process.communicate(timeout=200)
    assert process.returncode == 0, errors
    assert "rank 1 was ended by SIGKILL" in errors and "1 of 1 restart" in errors
    assert (tmp_path / "run" / "evaluation.json").exists()


@pytest.mark.slow
def test_a_rank_that_hangs_is_named_within_the_timeout(tmp_path):
    arguments = ("train", "reverse", *TINY, "training.max_steps=100000", "training.save_every=5", "scale.timeout=8s")
    process = start(*arguments, "--out", tmp_path / "run", "--nproc", 2)
    wait_for(tmp_path / "run/checkpoints/step-00000010", process)
    stopped = rank(process, 1)
    stopped.suspend()
    began = time.monotonic()
    _, errors = process.communicate(timeout=100)
    assert process.returncode == 1 and time.monotonic() - began < 60
    assert errors.count("qkv:") == 1 and "rank 1 ended, or does not answer any more" in errors
    assert "--resume" in errors and not stopped.is_running()


@pytest.mark.slow
@pytest.mark.parametrize("scale", ["{data: 2, shard: 2}", "{tensor: 2, pipeline: 2}"])
def test_the_timeout_holds_for_every_group_of_ranks(tmp_path, scale):
    settings = (
        *(text for text in TINY if not text.startswith("model.n_layers=")),
        "model.n_layers=2",
        "training.max_steps=100000",
        "training.save_every=5",
        "training.accumulate=2",
    )
    process = start(
        "train", "reverse", *settings, f"scale={scale}", "scale.timeout=20s", "--out", tmp_path / "run", "--nproc", 4
    )
    wait_for(tmp_path / "run/checkpoints/step-00000005", process, 200)
    stopped = rank(process, 3)
    stopped.suspend()
    began = time.monotonic()
    _, errors = process.communicate(timeout=100)
    assert process.returncode == 1 and time.monotonic() - began < 80
    # Others may have ended before the last one looks.
    assert errors.count("qkv:") == 1 and re.search(r"ranks? (\d, )*3 ended, or does not answer any more", errors)
    assert not stopped.is_running()


@pytest.mark.slow
def test_a_killed_launcher_takes_its_ranks_along(tmp_path):
    process = start("train", "reverse", *TINY, "training.max_steps=100000", "training.save_every=5", "--out",
                    tmp_path / "run", "--nproc", 2)  # fmt: skip
    wait_for(tmp_path / "run/checkpoints/step-00000005", process)
    ranks = [rank(process, number) for number in range(2)]
    process.kill()
    _, alive = psutil.wait_procs(ranks, timeout=60)
    assert not alive


@pytest.mark.slow
def test_an_unreachable_rendezvous_is_told_with_its_address(tmp_path):
    where = {"RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "9"}
    done = qkv("train", "reverse", *QUICK, "scale.timeout=5s", "--out", tmp_path / "run", **where)
    assert done.returncode == 2
    assert "rank 1 of 2 could not meet the others at 127.0.0.1:9 within 5 s" in done.stderr
    lines = [line for line in done.stderr.splitlines() if "waits for the others" not in line]
    assert len(lines) == 1 and not (tmp_path / "run").exists()


def test_restarts_without_ranks_are_refused(tmp_path, capsys):
    assert main(["train", "reverse", *QUICK, "--out", str(tmp_path / "run"), "--restarts", "2"]) == 2
    assert (
        capsys.readouterr().err
        == "qkv: --restarts starts the ranks of --nproc again; give --nproc too, or leave it out\n"
    )
    assert not (tmp_path / "run").exists()


def test_the_messages_of_failures():
    assert str(Failure(1, -9, "")) == "rank 1 was ended by SIGKILL (the system may have run out of memory)"
    assert str(Failure(0, 2, "no such file")) == "no such file"
    assert str(Failure(3, 2, "no such file")) == "rank 3: no such file"
    assert str(Failure(3, 5, "")) == "rank 3 ended with status 5"


def test_an_error_is_left_to_a_launcher_if_there_is_one(tmp_path: Path, monkeypatch):
    monkeypatch.delenv("QKV_ERRORS", raising=False)
    assert not leave_error("text", lost=False)
    monkeypatch.setenv("QKV_ERRORS", str(tmp_path))
    monkeypatch.setenv("RANK", "3")
    assert _failure(3, 2, tmp_path) == (Failure(3, 2, ""), False)
    assert leave_error("text", lost=True)
    assert _failure(3, 1, tmp_path) == (Failure(3, 1, "text"), True)
    assert leave_error("rank 0: text", lost=False, of_rank=0)  # which rank 0 met, and may not have ended of yet
    assert str(_failure(3, 2, tmp_path)[0]) == "text"


@pytest.mark.slow
def test_torchrun_trains_too_and_resumes_what_is_not_there_yet(tmp_path):
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "2",
        "-m",
        "qkv",
        "train",
    ]
    arguments = ["reverse", *QUICK, "scale.shard=2", "--out", str(tmp_path / "run"), "--resume"]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=150, env=env, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Training reverse") == 1
    assert sorted(path.name for path in (tmp_path / "run/checkpoints/step-00000004").glob("model*")) == [
        "model-00001-of-00002.safetensors",
        "model-00002-of-00002.safetensors",
    ]


# The clock of rank 1 is a day ahead.
AHEAD = """
import os, sys, time
if os.environ["RANK"] == "1":
    now = time.time
    time.time = lambda: now() + 86400.0
from qkv.cli import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.slow
def test_ranks_that_start_late_and_have_other_clocks_train_the_same_run(tmp_path):
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    shared = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
    settings = (*QUICK, "training.max_steps=20", "training.max_time=60s", "scale.timeout=60s", "scale.shard=2")
    command = [
        sys.executable,
        "-c",
        AHEAD,
        "train",
        "reverse",
        *settings,
        "--device",
        "cpu",
        "--out",
        str(tmp_path / "run"),
    ]
    processes = []
    for number in range(2):
        environment = {**shared, "RANK": str(number), "LOCAL_RANK": str(number)}
        processes.append(subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True))
        time.sleep(0 if number else 27)  # longer than a rank waits in silence
    errors = [process.communicate(timeout=200)[1] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], errors
    assert f"rank 0 of 2 waits for the others at 127.0.0.1:{port}, up to 60 s (scale.timeout)" in errors[0]
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert any(line.get("step") == 20 for line in lines)
