"""Reads a Hub folder's tokenizer_config.json, special_tokens_map.json, added_tokens.json and chat_template.jinja.

The roles of special tokens come from these files, or else from the family's defaults (hub_families.py); they are guessed
only if neither gives them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import tokenizers
from pydantic import Field, TypeAdapter
from tokenizers import AddedToken, processors

from ....core.json_files import checked
from ....core.spec import brief, nearest
from ..tokenizer_json import ALL_ROLES, CHAT_TEMPLATE, Parts, TokenizerExtra, add_tokens
from .hub_families import BY_CLASS, BY_MODEL_TYPE, GENERIC, TokenizerFamily

CONFIG, SPECIAL_MAP, ADDED, MODEL = (
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "config.json",
)
IDS = TypeAdapter(dict[str, Annotated[int, Field(ge=0, lt=1 << 32)]])
"""Ids by tokens; the library `tokenizers` has 32 bits for each."""
_HALF = re.compile(r"\\u[dD][89a-fA-F]", re.ASCII)  # a JSON escape of half a surrogate pair
_NOT_JSON = re.compile(r"NaN|Infinity|[eE]\+?\d{3}")  # what Python reads and other libraries do not
LARGEST_CONFIG = 32 << 20  # bytes
TOKEN_KEYS = tuple(f"{role}_token" for role in ALL_ROLES)
TOKEN_LIST_KEYS = ("additional_special_tokens", "extra_special_tokens")


@dataclass(frozen=True)
class HubConfig:
    """The configuration files of a folder; empty for a folder without them.

    values:  tokenizer_config.json, completed by special_tokens_map.json and chat_template.jinja.
    ids:     added_tokens.json: tokens and their ids.
    family:  the family whose class wrote the files; None if they name none.
    unknown: the name of the class, if qkv doesn't know it.
    """

    values: Mapping[str, Any] = field(default_factory=dict)
    ids: Mapping[str, int] = field(default_factory=dict)
    family: TokenizerFamily | None = None
    unknown: str = ""

    @classmethod
    def read(cls, folder: Path) -> HubConfig:
        """Read the files of a folder. Raises ValueError if one is not a valid JSON object."""
        values = _json(folder / CONFIG)
        for key, value in _json(folder / SPECIAL_MAP).items():
            values.setdefault(key, value)
        values |= chat_template(folder)
        ids = checked(
            IDS, _json(folder / ADDED), f"{brief(str(folder / ADDED))} must map tokens to ids, whole numbers from 0 on"
        )
        model = _json(folder / MODEL)
        class_name = str(values.get("tokenizer_class") or model.get("tokenizer_class") or "").removesuffix("Fast")
        generic = class_name in GENERIC
        family = BY_MODEL_TYPE.get(str(model.get("model_type"))) if generic else BY_CLASS.get(class_name)
        return cls(values, ids, family, "" if family or generic else class_name)

    @property
    def gives_roles(self) -> bool:
        """Whether a file, or the family that it names, gives a role."""
        return self.family is not None or any(self.values.get(key) for key in TOKEN_KEYS)

    def flag(self, name: str, default: bool) -> bool:
        value = self.values.get(name, default)
        return default if value is None else bool(value)

    def known_family(self) -> TokenizerFamily | None:
        """Return the family. Raises ValueError if the files were written by an unknown class."""
        if self.unknown:
            raise ValueError(
                f"its files were written by {self.unknown}, which qkv doesn't support "
                f"({nearest(self.unknown, BY_CLASS)}): save it as a tokenizer.json with transformers, and load that"
            )
        return self.family

    # -- tokens -------------------------------------------------------------------------------------------------

    def token(self, role: str) -> AddedToken | None:
        """Return the token that the files give for a role."""
        value = self.values.get(f"{role}_token")
        return None if value is None else _token(value, f"{role}_token", lstrip=self.eats_space(role))

    def eats_space(self, role: str) -> bool:
        """Whether a role's token includes the space before it."""
        return role == "mask" and self.family is not None and self.family.eats_space

    def added(self) -> Iterator[tuple[int | None, AddedToken]]:
        """Yield the added tokens with their ids, ascending; then those without an id."""
        decoder = self.values.get("added_tokens_decoder") or {}
        if not isinstance(decoder, dict) or not all(key.isdecimal() and len(key) <= 10 for key in decoder):
            raise ValueError(f"{CONFIG}: added_tokens_decoder must map ids to tokens")
        special = {str(token.content) for token in self._special_tokens()}
        fixed = {int(i): _token(value, "added_tokens_decoder") for i, value in decoder.items()}
        for name, i in self.ids.items():
            fixed.setdefault(i, AddedToken(name, special=name in special, normalized=name not in special))
        yield from sorted(fixed.items(), key=lambda item: item[0])
        known = {token.content for token in fixed.values()}
        yield from ((None, token) for token in self._special_tokens() if token.content not in known)

    def _special_tokens(self) -> Iterator[AddedToken]:
        yield from (token for role in ALL_ROLES if (token := self.token(role)) is not None)
        for key in TOKEN_LIST_KEYS:
            more = self.values.get(key) or []
            if not isinstance(more, list | dict):
                raise ValueError(f"{CONFIG}: {key} must be a list of tokens")
            yield from (_token(value, key) for value in (more.values() if isinstance(more, dict) else more))


def chat_template(folder: Path) -> dict[str, str]:
    """Return the content of chat_template.jinja as a configuration entry, which overrides the one in the configuration."""
    path = folder / CHAT_TEMPLATE
    return {"chat_template": _text(path)} if path.is_file() else {}


