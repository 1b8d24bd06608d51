"""Ranks that are killed (SIGKILL) or stopped (SIGSTOP) at random moments under their launcher: all processes must end.

    python tests/hostile/rank_ends.py FOLDER --seed 0 --kills 50 --stops 20 --minutes 30

A run of two ranks of `qkv train --nproc` is started or resumed, and one of its ranks, or the launcher, gets the signal at a
moment drawn by the seed. Within `scale.timeout`, the time that ranks have to end, and a margin, the launcher has to end with
one sentence that names the rank, and no process may be left. Prints one JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

import psutil

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "helpers")]

TIMEOUT = 6.0  # of a rank that is not heard of
ENDING = 10.0  # seconds that ranks have to end
MARGIN = 15.0  # seconds of a busy machine
LAYOUTS = (("scale.shard=2",), (), ("scale.tensor=2",), ("scale.pipeline=2",), ("scale.shard=2", "scale.zero=1"))


@dataclass
class Ends:
    """How often a signal was sent, and how long ranks took to end after it, at most."""

    suite: str = "rank ends"
    kills: int = 0
    stops: int = 0
    runs: int = 0
    slowest_kill: float = 0.0
    slowest_stop: float = 0.0
    seconds: float = 0.0
    wrong: list[str] = field(default_factory=list)


def rank_ends(folder: Path, kills: int, stops: int, seed: int = 0, minutes: float = 60.0) -> Ends:
    from run_tiny import TINY

    ends, began, draw = Ends(), time.monotonic(), random.Random(seed)
    names = [signal.SIGKILL] * kills + [signal.SIGSTOP] * stops
    draw.shuffle(names)
    for number, sent in enumerate(names):
        if time.monotonic() - began > 60.0 * minutes:
            break
        layout = LAYOUTS[number % len(LAYOUTS)]
        victim = draw.choice(["launcher", 0, 1]) if sent == signal.SIGKILL else draw.randrange(2)
        out = folder / str(number % 10)  # runs are resumed, as they end at different places
        settings = [*TINY, "training.max_steps=100000", "training.eval_every=40", "training.save_every=10", *layout]
        ends.runs += 1
        one(ends, out / "-".join(layout or ("data",)), settings, sent, victim, draw.uniform(0.5, 25.0))
        print(f"{ends.kills} kills, {ends.stops} stops, {len(ends.wrong)} wrong", file=sys.stderr, flush=True)
    ends.seconds = time.monotonic() - began
    return ends


def one(ends: Ends, out: Path, settings: list[str], sent: int, victim: str | int, moment: float) -> None:
    """Start a run, send one signal, and look what is left when it should be over."""
    command = [
        sys.executable,
        "-m",
        "qkv",
        "train",
        "reverse",
        *settings,
        f"scale.timeout={TIMEOUT:g}s",
        "--nproc",
        "2",
    ]
    command += ["--device", "cpu", "--out", str(out), "--resume"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment, start_new_session=True
    )
    what = f"{signal.Signals(sent).name} of {victim} after {moment:.1f} s, {out.name}"
    try:
        time.sleep(moment)
        family, target = _family(process, victim)
        if target is None:
            ends.wrong.append(f"{what}: it ended by itself, with {process.communicate(timeout=10)[1][-600:]!r}")
            return
        began = time.monotonic()
        target.send_signal(sent)
        limit = ENDING + MARGIN + (2 * TIMEOUT if sent == signal.SIGSTOP else 0.0)
        while time.monotonic() - began < limit and any(map(_lives, family)):
            process.poll()
            time.sleep(0.05)
        took, left = time.monotonic() - began, [p for p in family if _lives(p)]
        if sent == signal.SIGSTOP:
            ends.stops, ends.slowest_stop = ends.stops + 1, max(ends.slowest_stop, took)
        else:
            ends.kills, ends.slowest_kill = ends.kills + 1, max(ends.slowest_kill, took)
        if left:
            ends.wrong.append(f"{what}: {len(left)} processes were left after {took:.0f} s")
        elif victim != "launcher":
            _, said = process.communicate(timeout=10)
            met = "could not meet the others" not in said  # before that no rank knows which one it waits for
            right = (process.returncode, f"rank {victim}" in said) == (1, True) if met else process.returncode == 2
            if not right or "Traceback" in said:
                ends.wrong.append(f"{what}: status {process.returncode}, said {said[-600:]!r}")
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _family(process: subprocess.Popen[str], victim: str | int) -> tuple[list[psutil.Process], psutil.Process | None]:
    """The processes of a run, and the one that gets the signal, for which this waits; None if the run is over."""
    while process.poll() is None:
        with suppress(psutil.Error):
            launcher = psutil.Process(process.pid)
            ranks = launcher.children(recursive=True)
            target = launcher if victim == "launcher" else _rank(ranks, victim)
            if target is not None:
                return [launcher, *ranks], target
        time.sleep(0.1)
    return [], None


def _rank(processes: list[psutil.Process], rank: str | int) -> psutil.Process | None:
    for process in processes:
        with suppress(psutil.Error):
            if process.environ().get("RANK") == str(rank):
                return process
    return None


def _lives(process: psutil.Process) -> bool:
    with suppress(psutil.Error):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("folder", type=Path)
    asked.add_argument("--seed", type=int, default=0)
    asked.add_argument("--kills", type=int, default=50)
    asked.add_argument("--stops", type=int, default=20)
    asked.add_argument("--minutes", type=float, default=60.0)
    given = asked.parse_args()
    found = rank_ends(given.folder, given.kills, given.stops, given.seed, given.minutes)
    print(json.dumps(asdict(found)), flush=True)
    sys.exit(int(bool(found.wrong)))


if __name__ == "__main__":
    main()
