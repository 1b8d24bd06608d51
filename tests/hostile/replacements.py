"""Everything that replaces what is on disk, killed at each of its file operations, and out of space from each on.

    python tests/hostile/replacements.py FOLDER --seed 0 --every 1 [--only hub gguf ...]

prints one JSON object. Each program first writes something old. Another process then replaces it with something new, and
is killed before its n-th file operation, or finds the disk full from the n-th on, for every n there is. Afterwards the old
or the new one must be there as a whole; a full disk must be told, and leave the old one; and the program, repeated, must
leave the new one and nothing beside it.
"""

from __future__ import annotations

import argparse
import errno
import functools
import json
import os
import re
import shutil
import sys
import time
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


@dataclass(frozen=True)
class Program:
    """`old` writes what `new` replaces at a path. `varying` files are not the same each time."""

    old: Callable[[Path], object]
    new: Callable[[Path], object]
    name: str = "out"
    varying: str = "$."
    long: bool = False


def snapshot(path: Path, varying: str) -> dict[str, bytes]:
    """The content of each file; of files that vary only that there is one."""
    if path.is_file():
        return {"": path.read_bytes()}
    found = (file for file in path.rglob("*") if file.is_file() and file.name not in (".lock", ".owner.json"))
    return {
        str(file.relative_to(path)): b"" if re.fullmatch(varying, file.name) else file.read_bytes() for file in found
    }


def replacements(folder: Path, programs: dict[str, Program], every: int, seed: int) -> Figures:
    figures, began = Figures("replacements"), time.monotonic()
    for name, program in programs.items():
        _replacements(folder / name, name, program, figures, every, seed)
    figures.seconds = time.monotonic() - began
    return figures


def _replacements(home: Path, name: str, program: Program, figures: Figures, every: int, seed: int) -> None:
    for kind, write in (("old", program.old), ("new", program.new)):
        (home / kind).mkdir(parents=True)
        forked(lambda: write(home / kind / program.name))  # noqa: B023
    old = snapshot(home / "old" / program.name, program.varying)
    new = snapshot(home / "new" / program.name, program.varying)
    assert old != new, name
    for full in (False, True):
        n, stopped = seed % every, True
        while stopped:
            place = home / f"{'full' if full else 'killed'}-{n}"
            shutil.copytree(home / "old", place)
            target = place / program.name
            stopped = _stopped(program, target, n, full)
            figures.runs, figures.kills = figures.runs + 1, figures.kills + stopped
            figures.wrong += [
                f"{name}, {place.name}: {wrong}" for wrong in _wrong(program, target, old, new, full, stopped)
            ]
            shutil.rmtree(place)
            n += every


def _stopped(program: Program, target: Path, n: int, full: bool) -> bool:
    """Whether the program was killed, or could not write."""

    def work() -> None:
        Writes(n, full).install()
        try:
            program.new(target)
        except (OSError, ValueError, RuntimeError) as error:
            os._exit(0 if "space" in str(error) or "disk is full" in str(error) else 1)
        os._exit(7)

    try:
        return forked(work) or full
    except RuntimeError as error:
        if "status 1792" in str(error):  # 7: it came to its end
            return False
        raise


def _wrong(program: Program, target: Path, old: Any, new: Any, full: bool, stopped: bool) -> list[str]:
    """What is not as it must be after a program was stopped, and after it was repeated."""
    atomic.recover(target)
    now, kept = snapshot(target, program.varying), snapshot(atomic.old(target), program.varying)
    wrong = []
    begun = program.long and kept == old  # a run that has begun, while the old one is kept
    if not (now in (new, old) or begun):
        wrong.append(f"it is neither the old nor the new one: {sorted(now)}")
    if full and stopped and now == new and not program.long:
        wrong.append("the disk was full, and the new one is there")
    forked(lambda: program.new(target))
    if snapshot(target, program.varying) != new:
        wrong.append(f"repeated, it is not the new one: {sorted(snapshot(target, program.varying))}")
    left = [path.name for path in target.parent.iterdir() if path != target]
    inside = [path.name for path in target.rglob(".tmp-*")] if target.is_dir() else []
    return wrong + [f"{name} is left" for name in (*left, *inside)]


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
    }


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("folder", type=Path)
    asked.add_argument("--seed", type=int, default=0)
    asked.add_argument("--every", type=int, default=1, help="stop at every so many operations")
    asked.add_argument("--only", nargs="*")
    given = asked.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    given.folder.mkdir(parents=True, exist_ok=True)
    made = programs(given.folder)
    chosen = {name: made[name] for name in given.only or made}
    if {"quantize", "prune"} & set(chosen):
        trained(given.folder)  # once, not in every process
    figures = replacements(given.folder, chosen, given.every, given.seed)
    print(json.dumps(asdict(figures)), flush=True)
    sys.exit(int(bool(figures.wrong)))


if __name__ == "__main__":
    main()
