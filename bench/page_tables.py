"""Keep a measurement, and renew its table in a page of docs/."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def keep(result: dict[str, Any], path: Path, page: Path, command: str, table: str) -> None:
    """Write `result` as JSON, and `table` between the marks of `python -m bench COMMAND` in the page."""
    begin, end = f"<!-- python -m bench {command}: begin -->", "<!-- end -->"
    path.write_text(json.dumps(result, indent=1) + "\n")
    before, rest = page.read_text(encoding="utf-8").split(begin)
    page.write_text(f"{before}{begin}\n{table}\n{end}{rest.split(end, 1)[1]}", encoding="utf-8")
