"""WordPiece in GGUF (`tokenizer.ggml.model` = "bert"): BERT's tokenizer.

A piece that begins a word has ▁ before it there, and one that continues a word has no mark, where BERT's files have none and
`##`. llama.cpp cuts words as BERT does. Whether it lower-cases and strips accents are two flags, both on by default.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .....core.spec import brief
from .vocabulary import ADD_BOS, MODEL, PRE, PREFIX, Type, flag, read_roles, read_tokens

LOWERCASE, ACCENTS = f"{PREFIX}normalizer.lowercase", f"{PREFIX}normalizer.strip_accents"
ADD_SEP = f"{PREFIX}add_sep_token"
BEGINS, CONTINUES = "\u2581", "##"
LONGEST = 100  # characters of a word that BERT cuts; a longer one is unknown
SPECIAL = (Type.CONTROL, Type.UNKNOWN)


def from_metadata(metadata: Mapping[str, Any], tokens: list[str]) -> dict[str, Any]:
    """The content of a tokenizer.json; `tokens` get BERT's spelling. Raises ValueError naming the key that is wrong."""
    _, types = read_tokens(metadata)
    roles = set(read_roles(metadata, len(tokens)).values())
    for i, (token, kind) in enumerate(zip(tokens, types, strict=True)):
        if token.startswith(BEGINS):
            tokens[i] = token.removeprefix(BEGINS)
        elif kind not in SPECIAL and i not in roles:
            tokens[i] = CONTINUES + token
    lower = flag(metadata, LOWERCASE, True)
    unk = read_roles(metadata, len(tokens)).get("unk")
    if unk is None:
        raise ValueError(f"{PREFIX}unknown_token_id is missing, and WordPiece needs an unknown token")
    vocab = {token: i for i, token in enumerate(tokens)}
    if len(vocab) < len(tokens):
        twice = next(token for i, token in enumerate(tokens) if vocab[token] != i)
        raise ValueError(f"{PREFIX}tokens has {brief(twice)} twice")
    return {
        "normalizer": {
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": True,
            "strip_accents": flag(metadata, ACCENTS, lower),
            "lowercase": lower,
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "decoder": {"type": "WordPiece", "prefix": CONTINUES, "cleanup": True},
        "model": {
            "type": "WordPiece",
            "unk_token": tokens[unk],
            "continuing_subword_prefix": CONTINUES,
            "max_input_chars_per_word": LONGEST,
            "vocab": vocab,
        },
    }


def around(metadata: Mapping[str, Any]) -> tuple[bool, bool]:
    """Whether a text begins with [CLS] and ends with [SEP]."""
    return flag(metadata, ADD_BOS, True), flag(metadata, ADD_SEP, True)


def to_metadata(data: Mapping[str, Any], tokens: list[str], types: list[int]) -> dict[str, Any]:
    """The metadata beside tokens and roles; `tokens` get llama.cpp's spelling. Raises ValueError for another cutting of
    words than BERT's."""
    model, normalizer, cuts = data["model"], data.get("normalizer") or {}, data.get("pre_tokenizer") or {}
    if normalizer.get("type") != "BertNormalizer" or cuts.get("type") != "BertPreTokenizer":
        raise ValueError("llama.cpp cuts words for WordPiece as BERT does, and this tokenizer cuts them otherwise")
    if not normalizer.get("clean_text", True) or not normalizer.get("handle_chinese_chars", True):
        raise ValueError(
            "llama.cpp's WordPiece drops control characters and sets Chinese characters apart, and this tokenizer does not"
        )
    if model.get("continuing_subword_prefix", CONTINUES) != CONTINUES:
        raise ValueError(
            f"pieces that continue a word begin with {brief(model['continuing_subword_prefix'])}, and for GGUF with ##"
        )
    lower, accents = bool(normalizer.get("lowercase", True)), normalizer.get("strip_accents")
    for i, (token, kind) in enumerate(zip(tokens, types, strict=True)):
        if kind not in SPECIAL:
            tokens[i] = token.removeprefix(CONTINUES) if token.startswith(CONTINUES) else BEGINS + token
    return {MODEL: "bert", PRE: "default", LOWERCASE: lower, ACCENTS: lower if accents is None else bool(accents)}


def roles_of(ids: Mapping[str, int | None]) -> dict[str, int | None]:
    """The roles that are written: llama.cpp puts bos before a text, which is [CLS], and sep after it."""
    return {**ids, "bos": ids["cls"], "eos": ids["sep"]}


def own_roles(roles: Mapping[str, int]) -> dict[str, int]:
    """The roles of a file as BERT's tokenizer has them: [CLS] and [SEP] in place of bos and eos."""
    cls, sep = roles.get("cls", roles.get("bos")), roles.get("sep", roles.get("eos"))
    kept = {role: i for role, i in roles.items() if role not in ("bos", "eos") or i not in (cls, sep)}
    return {**kept, **{role: i for role, i in (("cls", cls), ("sep", sep)) if i is not None}}
