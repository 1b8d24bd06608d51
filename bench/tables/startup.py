"""Start-up: whole processes, from their start to their end."""

from __future__ import annotations

from statistics import median

from ..lockstep import Case, Contender
from ..results import Result
from .table import Table, errors, markdown, number, spread, verdict

TORCH, OURS, HELP = "import torch", "import torch, qkv", "qkv --help"
COMMANDS = {
    "pass": ("python", "-c", "pass"),
    TORCH: ("python", "-c", "import torch"),
    OURS: ("python", "-c", "import torch, qkv"),
    "import qkv; qkv.build, qkv.attend": ("python", "-c", "import qkv; qkv.build, qkv.preset, qkv.attend"),
    HELP: ("qkv", "--help"),
}
PEER = Contender(
    "from transformers import GPT2LMHeadModel",
    command=("python", "-c", "from transformers import GPT2LMHeadModel"),
    environment="huggingface",
)


def cases(quick: bool) -> list[Case]:
    commands = [Contender(name, command=command) for name, command in COMMANDS.items()]
    return [Case({"what": "start-up"}, tuple(commands if quick else [*commands, PEER]))]


def render(result: Result) -> str:
    record = result.find(what="start-up")
    assert record is not None
    rows = ([f"`{n}`", number(record.median(n)), spread([ms / 1e3 for ms in record.all(n)])] for n in record.names)
    lines = [markdown(["command", "ms", "s, median and range"], rows), ""]
    if {TORCH, OURS} <= set(record.names):
        pairs = zip(record.all(OURS), record.all(TORCH), strict=True)
        lines.append(verdict("`import qkv` adds to `import torch`", median(a - b for a, b in pairs) / 1e3, 0.3, " s"))
    if HELP in record.names:
        lines.append(verdict("`qkv --help`", record.median(HELP) / 1e3, 0.5, " s"))
    return "\n".join([*lines, *errors(result)])


TABLE = Table("startup", 9, cases, render)
