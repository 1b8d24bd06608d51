"""Jobs in turn and at once: the same results, an equal share of threads, and no process that outlives the study."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from qkv.lab.studies.processes import do_all

KILLED = """
import os, sys, time
from pathlib import Path
from qkv.lab.studies.processes import do_all

def work(folder):
    Path(folder, str(os.getpid())).write_text("")
    try:
        time.sleep(60)
    except KeyboardInterrupt:
        Path(folder, f"{os.getpid()} saved").write_text("")

if __name__ == "__main__":
    for _ in do_all(iter([(1, sys.argv[1]), (2, sys.argv[1])]), work, lambda *_: None, 2):
        pass
"""


def square(n: int) -> tuple[int, int]:
    if n == 13:
        raise ValueError("thirteen")
    return n * n, torch.get_num_threads()


def ignore(key: int, job: int) -> None: ...


def test_in_turn_a_job_begins_when_the_one_before_it_is_done() -> None:
    seen: list[str] = []

    def jobs() -> Iterator[tuple[int, int]]:
        for n in (2, 3):
            seen.append(f"asked {n}")
            yield n, n

    for key, end in do_all(jobs(), square, lambda key, job: seen.append(f"begun {key}")):
        result = end()
        assert result is not None and result[0] == key * key
        seen.append(f"done {key}")
    assert seen == ["asked 2", "begun 2", "done 2", "asked 3", "begun 3", "done 3"]


@pytest.mark.slow
def test_at_once_gives_the_same_results_and_an_error_ends_it() -> None:
    results = {key: end() for key, end in do_all(iter([(n, n) for n in range(4)]), square, ignore, 2)}
    assert {key: result[0] for key, result in results.items() if result is not None} == {n: n * n for n in range(4)}
    threads = max(1, torch.get_num_threads() // 2)
    assert all(result is not None and result[1] == threads for result in results.values())
    with pytest.raises(ValueError, match="thirteen"):
        for _, end in do_all(iter([(13, 13), (4, 4)]), square, ignore, 2):
            end()


@pytest.mark.slow
def test_after_a_kill_the_processes_save_and_stop(tmp_path: Path) -> None:
    (tmp_path / "study.py").write_text(KILLED)
    folder = tmp_path / "runs"
    folder.mkdir()
    study = subprocess.Popen([sys.executable, str(tmp_path / "study.py"), str(folder)], stderr=subprocess.DEVNULL)
    _until(lambda: len(list(folder.iterdir())) == 2)
    os.kill(study.pid, signal.SIGKILL)
    study.wait()
    _until(lambda: len(list(folder.glob("* saved"))) == 2)
    workers = [int(path.name) for path in folder.iterdir() if path.name.isdigit()]
    _until(lambda: not any(_runs(pid) for pid in workers))


def _until(condition: object) -> None:
    assert callable(condition)
    end = time.monotonic() + 300
    while not condition():
        assert time.monotonic() < end, "it took longer than five minutes"
        time.sleep(0.1)


def _runs(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return status.rsplit(")", 1)[1].split()[0] != "Z"
