"""SigLIP's tokenizer: a SentencePiece model of texts in small letters and without punctuation, as in `transformers`."""

from __future__ import annotations

import json
import re
import string
from dataclasses import replace
from pathlib import Path

import tokenizers
from tokenizers import Regex, normalizers

from ....core.spec import brief
from ..sentencepiece.model_file import PieceKind, SentencePiece
from ..sentencepiece.model_writer import dump, unigram_of
from ..sentencepiece.pipeline import SPACE, pipeline
from ..tokenizer_json import write_bytes
from .hub_config import HubConfig

PIECES = "spiece.model"
_FIRST = r"\A "  # the last of SigLIP's own stages
_SPACES = r"[\s\x1c-\x1f\x85]+"  # what Python calls white space


def siglip(model: SentencePiece, config: HubConfig) -> tokenizers.Tokenizer:
    """Return SigLIP's tokenizer. It makes letters small unless `do_lower_case` is false, leaves out the punctuation of
    ASCII, and writes one space for all white space. At the beginning of a text, `▁` stands for this space, beside the one
    that begins every text. Raises ValueError for a model with user-defined symbols, which SigLIP's has not."""
    if defined := [piece.text for piece in model.pieces if piece.kind is PieceKind.USER_DEFINED]:
        raise ValueError(f"it has the user-defined symbol {brief(defined[0])}, which a tokenizer of SigLIP has not")
    raw = pipeline(replace(model, add_dummy_prefix=True))
    stages: list[normalizers.Normalizer] = [normalizers.Replace(SPACE, " ")]
    if config.flag("do_lower_case", True):
        final = normalizers.Replace(Regex(r"(?<=\p{L})\u03a3(?!\p{L})"), "\u03c2")  # the sigma at the end of a word
        stages += [final, normalizers.Lowercase()]
    stages += [
        normalizers.Replace(Regex(f"[{re.escape(string.punctuation)}]"), ""),
        normalizers.Replace(Regex(_SPACES), " "),
        normalizers.Strip(left=False, right=True),
        normalizers.Replace(Regex(_FIRST), SPACE),
    ]
    raw.normalizer = normalizers.Sequence([*stages, raw.normalizer])
    return raw


def write(raw: tokenizers.Tokenizer, folder: Path) -> None:
    """Write spiece.model, so `transformers`' SiglipTokenizer gives the same ids.

    Raises ValueError, and writes nothing, if the tokenizer is no unigram model behind the stages of `siglip`.
    """
    state = json.loads(raw.to_str())
    stages = (state["normalizer"] or {}).get("normalizers") or []
    last = next((i for i, stage in enumerate(stages, 1) if stage.get("pattern") == {"Regex": _FIRST}), 0)
    if not last:
        raise ValueError("its normalizer has no stages of SigLIP's")
    plain = {**state, "normalizer": {"type": "Sequence", "normalizers": stages[last:]}}
    write_bytes(folder / PIECES, dump(unigram_of(tokenizers.Tokenizer.from_str(json.dumps(plain)), _kind)))


def _kind(name: str) -> PieceKind:
    if name == "<unk>":
        return PieceKind.UNKNOWN
    return PieceKind.CONTROL if name in ("</s>", "<pad>", "<s>") else PieceKind.NORMAL
