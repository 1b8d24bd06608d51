"""Walk through a page of the tour in the terminal: its text, and its cells as they run."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.markdown import Markdown
from rich.padding import Padding
from rich.syntax import Syntax
from rich.text import Text

from .notebook import PICTURE
from .pages import CodeCell, Page, run


def walk(page: Page, console: Console, wait: Callable[[], None] = lambda: None) -> None:
    """Show a page. Each cell is shown, `wait` is called, and the cell runs; its output follows.

    Pictures that the cells draw are named instead of shown.
    """
    with tempfile.TemporaryDirectory() as place:
        outputs = run(page, Path(place))
        for part in page.parts():
            if isinstance(part, CodeCell):
                code = Syntax(part.code.rstrip(), "python", background_color="default", word_wrap=True)
                console.print(Padding(code, (1, 0, 1, 4)))
                wait()
                printed = next(outputs).rstrip()
                if printed:
                    console.print(Padding(Text(printed, style="cyan"), (0, 0, 1, 4)))
            else:
                console.print(Markdown(PICTURE.sub(r"*Picture: \1 (`qkv tour --html DIR` shows it)*", part)))
