"""`quantization_config` of a `config.json`: which library's layout the weights beside it have."""

from __future__ import annotations

from collections.abc import Mapping
from operator import attrgetter
from pathlib import Path
from typing import Any, NotRequired

from pydantic import TypeAdapter
from typing_extensions import TypedDict

from ....core.json_files import checked, read_json
from ....core.registry import LazyTable
from ....core.spec import brief, nearest
from .layout import QuantizedLayout

KEY = "quantization_config"


class _Method(TypedDict):
    quant_method: NotRequired[str | None]


_METHOD = TypeAdapter(_Method)
SEPARATE = {"quantize_config.json": "gptq", "quant_config.json": "awq"}  # of older versions of AutoGPTQ and AutoAWQ
LAYOUTS: LazyTable[type[QuantizedLayout]] = LazyTable()

for _method, _module, _name in (
    ("compressed-tensors", "compressed_tensors", "CompressedTensors"),
    ("gptq", "gptq", "GPTQ"),
    ("awq", "awq", "AWQ"),
    ("bitsandbytes", "bitsandbytes", "BitsAndBytes"),
):
    LAYOUTS.later(_method, f"{__package__}.{_module}", attrgetter(_name))


def quantization_of(config: Mapping[str, Any], folder: Path) -> Mapping[str, Any] | None:
    """What a directory says about its quantized weights; None if it says nothing."""
    own = config.get(KEY)
    if own is not None:
        if not isinstance(own, Mapping):
            raise ValueError(f"{folder / 'config.json'}: {KEY} is to be an object, not {brief(own)}")
        return own
    for name, method in SEPARATE.items():
        if (folder / name).is_file():
            data = read_json(folder / name)
            if isinstance(data, Mapping):
                return {"quant_method": method, **data}
    return None


def layout_of(quantization: Mapping[str, Any], where: str) -> QuantizedLayout:
    """The layout of a `quantization_config`. Raises ValueError, with `where`, for a method or a setting that is not read."""
    named = checked(_METHOD, quantization, f"{where}: {KEY}").get("quant_method")
    method = named or ("bitsandbytes" if "load_in_4bit" in quantization else "")
    method = method.replace("bitsandbytes_4bit", "bitsandbytes").replace("bitsandbytes_8bit", "bitsandbytes")
    if method not in LAYOUTS:
        raise ValueError(
            f"{where}: the key 'quantization_config' names the method {brief(method)}, which is not read; "
            f"{nearest(method, LAYOUTS)}"
        )
    checked(LAYOUTS[method].schema, quantization, f"{where}: {KEY}")
    try:
        return LAYOUTS[method](quantization)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None
