"""Draws the terminal pictures in docs/explain.md: `.venv/bin/python docs/explanations.py`."""

from __future__ import annotations

import io
import re
from pathlib import Path

from rich.console import Console

from qkv.learn.explain.registry import explain
from qkv.learn.explain.terminal import show

HERE = Path(__file__).parent
SHOWN = ("attention", "bpe", "flash")


def picture(name: str) -> str:
    """What `qkv explain NAME` prints in a terminal of 80 columns, as SVG without fonts from the network."""
    console = Console(record=True, width=80, force_terminal=True, color_system="truecolor", file=io.StringIO())
    show(explain(name), console)
    svg = console.export_svg(title=f"qkv explain {name}", unique_id=f"explain-{name}")
    return re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)


if __name__ == "__main__":
    for name in SHOWN:
        (HERE / f"explain-{name}.svg").write_text(picture(name), encoding="utf-8")
