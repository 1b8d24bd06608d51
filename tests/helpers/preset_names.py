"""Write `qkv/io/families/preset_names.py`: `python tests/helpers/preset_names.py`."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import qkv
from qkv.io.families import MODULES
from qkv.io.families.named import Preset, presets_in
from qkv.nn.models.dual_encoder import DualEncoder
from qkv.nn.models.recurrent.model import Recurrent

PATH = Path(qkv.__file__).parent / "io" / "families" / "preset_names.py"
BEGINNING = '''"""Names of the presets: as types, for editors and type checkers, and with the modules that define them.

`tests/helpers/preset_names.py` writes this file.
"""

from __future__ import annotations

from typing import Literal

'''


def text() -> str:
    """What the file should hold."""
    homes = _homes()
    kinds = {name: type(_spec(module, name)) for name, module in homes.items()}
    entries = "".join(f'    "{name}": "{module}",\n' for name, module in homes.items())
    literals = {"TransformerName": qkv.Transformer, "RecurrentName": Recurrent, "DualEncoderName": DualEncoder}
    types = "".join(_literal(name, [one for one in homes if kinds[one] is kind]) for name, kind in literals.items())
    without = "".join(f'    "{module}",\n' for module in sorted(MODULES.keys() - set(homes.values())))
    homes_of = f"HOMES: dict[str, str] = {{\n{entries}}}\n"
    return f"{BEGINNING}{types}\n{homes_of}\nWITHOUT: tuple[str, ...] = (  # modules without presets\n{without})\n"


def _presets_in(module: str) -> dict[str, Preset]:
    return presets_in(import_module(f"qkv.io.families.{module}"))


def _homes() -> dict[str, str]:
    """The module of each preset. Presets of one factory stand together."""
    factories: dict[object, dict[str, str]] = {}
    for module in MODULES:
        for name, (factory, _) in _presets_in(module).items():
            factories.setdefault(factory, {})[name] = module
    return {name: module for named in factories.values() for name, module in named.items()}


def _spec(module: str, name: str) -> object:
    factory, sizes = _presets_in(module)[name]
    return factory(**sizes)


def _literal(name: str, values: list[str]) -> str:
    lines = "".join(f'    "{value}",\n' for value in values)
    return f"{name} = Literal[\n{lines}]\n"


if __name__ == "__main__":
    PATH.write_text(text(), encoding="utf-8")
