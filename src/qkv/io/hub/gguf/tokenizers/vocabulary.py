"""The vocabulary of a GGUF file: tokens and their types, and which tokens have roles."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import Any

import numpy as np

from .....core.spec import brief
from .....data.tokenizers.pipelines import BYTES
from .....data.tokenizers.tokenizer import Tokenizer

PREFIX = "tokenizer.ggml."
MODEL, PRE, TOKENS, TYPES = f"{PREFIX}model", f"{PREFIX}pre", f"{PREFIX}tokens", f"{PREFIX}token_type"
SCORES, MERGES = f"{PREFIX}scores", f"{PREFIX}merges"
ADD_BOS, ADD_EOS, ADD_SPACE = f"{PREFIX}add_bos_token", f"{PREFIX}add_eos_token", f"{PREFIX}add_space_prefix"
CHAT_TEMPLATE = "tokenizer.chat_template"
ROLES = {
    "bos": f"{PREFIX}bos_token_id",
    "eos": f"{PREFIX}eos_token_id",
    "unk": f"{PREFIX}unknown_token_id",
    "pad": f"{PREFIX}padding_token_id",
    "sep": f"{PREFIX}seperator_token_id",  # as llama.cpp spells it
    "cls": f"{PREFIX}cls_token_id",
    "mask": f"{PREFIX}mask_token_id",
}
ENDS = tuple(f"{PREFIX}{name}_token_id" for name in ("eos", "eot", "eom"))
"""Tokens of any of these end an output."""
DEFAULTS = {
    "llama": {"bos": 1, "eos": 2, "unk": 0},
    "bert": {"bos": 101, "unk": 100, "sep": 102, "pad": 0, "mask": 103},
    "t5": {"eos": 1, "unk": 2, "pad": 0},
}
"""The roles that llama.cpp assumes if a file doesn't say them, by the kind of tokenizer."""


class Type(IntEnum):
    """What a token is."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


def tokens_and_types(tokenizer: Tokenizer, vocab_size: int) -> tuple[list[str], list[int]]:
    """Every token in the order of ids, up to the model's vocabulary, and what it is.

    Ids without a token are called `[PAD…]`, as llama.cpp's own converter does.
    """
    by_id = {i: token for token, i in tokenizer.raw.get_vocab(with_added_tokens=True).items()}
    controls = set(tokenizer.controls.values())
    markers = {tokenizer.raw.token_to_id(name) for name in tokenizer.markers}
    bytes_ = set(BYTES) if "<0x00>" in by_id.values() else set()
    tokens, types = [], []
    for i in range(vocab_size):
        token = by_id.get(i)
        if token is None:
            kind, token = Type.UNUSED, f"[PAD{i}]"
        elif i == tokenizer.unk_id:
            kind = Type.UNKNOWN
        elif i in controls:
            kind = Type.CONTROL
        elif i in markers:
            kind = Type.USER_DEFINED
        else:
            kind = Type.BYTE if token in bytes_ else Type.NORMAL
        tokens.append(token)
        types.append(int(kind))
    return tokens, types


Ids = Mapping[str, int | None]


def roles_metadata(tokenizer: Tokenizer, of: Callable[[Ids], Ids] = lambda ids: ids) -> dict[str, Any]:
    """The ids of tokens with roles, and the chat template.

    llama.cpp takes a certain token, such as number 11, for a role that isn't said, so a beginning or an end that the
    tokenizer lacks is said to be another control token. `of` gives the roles for a kind of
    tokenizer. Raises ValueError if there is no control token.
    """
    ids = dict(of({role: getattr(tokenizer, f"{role}_id") for role in ROLES}))
    spare = next((i for i in (ids["eos"], ids["bos"], ids["pad"], *tokenizer.controls.values()) if i is not None), None)
    if spare is None:
        raise ValueError(
            "llama.cpp would take an ordinary token for the end of a text, because this tokenizer has no control tokens; "
            "train it with an eos token"
        )
    ids |= {role: spare for role in ("bos", "eos") if ids[role] is None}
    metadata: dict[str, Any] = {ROLES[role]: i for role, i in ids.items() if i is not None}
    template = tokenizer.config.get("chat_template")
    return metadata | ({CHAT_TEMPLATE: template} if isinstance(template, str) else {})


def around_metadata(tokenizer: Tokenizer, before: list[int], after: list[int]) -> dict[str, Any]:
    """Whether a text begins and ends with special tokens. Raises ValueError for others than bos and eos."""
    for ids, role in ((before, "bos"), (after, "eos")):
        if ids not in ([], [getattr(tokenizer, f"{role}_id")]):
            names = " ".join(map(repr, tokenizer.tokens(ids)))
            raise ValueError(f"llama.cpp puts one {role} token at most around a text, and this model's has {names}")
    return {ADD_BOS: bool(before), ADD_EOS: bool(after)}


# -- reading ------------------------------------------------------------------------------------------------------------


def read_tokens(metadata: Mapping[str, Any]) -> tuple[list[str], list[int]]:
    """The tokens and their types. Raises ValueError naming the key that is missing or of a wrong kind."""
    tokens, types = metadata.get(TOKENS), metadata.get(TYPES)
    if not isinstance(tokens, list) or not tokens:
        raise ValueError(f"{TOKENS} must be a list of strings, not {brief(tokens)}")
    if types is None:
        return tokens, [int(Type.NORMAL)] * len(tokens)
    if not isinstance(types, np.ndarray) or types.dtype.kind not in "iu" or len(types) != len(tokens):
        raise ValueError(f"{TYPES} must be one whole number for each of {len(tokens):,} tokens")
    return tokens, types.tolist()


def read_roles(metadata: Mapping[str, Any], count: int) -> dict[str, int]:
    """The ids of tokens with roles: from the file, and usual ones if no other role has them.

    An id outside the vocabulary counts as not said, as in llama.cpp.
    """
    said = {role: metadata[key] for role, key in ROLES.items() if _is_id(metadata.get(key), count)}
    usual = DEFAULTS.get(str(metadata.get(MODEL)), {})
    return {role: i for role, i in usual.items() if i not in said.values() and i < count} | said


def _is_id(value: Any, count: int) -> bool:
    return type(value) is int and 0 <= value < count


def special_ids(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """`bos_token_id`, `eos_token_id` and `pad_token_id` as a configuration of the Hub has them."""
    tokens = metadata.get(TOKENS)
    if not isinstance(tokens, list):
        return {}
    roles = read_roles(metadata, len(tokens))
    ends = [metadata[key] for key in ENDS if type(metadata.get(key)) is int and metadata[key] < len(tokens)]
    ends = list(dict.fromkeys(ends)) or ([roles["eos"]] if "eos" in roles else [])
    config: dict[str, Any] = {f"{role}_token_id": roles[role] for role in ("bos", "pad") if role in roles}
    return config | ({"eos_token_id": ends[0] if len(ends) == 1 else ends} if ends else {})


def flag(metadata: Mapping[str, Any], key: str, usual: bool) -> bool:
    value = metadata.get(key, usual)
    if not isinstance(value, bool):
        raise ValueError(f"{key} must be true or false, not {brief(value)}")
    return value
