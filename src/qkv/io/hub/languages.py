"""Models that translate among many languages, between two of them: the tokens of languages around texts and at the beginning
of outputs (NLLB, M2M-100, mBART).

The tokenizer's template has the token of one source language; another one takes its place. The output begins with the token
of the target language: it is forced as the first token (`forced_bos_token_id`), or the decoder starts from it (mBART).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ...core.spec import brief, nearest
from ...data.tokenizers.tokenizer import Tokenizer
from .generation import Ids


def between(tokenizer: Tokenizer, ids: Ids, src_lang: str, tgt_lang: str, name: str) -> tuple[Tokenizer, Ids]:
    """The tokenizer for texts in one language, and the tokens of generation for outputs in another.

    A language is its code or token: "eng_Latn" (NLLB), "fr" or "__fr__" (M2M-100), "fr_XX" (mBART). Raises ValueError for a
    tokenizer without tokens of languages, and for a language that it lacks; `name` is the model's, for messages.
    """
    languages = languages_of(tokenizer)
    source, target = (_token(code, languages, name) for code in (src_lang, tgt_lang))
    if ids.start in languages.values():  # mBART's decoder starts from the language
        ids = replace(ids, start=languages[target])
    else:
        ids = replace(ids, forced=(languages[target], ids.forced[1]))
    return _reading(tokenizer, source, languages), ids


def languages_of(tokenizer: Tokenizer) -> dict[str, int]:
    """The tokens of languages and their ids: the control tokens that have no other role."""
    others = {*tokenizer.roles.values(), "<s>", "</s>", "<pad>", "<unk>", "<mask>"}
    return {name: i for name, i in tokenizer.controls.items() if name not in others}


def _token(code: str, languages: Mapping[str, int], name: str) -> str:
    if not languages:
        raise ValueError(f"the tokenizer of {name} has no tokens of languages; leave out src_lang and tgt_lang")
    for token in (code, f"__{code}__"):
        if token in languages:
            return token
    raise ValueError(f"{name} has no language {brief(code)}; {nearest(str(code)[:40], languages)}")


def _reading(tokenizer: Tokenizer, source: str, languages: Mapping[str, int]) -> Tokenizer:
    """The tokenizer with another language in its template. Raises ValueError if the template has none."""
    content = json.loads(tokenizer.to_json())
    template = content.get("post_processor")
    present = [name for name in languages if f'"{name}"' in json.dumps(template, ensure_ascii=False)]
    if len(present) != 1:
        raise ValueError(
            f"the tokenizer puts {len(present)} tokens of languages around a text, and there must be one to put "
            f"{brief(source)} in its place"
        )
    content["post_processor"] = _swapped(template, present[0], source, languages)
    return Tokenizer.from_json(json.dumps(content, ensure_ascii=False))


def _swapped(part: Any, old: str, new: str, ids: Mapping[str, int]) -> Any:
    """A post-processor's JSON with one special token in another's place."""
    if isinstance(part, list):
        return [_swapped(item, old, new, ids) for item in part]
    if not isinstance(part, dict):
        return new if part == old else part
    swapped = {new if key == old else key: _swapped(value, old, new, ids) for key, value in part.items()}
    if new in swapped and isinstance(swapped[new], dict) and "ids" in swapped[new]:
        swapped[new] = {**swapped[new], "ids": [ids[new]]}
    return swapped
