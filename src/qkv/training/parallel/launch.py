"""Launch several ranks of a command on this machine, watch them, and end all of them when one fails."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import torch

from ...core.device import choose
from ...core.spec import counted
from ...nn.cost.hardware import available, cores, usable_cores
from .world import ADDRESS, LOCAL_RANK, PORT, RANK, SIZE

LAUNCHER = "QKV_LAUNCHER"  # the number of a pipe that is closed when the launcher ends
ERRORS = "QKV_ERRORS"  # the folder in which ranks leave the message of the error that ended them
GRACE = 10.0  # seconds that ranks have to end after one has failed
RANKS_A_CORE = 8  # more would mostly wait for each other
RANK_BYTES = 0.3e9  # minimum memory of a rank on a CPU: Python, PyTorch and qkv


@dataclass(frozen=True)
class Failure:
    """The rank that failed first. `status` is its exit status, or −signal."""

    rank: int
    status: int
    message: str

    def __str__(self) -> str:
        if self.status < 0:
            name = signal.Signals(-self.status).name if -self.status in set(signal.Signals) else str(-self.status)
            hint = " (the system may have run out of memory)" if name == "SIGKILL" else ""
            return f"rank {self.rank} was ended by {name}{hint}"
        if not self.message:
            return f"rank {self.rank} ended with status {self.status}"
        return self.message if self.rank == 0 else f"rank {self.rank}: {self.message}"


def check_count(ranks: int, device: str) -> None:
    """Check that this machine can run this many ranks. Raises ValueError, which names the maximum, if it can't."""
    where = choose(device)
    if where.type == "cuda":
        if where.index is not None and ranks > 1:
            raise ValueError(
                f"--device {device} is one GPU, and each of {ranks} ranks needs its own; give --device cuda"
            )
        gpus = torch.cuda.device_count()
        if ranks > gpus:
            raise ValueError(
                f"--nproc {ranks} needs a GPU for each rank, and this machine has {counted(gpus, 'GPU')}; give at most "
                f"--nproc {gpus}, or --device cpu"
            )
        return
    at_most = RANKS_A_CORE * usable_cores()
    if ranks > at_most:
        raise ValueError(
            f"--nproc {ranks} is too many for this machine, which has {counted(usable_cores(), 'core')}; give at most "
            f"--nproc {at_most}, {RANKS_A_CORE} ranks a core"
        )
    free = available(torch.device("cpu"))
    if free is not None and ranks * RANK_BYTES > free:
        raise ValueError(
            f"--nproc {ranks} needs at least {ranks * RANK_BYTES / 1e9:.1f} GB of memory, {RANK_BYTES / 1e9:g} GB a rank, "
            f"and {free / 1e9:.1f} GB are free; give at most --nproc {max(1, int(free // RANK_BYTES))}"
        )


def launched_here() -> bool:
    """Whether `launch` started this process as one of its ranks."""
    return ERRORS in os.environ


def threads_of(ranks: int) -> int:
    """Return the number of threads of each rank if this many run on this machine."""
    given = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0]
    return int(given) if given.isdecimal() and int(given) else max(1, cores() // ranks)


def launch(arguments: Sequence[str], ranks: int, run: Path) -> int | Failure:
    """Run `python -m qkv ARGUMENTS` as so many ranks on this machine.

    Rank 0 has this process's terminal. What the others print is moved to `run`/logs/rank-N.log at the end, if `run` is a
    directory then. The cores are divided among the ranks, unless OMP_NUM_THREADS is set. When a rank fails, the others are
    ended. When this process is killed, the ranks end too. Returns the exit status of rank 0, or the first failure.
    """
    with tempfile.TemporaryDirectory(prefix="qkv-ranks-") as name, _pipe() as pipe:
        folder, port = Path(name), _free_port()
        processes = [_start(arguments, rank, ranks, port, folder, pipe) for rank in range(ranks)]

        def forward(number: int, _: object) -> None:
            for process in processes:
                process.send_signal(number)

        before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # the ranks get Ctrl-C too, save and end
        before_term = signal.signal(signal.SIGTERM, forward)
        try:
            return _watch(processes, folder)
        finally:
            signal.signal(signal.SIGINT, before)
            signal.signal(signal.SIGTERM, before_term)
            _end(processes)
            _keep_logs(folder, run)


@contextmanager
def _pipe() -> Iterator[int | None]:
    """A pipe, given by the end that ranks read. Its other end is closed with the block, or when this process is killed."""
    if os.name != "posix":  # other systems can't pass a pipe to a process
        yield None
        return
    reads, writes = os.pipe()
    try:
        yield reads
    finally:
        os.close(reads)
        os.close(writes)


def end_with_launcher() -> None:
    """Let this rank end when its launcher is killed: as after SIGTERM, which saves, and after a while by force."""
    given = os.environ.get(LAUNCHER, "")
    if not given.isdecimal():
        return

    def watch() -> None:
        with suppress(OSError):
            os.read(int(given), 1)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(GRACE)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _start(
    arguments: Sequence[str], rank: int, ranks: int, port: int, folder: Path, pipe: int | None
) -> subprocess.Popen[bytes]:
    environment = {
        "OMP_NUM_THREADS": str(threads_of(ranks)),
        **os.environ,
        RANK: str(rank),
        LOCAL_RANK: str(rank),
        SIZE: str(ranks),
        ADDRESS: "127.0.0.1",
        PORT: str(port),
        ERRORS: str(folder),
        **({} if pipe is None else {LAUNCHER: str(pipe)}),
    }
    passed = () if pipe is None else (pipe,)
    command = [sys.executable, "-m", "qkv", *arguments]
    if rank == 0:
        return subprocess.Popen(command, env=environment, pass_fds=passed)
    with (folder / f"rank-{rank}.log").open("wb") as log:
        return subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, pass_fds=passed
        )