def with_config(raw: tokenizers.Tokenizer, config: HubConfig, family: TokenizerFamily | None) -> Parts:
    """Add the tokens of the configuration to a tokenizer, and return it with their roles.

    A token that the configuration names is added if the vocabulary lacks it, as in `transformers`. A family's default
    token is used if the vocabulary has it, and never added.
    """
    roles: dict[str, str] = {}
    added = list(config.added())
    for role, name in family.roles.items() if family else ():
        if f"{role}_token" not in config.values and raw.token_to_id(name) is not None:
            roles[role] = name
            added.append((None, _token(name, role, lstrip=config.eats_space(role))))
    add_tokens(raw, added)
    for role in ALL_ROLES:
        token = config.token(role)
        if token is not None:
            roles[role] = token.content
    kept = {key: value for key, value in config.values.items() if key != "added_tokens_decoder"}
    return Parts(raw, TokenizerExtra(roles if roles or config.gives_roles else None, config=kept))


def put_template(
    raw: tokenizers.Tokenizer, roles: Mapping[str, str], family: TokenizerFamily, config: HubConfig
) -> None:
    """Set the family's post-processor, for files that have no field for it."""

    def token(role: str) -> tuple[str, int]:
        token_id = raw.token_to_id(roles[role]) if role in roles else None
        if token_id is None:
            raise ValueError(
                f"it has no {role} token, which a {family.name} tokenizer needs; add {role}_token to its {CONFIG}"
            )
        return roles[role], token_id

    if family.template == "roberta":
        space = config.flag("add_prefix_space", False)
        raw.post_processor = processors.RobertaProcessing(token("sep"), token("cls"), True, space)
    elif family.template == "bos-eos":
        raw.post_processor = processors.RobertaProcessing(token("eos"), token("bos"), False, False)
    elif family.template == "cls-eos":
        (cls, _), (end, _) = ends = token("cls"), token("eos")
        raw.post_processor = processors.TemplateProcessing(f"{cls} $A {end}", f"{cls} $A {end} $B {end}", list(ends))
    elif family.language:
        (end, _), (language, _) = ends = token("eos"), _language(raw, config.values.get("src_lang") or family.language)
        behind = family.template == "eos-language" or (family.legacy and config.flag("legacy_behaviour", False))
        around = ["{}", end, language] if behind else [language, "{}", end]
        single, pair = (" ".join(around).format(text) for text in ("$A", "$A $B"))
        raw.post_processor = processors.TemplateProcessing(single, pair, list(ends))
    elif family.template == "cls-sep":
        (cls, _), (sep, _) = ends = token("cls"), token("sep")
        single = f"{cls}:0 $A:0 {sep}:0"
        raw.post_processor = processors.TemplateProcessing(single, f"{single} $B:1 {sep}:1", list(ends))
    else:
        bos = [token("bos")] if config.flag("add_bos_token", family.adds[0]) else []
        eos = [token("eos")] if config.flag("add_eos_token", family.adds[1]) else []
        around = ["".join(f"{name}:{i} " for name, _ in bos) + f"${x}:{i}" for i, x in enumerate("AB")]
        single, second = (part + "".join(f" {name}:{i}" for name, _ in eos) for i, part in enumerate(around))
        if bos or eos:
            raw.post_processor = processors.TemplateProcessing(single, f"{single} {second}", [*bos, *eos])


def _language(raw: tokenizers.Tokenizer, code: Any) -> tuple[str, int]:
    """Return the token of a language and its id. Raises ValueError if the language has none."""
    for name in (str(code), f"__{code}__"):
        if (i := raw.token_to_id(name)) is not None:
            return name, i
    raise ValueError(f"it has no token for the language {brief(code)}; correct src_lang in its {CONFIG}")


def _token(value: Any, where: str, lstrip: bool = False) -> AddedToken:
    """Parse a token of the files: its text, or an object with its text and flags."""
    if isinstance(value, str) and value:
        return AddedToken(value, special=True, normalized=False, lstrip=lstrip)
    if isinstance(value, dict) and isinstance(value.get("content"), str) and value["content"]:
        flags = {name: bool(value.get(name, False)) for name in ("lstrip", "rstrip", "single_word")}
        special = bool(value.get("special", where != "added_tokens_decoder"))
        return AddedToken(
            value["content"], special=special, normalized=bool(value.get("normalized", not special)), **flags
        )
    raise ValueError(f"{CONFIG}: {where} must be a token's text or an object with its content, not {str(value)[:60]}")


def unwritable(text: str) -> bool:
    """Whether a text holds half of a character, which no file can hold."""
    return any("\ud800" <= character <= "\udfff" for character in text)


def _finite(value: Any) -> bool:
    try:
        json.dumps(value, allow_nan=False)
    except ValueError:
        return False
    return True


def _json(path: Path) -> dict[str, Any]:
    """Read a JSON object; empty if there is no such file."""
    if not path.is_file():
        return {}
    text = _text(path)
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        raise ValueError(f"{brief(path)} is not valid JSON") from None
    if _NOT_JSON.search(text) and not _finite(value):
        raise ValueError(f"{brief(path)} has a number that JSON does not have, NaN or Infinity")
    if _HALF.search(text) and unwritable(json.dumps(value, ensure_ascii=False)):
        raise ValueError(f"{brief(path)} has half of a character, which is not valid text")
    if not isinstance(value, dict):
        raise ValueError(f"{brief(path)} must hold a JSON object, not a {type(value).__name__}")
    return value


def _text(path: Path) -> str:
    if path.stat().st_size > LARGEST_CONFIG:
        raise ValueError(f"{brief(path)} has {path.stat().st_size:,} bytes; the limit is {LARGEST_CONFIG:,}")
    try:
        return path.read_bytes().decode("utf-8")
    except UnicodeDecodeError:
        raise ValueError(f"{brief(path)} is not valid UTF-8") from None
