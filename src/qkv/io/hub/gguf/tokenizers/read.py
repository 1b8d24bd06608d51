"""A tokenizer from GGUF metadata, as the content of a tokenizer.json, which is checked as any other is."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from .....core.spec import nearest
from .....data.tokenizers import tokenizer_json
from .....data.tokenizers.tokenizer import Tokenizer
from .....data.tokenizers.tokenizer_json import TokenizerExtra
from . import byte_level_bpe, sentencepiece, wordpiece
from .vocabulary import CHAT_TEMPLATE, MODEL, Type, read_roles, read_tokens

KINDS: dict[str, Any] = {"gpt2": byte_level_bpe, "llama": sentencepiece, "t5": sentencepiece, "bert": wordpiece}
SPECIAL = (Type.CONTROL, Type.UNKNOWN)


def read_tokenizer(metadata: Mapping[str, Any]) -> Tokenizer | None:
    """The tokenizer of a file; None if it has none.

    Raises ValueError naming the key if it is damaged, or of a kind that is not known here.
    """
    kind = metadata.get(MODEL)
    if kind in (None, "none", "no_vocab"):
        return None
    if kind not in KINDS:
        raise ValueError(f"{MODEL} is {str(kind)[:80]!r}, which is not read here; {nearest(str(kind)[:80], KINDS)}")
    tokens, types = read_tokens(metadata)
    data = KINDS[kind].from_metadata(metadata, tokens)
    roles, ends = read_roles(metadata, len(tokens)), ("bos", "eos")
    if kind == "bert":
        roles, ends = wordpiece.own_roles(roles), ("cls", "sep")
    special = {i for i, kind in enumerate(types) if kind in SPECIAL} | set(roles.values())
    defined = {i for i, kind in enumerate(types) if kind == Type.USER_DEFINED} - special
    data["added_tokens"] = [
        {
            "id": i,
            "content": tokens[i],
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": i in special,
        }
        for i in sorted(special | defined)
    ]
    before, after = KINDS[kind].around(metadata)
    data["post_processor"] = _template(
        tokens, [roles.get(role) if on else None for role, on in zip(ends, (before, after), strict=True)]
    )
    template = metadata.get(CHAT_TEMPLATE)
    config = {"chat_template": template} if isinstance(template, str) else {}
    extra = TokenizerExtra({role: tokens[i] for role, i in roles.items()}, config=config)
    data["model"][tokenizer_json.OURS] = extra.to_dict()
    return Tokenizer(*tokenizer_json.parse(json.dumps({"version": "1.0", **data})))


def _template(tokens: list[str], ends: list[int | None]) -> dict[str, Any] | None:
    """The special tokens around a text, as a tokenizer.json says them."""
    if ends == [None, None]:
        return None

    def part(sequence: str, type_id: int) -> list[dict[str, Any]]:
        parts: list[dict[str, Any]] = [{"Sequence": {"id": sequence, "type_id": type_id}}]
        if ends[0] is not None:
            parts.insert(0, {"SpecialToken": {"id": tokens[ends[0]], "type_id": type_id}})
        if ends[1] is not None:
            parts.append({"SpecialToken": {"id": tokens[ends[1]], "type_id": type_id}})
        return parts

    named = {tokens[i]: {"id": tokens[i], "ids": [i], "tokens": [tokens[i]]} for i in ends if i is not None}
    return {
        "type": "TemplateProcessing",
        "single": part("A", 0),
        "pair": [*part("A", 0), *part("B", 1)],
        "special_tokens": named,
    }
