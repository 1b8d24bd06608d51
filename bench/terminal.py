"""`python -m bench terminal TYPESCRIPT FILE.svg`: draw what `script` recorded of a command as a picture of a terminal.

    script -qefc "qkv demo" typescript; python -m bench terminal typescript docs/demo.svg

Of what progress bars wrote, only the last evaluation is kept.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.text import Text

_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-ln-z]")  # all but colors
_COLOR = re.compile(r"\x1b\[[0-9;]*m")
_PROGRESS = re.compile(r"\s*(step [\d,]+ of|\S tokenizer:|\S )")


def main(arguments: list[str]) -> int:
    source, target = map(Path, arguments)
    console = Console(record=True, width=132, force_terminal=True, file=io.StringIO())
    console.print(Text("$ qkv demo", style="bold"))
    for line in kept(source.read_text(encoding="utf-8", errors="replace")):
        console.print(Text.from_ansi(line), no_wrap=True, overflow="crop")
    target.write_text(offline(console.export_svg(title="qkv demo")), encoding="utf-8")
    return 0


def offline(svg: str) -> str:
    """Remove the fonts that rich's pictures fetch from a CDN; the reader's monospaced font takes their place."""
    return re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL).replace("Fira Code", "Menlo, Consolas")


def kept(recording: str) -> Iterator[str]:
    """The lines that stay on the screen."""
    pending: str | None = None
    for line in recording.splitlines()[1:]:
        if line.startswith("Script done"):
            continue
        parts = [
            part for part in re.split(r"\r|\x1b\[2K|\x1b\[\d*A", line) if _COLOR.sub("", _CONTROL.sub("", part)).strip()
        ]
        if not parts:
            continue
        text = _CONTROL.sub("", parts[-1])
        if _PROGRESS.match(_COLOR.sub("", text)):
            pending = pending if "evaluation:" not in text and pending and "evaluation:" in pending else text
            continue
        if pending is not None and "evaluation:" in pending:
            yield pending
        pending = None
        yield text
