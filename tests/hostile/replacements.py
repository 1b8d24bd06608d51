"""Everything that replaces what is on disk, killed at each of its file operations, and out of space from each on.

    python tests/hostile/replacements.py FOLDER --seed 0 --every 1 [--only hub gguf ...] [--disks 20 | --moments 20]

prints one JSON object. Each program first writes something old. Another process then replaces it with something new, and
is killed before its n-th file operation, or finds the disk full from the n-th on, for every n there is. Afterwards the old
or the new one must be there as a whole; a full disk must be told, and leave the old one; and the program, repeated, must
leave the new one and nothing beside it.

--disks N:   instead, write to N real disks (tmpfs) that are larger and larger. This takes root on Linux.
--moments N: instead, kill each program from outside at N random moments.
"""

from __future__ import annotations

import argparse
import errno
import functools
import json
import math
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from kills import Countdown, Figures, die, forked

TESTS = Path(__file__).parents[1]
sys.path.insert(0, str(TESTS / "helpers"))

from run_tiny import TINY, translator  # noqa: E402
from run_untrained import bert, of, words  # noqa: E402
from writing_commands import Program, conversions, folders, lab, results, saves, sources, tools  # noqa: E402

from qkv.core import atomic  # noqa: E402

FREEING = ("rename", "replace", "unlink", "remove", "rmdir")  # what a full disk still does
NO_SPACE = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class Writes(Countdown):
    """Counts each write into a file too, and the exchange of two folders. With `full`, the disk is full from the n-th
    operation on."""

    def __init__(self, n: int, full: bool) -> None:
        super().__init__(n)
        self.full = full

    def install(self) -> None:
        super().install()
        atomic._exchange = self._counted(atomic._exchange)  # type: ignore[assignment]

    def stop(self, frees: bool = False) -> None:
        """Kill the process if its time has come, or fail as a full disk does."""
        if self.due():
            if not self.full:
                die()
            if not frees:
                raise NO_SPACE

    def _counted(self, real: Callable[..., Any]) -> Callable[..., Any]:
        frees = getattr(real, "__name__", "") in FREEING or real is atomic._exchange

        def counted(*args: Any, **options: Any) -> Any:
            self.stop(frees)
            return real(*args, **options)

        return counted

    def _opening(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def opening(file: Any, mode: str = "r", *args: Any, **options: Any) -> Any:
            if not set(mode) & set("wax"):
                return real(file, mode, *args, **options)
            self.stop()
            return Counted(real(file, mode, *args, **options), self)

        return opening

    def _saving(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def saving(tensors: Any, path: Any, metadata: Any = None) -> Any:
            self.stop()
            return real(tensors, path, metadata)

        return saving


class Counted:
    """A file whose writes are counted; the one that is stopped writes the first half."""

    def __init__(self, file: Any, writes: Writes) -> None:
        self.file, self.writes = file, writes

    def write(self, data: Any) -> Any:
        if self.writes.left == 0:
            self.file.write(data[: len(data) // 2])
            self.file.flush()
        self.writes.stop()
        return self.file.write(data)

    def __enter__(self) -> Counted:
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)


def snapshot(path: Path, varying: str) -> dict[str, bytes]:
    """The content of each file; of files that vary only that there is one."""
    if path.is_file():
        return {"": path.read_bytes()}
    found = (file for file in path.rglob("*") if file.is_file() and file.name not in (".lock", ".owner.json"))
    return {
        str(file.relative_to(path)): b"" if re.fullmatch(varying, file.name) else file.read_bytes() for file in found
    }


@dataclass(frozen=True)
class Trial:
    """A program, the folder of its trials, and what its old and its new result look like."""

    name: str
    home: Path
    program: Program
    old: dict[str, bytes]
    new: dict[str, bytes]

    @classmethod
    def of(cls, name: str, home: Path, program: Program) -> Trial:
        for kind, write in (("old", program.old), ("new", program.new)):
            (home / kind).mkdir(parents=True)
            forked(lambda: write(home / kind / program.name))  # noqa: B023
        old, new = (snapshot(home / kind / program.name, program.varying) for kind in ("old", "new"))
        assert old != new, name
        return cls(name, home, program, old, new)

    def began(self, place: Path) -> Path:
        """Lay the old result into a folder, and return its path."""
        shutil.copytree(self.home / "old", place, dirs_exist_ok=True)
        return place / self.program.name

    def check(self, target: Path, end: End, figures: Figures) -> None:
        """Note what is wrong after a program was stopped, and after it was repeated."""
        figures.runs, figures.kills = figures.runs + 1, figures.kills + (end.how != "done")
        wrong = _wrong(self, target, end)
        figures.wrong += [f"{self.name}, {target.parent.name}: {one}" for one in wrong]


@dataclass(frozen=True)
class End:
    """How a process ended: "done", "killed", or "refused" with what it said."""

    how: str
    said: str = ""


def ended(write: Callable[[], object], before: Callable[[], object], after: Callable[[], bool] | None = None) -> End:
    """Do some work in another process. It is killed if `after` returns True, which is called again and again."""
    with tempfile.TemporaryFile("w+") as log:
        child = os.fork()
        if child == 0:
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
            try:
                before()
                write()
            except (OSError, ValueError) as error:
                os.write(1, f"{error}".encode())
                os._exit(3)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        status = _waited(child, after)
        log.seek(0)
        if os.WIFSIGNALED(status):
            return End("killed")
        return End({0: "done", 3: "refused"}.get(os.waitstatus_to_exitcode(status), "failed"), log.read())


def _waited(child: int, after: Callable[[], bool] | None) -> int:
    if after is None:
        return os.waitpid(child, 0)[1]
    while True:
        process, status = os.waitpid(child, os.WNOHANG)
        if process:
            return status
        if after():
            os.kill(child, signal.SIGKILL)
        time.sleep(0.0005)


def operations(trial: Trial, figures: Figures, every: int, seed: int) -> None:
    """Kill the program at its operations seed mod every, + every, … until it ends before, then fill the disk there."""
    for full in (False, True):
        n, end = seed % every, End("killed")
        while end.how != "done":
            target = trial.began(trial.home / f"{'full' if full else 'killed'}-{n}")
            end = ended(lambda: trial.program.new(target), Writes(n, full).install)  # noqa: B023
            trial.check(target, end, figures)
            shutil.rmtree(target.parent)
            n += every * trial.program.every


def disks(trial: Trial, figures: Figures, count: int, seed: int) -> None:
    """Write to disks of `count` sizes, from one that the old result fills to one with room for what is written."""
    size = sum(file.stat().st_size for kind in ("old", "new") for file in (trial.home / kind).rglob("*"))
    files = sum(1 for _ in (trial.home / "old").rglob("*"))
    least, place = size // 2 + 4096 * (files + 2), trial.home / "disk"
    for n in range(count):
        place.mkdir()
        mount("size=64m", place)
        try:
            target = trial.began(place)
            used = shutil.disk_usage(place).used
            room = used + max(4096, round((least + size + 4096) * n / count))
            mount(f"remount,size={room}", place)
            mine = place / "temporary"  # of other libraries
            before = [lambda: None, lambda: _use(mine)][(n + seed) % 2]  # noqa: B023
            end = ended(lambda: trial.program.new(target), before)  # noqa: B023
            mount("remount,size=64m", place)
            if mine.is_dir():
                figures.wrong += [f"{trial.name}, {room} bytes: {path} is left" for path in mine.iterdir()]
                shutil.rmtree(mine)
            trial.check(target, end, figures)
        finally:
            subprocess.run(["umount", place], check=True)
            place.rmdir()


def mount(options: str, place: Path) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", place], check=True)


def _use(temporary: Path) -> None:
    temporary.mkdir()
    tempfile.tempdir = os.environ["TMPDIR"] = str(temporary)


def moments(trial: Trial, figures: Figures, count: int, seed: int) -> None:
    """Kill the program at random moments: at first of its whole time, then after its first file beside the target."""
    draw, longest = random.Random(seed), _times(trial)
    for n in range(count):
        whole = n % 4 == 0
        target = trial.began(trial.home / f"moment-{n}")
        wait = Wait(target, draw.uniform(0, longest[0] if whole else longest[1]), whole)
        trial.check(target, ended(lambda: trial.program.new(target), lambda: None, wait), figures)  # noqa: B023
        shutil.rmtree(target.parent)


@dataclass
class Wait:
    """Whether some seconds have passed since it was made, or since the first temporary file beside the target."""

    target: Path
    seconds: float
    whole: bool
    since: float = math.inf

    def __post_init__(self) -> None:
        self.since = time.monotonic() if self.whole else math.inf

    def __call__(self) -> bool:
        if self.since == math.inf and any(path.name[:5] in (".tmp-", ".old-") for path in self.target.parent.iterdir()):
            self.since = time.monotonic()
        return time.monotonic() - self.since > self.seconds


def _times(trial: Trial) -> tuple[float, float]:
    """The seconds that the program takes, and those after its first temporary file."""
    target, began = trial.began(trial.home / "timed"), time.monotonic()
    wait = Wait(target, math.inf, False)
    ended(lambda: trial.program.new(target), lambda: None, wait)
    now = time.monotonic()
    return now - began, now - min(wait.since, now)


def _wrong(trial: Trial, target: Path, end: End) -> list[str]:
    """What is not as it must be after a program was stopped, and after it was repeated."""
    program, old, new, wrong = trial.program, trial.old, trial.new, []
    atomic.recover(target)
    now, kept = snapshot(target, program.varying), snapshot(atomic.old(target), program.varying)
    begun = program.long and kept == old  # a run that has begun, while the old one is kept
    if not (now in (new, old) or begun or (program.apart and _each_whole(now, old, new))):
        wrong.append(f"it is neither the old nor the new one: {sorted(now)}")
    if end.how in ("refused", "failed"):
        if now == new and not program.long:
            wrong.append("the disk was full, and the new one is there")
        if (
            end.how == "failed"
            or not re.search("space|disk is full|free", end.said)
            or re.search(r"\.tmp-|bug", end.said)
        ):
            wrong.append(f"it said: {end.said[-1500:]}")
        left = [path.name for path in target.parent.iterdir() if path not in (target, atomic.old(target))]
        wrong += [f"{name} is left by a process that ended by itself" for name in left]
    atomic.sweep.cache_clear()
    again = ended(lambda: program.new(target), lambda: None)
    if again.how != "done" or snapshot(target, program.varying) != new:
        wrong.append(f"repeated, it is not the new one: {sorted(snapshot(target, program.varying))}, {again}")
    left = [path.name for path in target.parent.iterdir() if path != target]
    inside = [str(path.relative_to(target)) for path in target.rglob(".tmp-*")] if target.is_dir() else []
    return wrong + [f"{name} is left" for name in (*left, *inside)]


def _each_whole(now: dict[str, bytes], old: dict[str, bytes], new: dict[str, bytes]) -> bool:
    """Whether each file is the old or the new one, but for what a killed process was writing."""
    files = {name: content for name, content in now.items() if not Path(name).name.startswith(".tmp-")}
    return (
        all(content in (old.get(name), new.get(name)) for name, content in files.items()) and old.keys() <= files.keys()
    )


# -- the programs ---------------------------------------------------------------------------------------------------


@functools.cache
def trained(home: Path) -> Path:
    return translator(home)


def programs(home: Path) -> dict[str, Program]:
    from qkv.io.directories.adapters import save_adapter
    from qkv.lab.prune import prune
    from qkv.lab.quantize import quantize
    from qkv.nn.layers.lora import LoRA, adapt
    from qkv.runs.export import gguf
    from qkv.runs.export.onnx import to_onnx
    from qkv.runs.export.torch_export import to_torch_export
    from qkv.runs.recipes.recipe import Recipe
    from qkv.runs.train.train import train
    from qkv.training.checkpoints.weights import model_tensors, replace_tensors

    chat = "{% for m in messages %}{{ m['content'] }}{% endfor %}"
    one, other = of("gpt2", words(chat), "continue"), of("gpt2", words(), "continue", n_layers=2)
    sentence = bert({"kind": "sentence-vector", "pool": "mean"})
    reversing = Recipe.load("reverse", [*TINY, "training.max_steps=2"])
    report = r"(report|attention|pruning|quantization)\.html|.*\.json|metrics\.jsonl|optimizer.*|state.json"
    adapters = [adapt(of("gpt2", None, "continue").model, LoRA(rank=rank)) for rank in (2, 3)]

    def small(path: Path, **how: Any) -> None:
        prune(trained(home), path, overwrite=True, examples=8, curve=False, device="cpu", **how)

    return {
        "hub": Program(lambda path: one.save(path, "hub"), lambda path: other.save(path, "hub", overwrite=True)),
        "shards": Program(
            lambda path: one.save(path, "hub", max_shard_size="4KB"),
            lambda path: other.save(path, "hub", max_shard_size="6KB", overwrite=True),
        ),
        "one-file": Program(
            lambda path: one.save(path, "hub", max_shard_size="4KB"),
            lambda path: sentence.save(path, "hub", overwrite=True),
        ),
        "qkv": Program(lambda path: one.save(path, "hub"), lambda path: other.save(path, "qkv", overwrite=True)),
        "adapter": Program(
            lambda path: save_adapter(adapters[0], path), lambda path: save_adapter(adapters[1], path, overwrite=True)
        ),
        "safetensors": Program(
            lambda path: replace_tensors(path, model_tensors(one.model)),
            lambda path: replace_tensors(path, model_tensors(other.model)),
            "weights.safetensors",
        ),
        "gguf": Program(
            lambda path: gguf.save(one.model, path, tokenizer=None),
            lambda path: gguf.save(other.model, path, tokenizer=None),
            "model.gguf",
        ),
        "tokenizer": Program(
            lambda path: words(chat).save(path),
            lambda path: words("{{ messages[0]['content'] }}").save(path),
            "words.json",
        ),
        "quantize": Program(
            lambda path: quantize(trained(home), path, weights="int8", device="cpu"),
            lambda path: quantize(trained(home), path, weights="int4", group_size=16, overwrite=True, device="cpu"),
            varying=r"quantization\.html|quantization\.json|evaluation\.json|recipe\.yaml",
        ),
        "prune": Program(
            lambda path: small(path, heads=0.5),
            lambda path: small(path, neurons=0.25),
            varying=r"pruning\.(html|json)|recipe\.yaml",
        ),
        "train": Program(
            lambda path: train(Recipe.load("reverse", TINY), path, device="cpu"),
            lambda path: train(reversing, path, overwrite=True, device="cpu"),
            varying=report,
            long=True,
        ),
        "onnx": Program(
            lambda path: to_onnx(one, path), lambda path: to_onnx(other, path, overwrite=True), varying=r".*\.onnx"
        ),
        "torch-export": Program(
            lambda path: to_torch_export(one, path, aot=False),
            lambda path: to_torch_export(other, path, aot=False, overwrite=True),
            varying=r".*\.pt2",
        ),
        **conversions(home / "sources"),
        **saves(home / "sources"),
        **tools(home / "sources"),
        **results(home / "sources"),
        **folders(home / "sources"),
        **lab(home / "sources"),
    }


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("folder", type=Path)
    asked.add_argument("--seed", type=int, default=0)
    asked.add_argument("--every", type=int, default=1, help="stop at every so many operations")
    asked.add_argument("--only", nargs="*")
    asked.add_argument("--disks", type=int, help="write to so many small disks instead")
    asked.add_argument("--moments", type=int, help="kill at so many random moments instead")
    given = asked.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    given.folder.mkdir(parents=True, exist_ok=True)
    made = programs(given.folder)
    chosen = {name: made[name] for name in given.only or made}
    if {"quantize", "prune"} & set(chosen):
        trained(given.folder)  # once, not in every process
    if set(chosen) & {
        *conversions(home := given.folder / "sources"),
        *tools(home),
        *results(home),
        *folders(home),
        *lab(home),
        "save-lora",
    }:
        sources(home)
    figures = Figures("replacements")
    began, way = time.monotonic(), operations if given.disks is given.moments else disks if given.disks else moments
    for name, program in chosen.items():
        trial = Trial.of(name, given.folder / name, program)
        way(trial, figures, given.disks or given.moments or given.every, given.seed)
        print(name, figures.runs, figures.kills, len(figures.wrong), file=sys.stderr, flush=True)
    figures.seconds = time.monotonic() - began
    print(json.dumps(asdict(figures)), flush=True)
    sys.exit(int(bool(figures.wrong)))


if __name__ == "__main__":
    main()