def _watch(processes: Sequence[subprocess.Popen[bytes]], folder: Path) -> int | Failure:
    """Wait until all ranks have ended, or one has failed."""
    while True:
        statuses = [process.poll() for process in processes]
        failed = [rank for rank, status in enumerate(statuses) if status not in (None, 0) and not _interrupted(status)]
        if failed:
            return _first(processes, folder, failed)
        if None not in statuses:
            return statuses[0] or 0
        time.sleep(0.05)


def _interrupted(status: int | None) -> bool:
    return status == 130


def _first(processes: Sequence[subprocess.Popen[bytes]], folder: Path, failed: list[int]) -> Failure:
    """The failure that was the cause: one that is not the loss of another rank."""
    time.sleep(0.5)  # the loss of a connection may be noticed before the end of the process that closed it
    failed = [rank for rank, process in enumerate(processes) if process.poll() not in (None, 0)] or failed
    failures = [_failure(rank, processes[rank].returncode, folder) for rank in failed]
    own = [failure for failure, lost in failures if not lost]
    return min(own or [failure for failure, _ in failures], key=lambda failure: (failure.status > 0, failure.rank))


def _failure(rank: int, status: int, folder: Path) -> tuple[Failure, bool]:
    """A rank's failure, and whether it only lost the connection to others."""
    try:
        left = json.loads((folder / f"{rank}.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return Failure(rank, status, ""), False
    return Failure(left["rank"], status, left["message"]), left["lost"]


def leave_error(message: str, lost: bool, of_rank: int | None = None) -> bool:
    """Leave an error's message to the launcher, which prints one for all ranks. Returns false if there is no launcher.

    of_rank: the rank that met the error, if it is another one, which the message names (`Team.together`).
    """
    folder = os.environ.get(ERRORS)
    if folder is None or not Path(folder).is_dir():
        return False
    own = int(os.environ.get(RANK, "0"))
    rank = own if of_rank is None else of_rank
    text = json.dumps({"message": message.removeprefix(f"rank {rank}: "), "rank": rank, "lost": lost})
    (Path(folder) / f"{own}.json").write_text(text, encoding="utf-8")
    return True


def _end(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """End the ranks that still run: politely, and after a while by force."""
    deadline = time.monotonic() + GRACE
    for process in processes:
        if process.poll() is None:
            process.terminate()
    for process in processes:
        try:
            process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _keep_logs(folder: Path, run: Path) -> None:
    """Move what ranks printed into the run's directory. Earlier logs of the same ranks are kept above them."""
    logs = [log for log in sorted(folder.glob("rank-*.log")) if log.stat().st_size]
    if not logs or not run.is_dir():
        return
    (run / "logs").mkdir(exist_ok=True)
    for log in logs:
        with (run / "logs" / log.name).open("ab") as kept:
            kept.write(log.read_bytes())


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def restarted(arguments: Sequence[str], ranks: int, restarts: int, run: Path) -> tuple[int | Failure, int]:
    """Launch ranks, and launch them again with `--resume` after a failure that another try may mend (a killed or lost rank,
    not a mistake of the user's). Returns the outcome and the number of restarts."""
    done = 0
    while True:
        outcome = launch(arguments, ranks, run)
        mendable = isinstance(outcome, Failure) and outcome.status != 2
        if not mendable or done == restarts:
            return outcome, done
        done += 1
        print(
            f"qkv: {outcome}; starting again from the last save ({done} of {counted(restarts, 'restart')})",
            file=sys.stderr,
        )
        arguments = [word for word in arguments if word not in ("--resume", "--overwrite")] + ["--resume"]
