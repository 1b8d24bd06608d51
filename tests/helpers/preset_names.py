"""Write `qkv/io/families/preset_names.py`, the names of all presets as types: `python tests/helpers/preset_names.py`."""

from __future__ import annotations

from pathlib import Path

import qkv
from qkv.io.families import PRESETS, preset

PATH = Path(qkv.__file__).parent / "io" / "families" / "preset_names.py"
BEGINNING = '''"""Names of the presets as types, so that editors complete them and type checkers know what `preset` returns.

`tests/helpers/preset_names.py` writes this file.
"""

from __future__ import annotations

from typing import Literal

'''


def text() -> str:
    """What the file should hold."""
    transformers = [name for name in PRESETS if isinstance(preset(name), qkv.Transformer)]
    recurrent = [name for name in PRESETS if name not in transformers]
    return BEGINNING + _literal("TransformerName", transformers) + _literal("RecurrentName", recurrent)


def _literal(name: str, values: list[str]) -> str:
    lines = "".join(f'    "{value}",\n' for value in values)
    return f"{name} = Literal[\n{lines}]\n"


if __name__ == "__main__":
    PATH.write_text(text(), encoding="utf-8")
