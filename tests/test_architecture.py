"""The house plan, kept: who imports whom, how long a file may be, and that importing does nothing but define."""

from __future__ import annotations

import ast
import functools
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "qkv"
MODULES = sorted(SOURCE.rglob("*.py"))
MOST_LINES = 500

_TOOLS = {"core", "model"}  # what rooms that do one thing to a model may see; not one another
ALLOWED: dict[str, set[str]] = {
    "core": set(),
    "model": {"core"},
    "families": {"core", "model", "hub"},
    "data": {"core"},
    "train": _TOOLS,
    "generate": _TOOLS,
    "cost": _TOOLS,
    "look": _TOOLS,
    "shrink": _TOOLS,
    "scale": _TOOLS,
    "hub": _TOOLS,
    "recipes": set(),
}
_EVERYTHING_BELOW = {*ALLOWED, ""}
ALLOWED |= {
    "run": _EVERYTHING_BELOW,
    "serve": _EVERYTHING_BELOW | {"run"},
    "study": _EVERYTHING_BELOW | {"run"},
    "cli": _EVERYTHING_BELOW | {"run", "serve", "study"},
}
# The top (`qkv/__init__.py`, `__main__.py`) names everything lazily and may be named by no room below `run`.


def dotted(path: Path) -> str:
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def room(module: str) -> str:
    """`qkv.core.layout` is in `core`; `qkv` itself, and what lies directly in it, in the top room ""."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 and (SOURCE / parts[1]).is_dir() else ""


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """Line and absolute name of every module that a file imports, anywhere in it."""
    package = dotted(path).split(".")
    if path.name != "__init__.py":
        package = package[:-1]
    for node in ast.walk(_tree(path)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            name = ".".join([*base, *([node.module] if node.module else [])])
            # `from .. import families` imports the room, not the top that stands before the word `import`.
            yield from ((node.lineno, f"{name}.{alias.name}") for alias in node.names)


def _attributes(path: Path) -> Iterator[tuple[int, str]]:
    """Line and text of every dotted expression in a file."""
    nodes = (node for node in ast.walk(_tree(path)) if isinstance(node, ast.Attribute))
    return ((node.lineno, ast.unparse(node)) for node in nodes)


@functools.cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def _named(path: Path) -> str:
    return str(path.relative_to(SOURCE))


def test_every_room_is_on_the_plan():
    rooms = {path.parent.name for path in SOURCE.glob("*/__init__.py")}
    assert rooms <= set(ALLOWED), "a new room needs its place in the import directions, here and in the docs"


def test_imports_keep_their_direction():
    wrong = [
        f"{_named(path)}:{line} imports {name}, but {room(dotted(path))} may import {sorted(allowed)}"
        for path in MODULES
        if (allowed := ALLOWED.get(room(dotted(path)))) is not None
        for line, name in imports(path)
        if name.split(".")[0] == "qkv" and room(name) not in {*allowed, room(dotted(path))}
    ]
    assert not wrong, "\n".join(wrong)


def test_only_scale_and_ranks_know_how_processes_are_connected():
    wrong = [
        f"{_named(path)}:{line}"
        for path in MODULES
        if room(dotted(path)) != "scale" and path != SOURCE / "core" / "ranks.py"
        for line, name in [*imports(path), *_attributes(path)]
        if f"{name}.".startswith("torch.distributed.")
    ]
    assert not wrong, f"torch.distributed belongs in scale/ and core/ranks.py: {wrong}"


def test_a_file_holds_one_idea():
    lengths = {_named(path): len(path.read_text(encoding="utf-8").splitlines()) for path in MODULES}
    long = {name: lines for name, lines in lengths.items() if lines > MOST_LINES}
    assert not long, f"more than {MOST_LINES} lines probably hold two ideas: {long}"


def test_a_module_says_what_it_is_about():
    silent = [_named(path) for path in MODULES if _tree(path).body and not ast.get_docstring(_tree(path))]
    assert not silent, f"a module docstring says in a sentence or two what its file is about: {silent}"


QUIETLY = """
import importlib, sys, threading
import torch

def refuse(event, args):
    if event in ("socket.connect", "subprocess.Popen", "os.system"):
        sys.exit(f"importing did {event} {args}")

sys.addaudithook(refuse)
state, threads = torch.random.get_rng_state(), threading.active_count()
for name in sys.argv[1:]:
    importlib.import_module(name)
assert torch.equal(state, torch.random.get_rng_state()), "importing drew random numbers"
assert torch.get_default_dtype() == torch.float32 and torch.is_grad_enabled(), "importing changed PyTorch's settings"
assert threading.active_count() == threads, "importing started threads"
"""


def test_importing_only_defines():
    names = [dotted(path) for path in MODULES if path.name != "__main__.py"]
    done = subprocess.run([sys.executable, "-c", QUIETLY, *names], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout == "", "importing printed something"


def test_a_model_is_built_without_the_graph_compiler() -> None:
    """`torch._dynamo` takes a second to load; a decorator of `torch.compiler` would load it."""
    code = "import sys, qkv; qkv.build, qkv.attend, qkv.load; print('torch._dynamo' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
