"""Damaged run directories: every file of a run, changed byte by byte or value by value, and then every command on it.

A command has to work or to refuse in one sentence (status 2), soon and in limited memory. Run it as

    python tests/hostile/run_directories.py FOLDER COUNT [SEED]
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml

TESTS = Path(__file__).parents[1]
SECONDS = 60  # for one command, on a busy machine
GROWTH = 2 << 30  # bytes of addresses that the process may grow by
VALUES: list[Any] = [
    *(None, True, -1, 0, 1e300, -1e-300, 2**63, 10**40, "", "x" * 10_000, "\x1b[2J", "../../etc/passwd", [], {}),
    *([[[[[]]]]], {"kind": "nothing"}, [None] * 1000, float("nan"), float("inf")),
]
COMMANDS: dict[str, list[str]] = {
    "translate": ["translate", "{run}", "a b c", "--device", "cpu"],
    "eval": ["eval", "{run}", "--max-examples", "2", "--device", "cpu"],
    "score": ["score", "{run}", "a b", "--target", "b a", "--device", "cpu"],
    "show": ["show", "{run}"],
    "cost": ["cost", "{run}", "--no-data"],
    "convert": ["convert", "{run}", "{out}"],
    "resume": ["train", "{run}", "--resume", "training.max_steps=6", "--device", "cpu"],
}


class Damage(NamedTuple):
    """One file of a run with other contents, and the command that meets it."""

    file: str
    data: bytes
    command: str


def make(folder: Path) -> Path:
    """A small finished run."""
    sys.path.insert(0, str(TESTS / "helpers"))
    from run_tiny import translator

    return translator(folder)


def mutants(run: Path, seed: int, count: int) -> Iterator[Damage]:
    """`count` damages of a run's files, the same for the same seed."""
    dice = random.Random(seed)
    files = sorted(str(path.relative_to(run)) for path in run.rglob("*") if path.is_file() and path.suffix != ".html")
    commands = sorted(COMMANDS)
    for i in range(count):
        file = files[i % len(files)]
        data = (run / file).read_bytes()
        structured = file.endswith((".json", ".yaml"))
        changed = _value(file, data, dice) if structured and dice.random() < 0.7 else _bytes(data, dice)
        yield Damage(file, changed, dice.choice(commands))


def _bytes(data: bytes, dice: random.Random) -> bytes:
    """Cut short, overwritten, doubled, emptied, or with a bit turned."""
    if not data:
        return bytes(dice.randrange(256) for _ in range(dice.choice([1, 100])))
    at = dice.randrange(min(len(data), dice.choice([16, 4096, len(data)])))
    end = at + dice.choice([1, 4, 64])
    match dice.randrange(5):
        case 0:
            return data[:at]
        case 1:
            return data[:at] + bytes([data[at] ^ 1 << dice.randrange(8)]) + data[at + 1 :]
        case 2:
            return data[:at] + dice.choice([b"\xff" * 8, b"\0" * 8, b"\x80", b"{", b'"']) + data[end:]
        case 3:
            return data[:end] + data[at:]
    return b""


def _value(file: str, data: bytes, dice: random.Random) -> bytes:
    """A JSON or YAML file with one value replaced, removed, or taken from somewhere else in it."""
    text = data.decode()
    tree = json.loads(text) if file.endswith(".json") else yaml.safe_load(text)
    places = list(_places(tree))
    if not places:
        return json.dumps(dice.choice(VALUES)).encode()
    container, key = dice.choice(places)
    match dice.randrange(4):
        case 0:
            del container[key]
        case 1:
            other, name = dice.choice(places)
            container[key] = json.loads(json.dumps(other[name])) if name in _keys(other) else None
        case _:
            container[key] = dice.choice(VALUES)
    return (json.dumps(tree) if file.endswith(".json") else yaml.safe_dump(tree)).encode()


def _keys(data: Any) -> Any:
    return data if isinstance(data, dict) else range(len(data))


def _places(data: Any) -> Iterator[tuple[Any, Any]]:
    for key in list(_keys(data)) if isinstance(data, dict | list) else ():
        yield data, key
        yield from _places(data[key])


# -- trying them ------------------------------------------------------------------------------------------------------


def use(run: Path, damage: Damage) -> str:
    """What a command says of a damaged copy of a run: "works", "refused: …" or "crash: …"."""
    from qkv.cli import main as qkv

    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "run"
        shutil.copytree(run, copy)
        (copy / damage.file).write_bytes(damage.data)
        arguments = [part.format(run=copy, out=Path(folder) / "out") for part in COMMANDS[damage.command]]
        said, told = io.StringIO(), io.StringIO()
        try:
            with contextlib.redirect_stdout(said), contextlib.redirect_stderr(told):
                status = qkv(arguments)
        except BaseException as error:
            return f"crash: {error!r}"
    words = told.getvalue()
    if "bug in qkv" in words or status not in (0, 2):
        return f"crash: status {status}: {words[-2000:]}"
    return "works" if status == 0 else f"refused: {words[-300:]}"


def check(run: Path, damages: list[Damage]) -> list[tuple[str, float]]:
    """What came of each, and after how many seconds; one that ends the process has "crash"."""
    found: list[tuple[str, float]] = []
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "damages.json"
        while len(found) < len(damages):
            left = [(name, data.decode("latin-1"), command) for name, data, command in damages[len(found) :]]
            file.write_text(json.dumps(left))
            command = [sys.executable, __file__, "--try", str(run), str(file)]
            environment = {**os.environ, "TOKENIZERS_PARALLELISM": "false", "PYTHONWARNINGS": "ignore"}
            done = subprocess.run(command, env=environment, capture_output=True, text=True)
            found += [(how, seconds) for how, seconds in map(json.loads, done.stdout.splitlines())]
            if len(found) < len(damages):
                found.append((f"crash: the process ended with {done.returncode}: {done.stderr[-500:]}", float(SECONDS)))
    return found


def _try(run: Path, file: Path) -> None:
    import resource
    import signal

    import torch

    torch.set_num_threads(1)
    results = os.fdopen(os.dup(1), "w")
    for command in COMMANDS:  # loads what they need, before memory is limited
        use(run, Damage("recipe.yaml", (run / "recipe.yaml").read_bytes(), command))
    before = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (before + GROWTH, before + GROWTH))
    for name, data, command in json.loads(file.read_text()):
        signal.alarm(SECONDS)
        start = time.monotonic()
        how = use(run, Damage(name, data.encode("latin-1"), command))
        print(json.dumps([how, time.monotonic() - start]), file=results, flush=True)


def main(arguments: list[str]) -> None:
    if arguments[:1] == ["--try"]:
        return _try(Path(arguments[1]), Path(arguments[2]))
    folder, count = Path(arguments[0]), int(arguments[1])
    folder.mkdir(parents=True, exist_ok=True)
    run = make(folder)
    damages = list(mutants(run, int(arguments[2]) if len(arguments) > 2 else 0, count))
    found = check(run, damages)
    for damage, (how, seconds) in zip(damages, found, strict=True):
        if how.startswith("crash") or seconds > SECONDS / 2:
            print(f"{damage.command} on {damage.file} after {seconds:.1f} s: {how}\n    {damage.data[:300]!r}")
    kinds = [how.split(":")[0] for how, _ in found]
    print(", ".join(f"{kinds.count(kind)} {kind}" for kind in ("works", "refused", "crash")))
    return None


if __name__ == "__main__":
    main(sys.argv[1:])
