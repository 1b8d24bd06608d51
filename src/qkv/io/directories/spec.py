"""The spec of the model in a directory, a run's or one of the Hub, in a GGUF file, or of a name on the Hub; and what else
of the Hub's is said there."""

from __future__ import annotations

from ...nn.models.base import ModelSpec
from ..hub.gguf.container import is_gguf
from ..hub.quantized import layout_of, quantization_of
from . import hub_load, origin
from .layout import CONFIG, read_json
from .locate import is_hub, locate
from .origin import Origin
from .run_config import read_config


def weights_of(name: str) -> str | None:
    """How most weights of a directory or a GGUF file are quantized: int8, int4, nf4, fp8 or mxfp4; None if they are not."""
    folder = locate(name)
    if is_gguf(folder):
        from . import gguf_load

        return gguf_load.weights_of(folder)
    quantization = quantization_of(read_json(folder / CONFIG), folder) if (folder / CONFIG).is_file() else None
    return None if quantization is None else layout_of(quantization, str(folder / CONFIG)).usual_weights


def spec_of(name: str) -> ModelSpec:
    """The spec of the model in a directory. Raises ValueError if it holds none."""
    folder = locate(name)
    if is_gguf(folder):
        from . import gguf_load

        return gguf_load.spec(folder)
    if is_hub(folder):
        return hub_load.spec(folder)
    if not (folder / CONFIG).is_file():
        raise ValueError(f"there is no model in {name}: it has no {CONFIG}")
    return read_config(folder / CONFIG)[0]


def origin_of(name: str) -> Origin | None:
    """What a directory of the Hub or a GGUF file says besides its weights. For a run, what the one said that it was trained
    from, or None."""
    folder = locate(name)
    if is_gguf(folder):
        from . import gguf_load

        return gguf_load.origin(folder)
    return hub_load.origin(folder, hub_load.spec(folder)) if is_hub(folder) else origin.kept(folder, spec_of(name))
