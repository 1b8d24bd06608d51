"""Writes a tokenizer for the Hugging Face Hub: tokenizer.json, tokenizer_config.json, and Marian's SentencePiece files."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

from tokenizers import AddedToken

from ...core.spec import brief
from .readers import marian, siglip
from .readers.hub_config import CONFIG, TOKEN_KEYS, TOKEN_LIST_KEYS
from .tokenizer import Tokenizer
from .tokenizer_json import write_text

_NO_LIMIT = 10**30  # written by transformers for "no limit"
_PLAIN, _MARIAN, _SIGLIP = "PreTrainedTokenizerFast", "MarianTokenizer", "SiglipTokenizer"
_M2M_100 = "M2M100Tokenizer"


def hub_config(tokenizer: Tokenizer, max_length: int | None = None) -> dict[str, Any]:
    """Return the tokenizer_config.json with which `transformers.AutoTokenizer` loads the tokenizer.json beside it.

    Keeps the settings of the tokenizer_config.json that the tokenizer was loaded with. `max_length` is the model's context
    length.
    """
    kept = {key: value for key, value in tokenizer.config.items() if key not in (*TOKEN_KEYS, *TOKEN_LIST_KEYS)}
    decoder = tokenizer.raw.get_added_tokens_decoder()
    roles = tokenizer.roles
    others = [token.content for token in decoder.values() if token.special and token.content not in set(roles.values())]
    limit = max_length if max_length is not None else kept.get("model_max_length", _NO_LIMIT)
    return {
        "clean_up_tokenization_spaces": False,
        "tokenizer_class": _PLAIN,
        **kept,
        **{f"{role}_token": name for role, name in roles.items()},
        **({"extra_special_tokens": others} if others else {}),
        "model_max_length": limit,
        "added_tokens_decoder": {str(i): _as_json(token) for i, token in sorted(decoder.items())},
    }


def save_for_hub(
    tokenizer: Tokenizer, folder: str | Path, max_length: int | None = None, segments: bool = False
) -> Path:
    """Write tokenizer.json and tokenizer_config.json, and for a Marian tokenizer its SentencePiece files; return the folder.

    `segments`: whether the model takes token types. Warns if Marian's files can't be made from this tokenizer.
    """
    folder = Path(folder).expanduser()
    tokenizer.save(folder)
    config = hub_config(tokenizer, max_length)
    if segments:
        config["model_input_names"] = ["input_ids", "token_type_ids", "attention_mask"]
    if config["tokenizer_class"] == _SIGLIP:
        try:
            siglip.write(tokenizer.raw, folder)
        except ValueError as error:
            warnings.warn(f"{folder} gets no {siglip.PIECES} for transformers' {_SIGLIP}: {error}", stacklevel=3)
            config["tokenizer_class"] = _PLAIN
    if config["tokenizer_class"] == _M2M_100:
        warnings.warn(
            f"{folder} has a tokenizer.json, which transformers' {_M2M_100} doesn't read; it is loaded as {_PLAIN}, which "
            f"always reads texts in {brief(str(tokenizer.config.get('src_lang') or 'en'))}",
            stacklevel=3,
        )
        config["tokenizer_class"] = _PLAIN
    if config["tokenizer_class"] == _MARIAN or tokenizer.targets is not tokenizer:
        config["tokenizer_class"] = _as_marian(tokenizer, folder)
    text = json.dumps(config, indent=2, ensure_ascii=False)
    write_text(folder / CONFIG, text + "\n")
    return folder


def _as_marian(tokenizer: Tokenizer, folder: Path) -> str:
    """Write the files that MarianTokenizer reads. Returns the name of the class that can load the folder."""
    try:
        marian.write(tokenizer.raw, tokenizer.targets.raw, folder)
    except ValueError as error:
        warnings.warn(
            f"{folder} gets no source.spm and target.spm for transformers' {_MARIAN}: {error}; it loads the tokenizer.json "
            f"as {_PLAIN}, which reads the source side only",
            stacklevel=3,
        )
        return _PLAIN
    return _MARIAN


def _as_json(token: AddedToken) -> dict[str, Any]:
    names = ("content", "lstrip", "normalized", "rstrip", "single_word", "special")
    return {name: getattr(token, name) for name in names}
