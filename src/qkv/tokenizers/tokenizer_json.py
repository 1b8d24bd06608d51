"""Reads and writes tokenizer.json, safely: nothing in it is executed, imported or downloaded, and its size is limited.

The format has no fields for the roles of special tokens or for dropout. They are stored in its model under "qkv", which
the `tokenizers` library ignores.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import tokenizers
from tokenizers import AddedToken

from ..core import atomic
from .pipelines import close_holes
from .safety_limits import check

FILE, CHAT_TEMPLATE = "tokenizer.json", "chat_template.jinja"
LARGEST_FILE = 128 << 20  # bytes; the largest in use have some 35 MB
STALE = 600  # seconds after which an unfinished file is nobody's any more
OURS = "qkv"

ROLES: dict[str, tuple[str, ...]] = {
    "pad": ("<pad>", "[PAD]", "<|pad|>"),
    "unk": ("<unk>", "[UNK]", "<|unk|>"),
    "bos": ("<s>", "[CLS]", "<bos>", "<|begin_of_text|>", "<|startoftext|>", "<|endoftext|>"),
    "eos": ("</s>", "[SEP]", "<eos>", "<|end_of_text|>", "<|endoftext|>"),
    "mask": ("<mask>", "[MASK]", "<|mask|>"),
}
"""The names a control token can have: by them roles are found again, whoever wrote the tokenizer.json anew."""

ALL_ROLES = {**ROLES, "cls": ("[CLS]",), "sep": ("[SEP]",)}


@dataclass(frozen=True)
class Extra:
    """What a tokenizer.json has no place for.

    roles:   which token has which role; None: the tokens are found by their usual names.
    dropout: how much chance there is in training's splits (qkv.tokenizers.subword_regularization).
    config:  the tokenizer_config.json that it came with, so that it can be written again; in it, the chat template.
    start:   the token that a decoder begins with, of an encoder–decoder that another library made; what stands around its
             texts is then what the tokenizer.json itself puts there.
    source:  a second tokenizer.json, with a vocabulary of its own, which reads the source side of pairs.
    target:  a second tokenizer.json, which cuts the target side of pairs into other pieces of the same vocabulary (Marian).
    """

    roles: Mapping[str, str] | None = None
    dropout: float = 0.0
    config: Mapping[str, Any] = field(default_factory=dict)
    start: str | None = None
    target: Mapping[str, Any] | None = None
    source: Mapping[str, Any] | None = None

    def to_dict(self) -> dict[str, Any]:
        """Without what has its default."""
        roles = {} if self.roles is None else {"roles": dict(self.roles)}
        rest = {"dropout": self.dropout, "config": dict(self.config), "start": self.start}
        rest |= {"target": self.target, "source": self.source}
        return {**roles, **{name: value for name, value in rest.items() if value}}

    @classmethod
    def from_dict(cls, data: Any) -> Extra:
        """Raises ValueError with a reason."""
        data = data if isinstance(data, dict) else {"?": data}
        unknown = [name for name in data if name not in cls.__dataclass_fields__]
        roles, dropout, config = data.get("roles"), data.get("dropout", 0.0), data.get("config", {})
        start, target, source = data.get("start"), data.get("target"), data.get("source")
        fine = isinstance(config, dict) and isinstance(dropout, int | float) and 0 <= dropout < 1
        fine = fine and isinstance(start, str | None) and isinstance(target, dict | None)
        fine = fine and isinstance(source, dict | None)
        if unknown or not fine or not (roles is None or _names_roles(roles)):
            raise ValueError(f"its {OURS!r} part is not one that this version of qkv writes")
        return cls(roles, float(dropout), config, start, target, source)


def _names_roles(roles: Any) -> bool:
    return isinstance(roles, dict) and all(k in ALL_ROLES and isinstance(v, str) for k, v in roles.items())


class Parts(NamedTuple):
    """A tokenizer of the library, and what its file has no place for."""

    raw: tokenizers.Tokenizer
    extra: Extra = Extra()


def read(path: str | Path) -> str:
    """The content of a tokenizer.json, or of the one in a folder. Raises ValueError when there is none, or a pickle."""
    path = Path(path).expanduser()
    path = path / FILE if path.is_dir() else path
    if not path.is_file():
        raise ValueError(f"there is no tokenizer at {str(path)!r}: give a {FILE}, or a folder with one")
    if path.stat().st_size > LARGEST_FILE:
        raise ValueError(f"{str(path)!r} has {path.stat().st_size:,} bytes, more than any tokenizer")
    data = path.read_bytes()
    if data.lstrip()[:1] != b"{":
        raise ValueError(f"{str(path)!r} is not a {FILE}, which is a JSON object (and never a pickle)")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise ValueError(f"{str(path)!r} is not valid UTF-8") from None


def parse(text: str) -> Parts:
    """The library's tokenizer. Raises ValueError for one that is broken, or made to exhaust memory."""
    try:
        data = json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(data, dict):
        raise ValueError(f"it is not a JSON object but a {type(data).__name__}")
    check(data)
    model = data["model"] if isinstance(data.get("model"), dict) else {}
    extra = Extra.from_dict(model.get(OURS, {}))
    with library_errors():
        raw = tokenizers.Tokenizer.from_str(
            json.dumps(data)
        )  # what was checked: of a key that is there twice, the last
        if model.get("dropout"):  # of the library's own kind, which can't be seeded and would be on in evaluation too
            extra = replace(extra, dropout=extra.dropout or float(model["dropout"]))
            raw.model.dropout = None
        return Parts(checked(raw), extra)


def checked(raw: tokenizers.Tokenizer) -> tokenizers.Tokenizer:
    """One with a vocabulary whose ids are within reach, and with its holes closed."""
    ids = raw.get_vocab(with_added_tokens=True).values()
    if not ids:
        raise ValueError("its vocabulary is empty")
    if max(ids) > 2 * len(ids) + 1024:
        raise ValueError(f"it has an id {max(ids):,}, but only {len(ids):,} tokens")
    controls = [token.content for token in raw.get_added_tokens_decoder().values() if token.special]
    return close_holes(raw, controls)


def usual_roles(raw: tokenizers.Tokenizer) -> dict[str, str]:
    """The roles of control tokens that have the usual names, for a file that says nothing about them."""
    controls = {token.content for token in raw.get_added_tokens_decoder().values() if token.special}
    found = {role: next((name for name in names if name in controls), None) for role, names in ALL_ROLES.items()}
    return {role: name for role, name in found.items() if name is not None}


def dump(parts: Parts) -> str:
    """The content of tokenizer.json."""
    data = json.loads(parts.raw.to_str())
    data["model"][OURS] = parts.extra.to_dict()
    return json.dumps(data, indent=2, ensure_ascii=False)


def add_tokens(raw: tokenizers.Tokenizer, tokens: Iterable[tuple[int | None, AddedToken]]) -> None:
    """Add tokens, or change the flags of those that are there, and hold that each has the id that is given for it.

    A token without an id is one that is only named: it keeps the flags that it has.
    """
    for wanted, token in tokens:
        there = raw.token_to_id(token.content)
        known = None if there is None else raw.get_added_tokens_decoder().get(there)
        if wanted is not None or known is None or token.special > known.special:
            (raw.add_special_tokens if token.special else raw.add_tokens)([token])
        found = raw.token_to_id(token.content)
        if wanted is not None and found != wanted:
            raise ValueError(
                f"its configuration puts {token.content!r} at {wanted:,}, and its vocabulary puts it at {found:,}"
            )


def place(path: str | Path) -> Path:
    """Where a tokenizer is written: in a folder, or at a path that ends in .json."""
    path = Path(path).expanduser()
    return path if path.suffix == ".json" else path / FILE


def write(path: str | Path, text: str) -> Path:
    """Write to `place(path)`, whole or not at all; returns that path."""
    return write_text(place(path), text)


def write_text(path: Path, text: str) -> Path:
    """Write a file, whole or not at all, and its folder when there is none; what a killed process left of it is removed."""
    return write_bytes(path, text.encode("utf-8"))


def write_bytes(path: Path, data: bytes) -> Path:
    """As `write_text`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    for left in (*path.parent.glob(f".tmp-{path.name}-*"), *path.parent.glob(f".{path.name}.[0-9]*")):
        with contextlib.suppress(OSError):
            if time.time() - left.stat().st_mtime > STALE:
                left.unlink()
    with atomic.replacing(path) as beside:
        beside.write_bytes(data)
    return path


@contextlib.contextmanager
def library_errors() -> Iterator[None]:
    """The library's bare exceptions, and its Rust panics, as a ValueError."""
    try:
        yield
    except BaseException as error:
        raise as_value_error(error) from None


@contextlib.contextmanager
def encoding_errors(texts: Sequence[str]) -> Iterator[None]:
    """Why texts could not be encoded, in words."""
    try:
        yield
    except BaseException as error:
        raise _unreadable(texts, error) from None


def _unreadable(texts: Sequence[str], error: BaseException) -> BaseException:
    if isinstance(texts, str):
        return ValueError("texts is one string; give a list of texts, or use encode")
    for text in texts if isinstance(error, Exception) else ():
        if not isinstance(text, str):
            return ValueError(f"a text is a string, not {type(text).__name__}")
        if (at := next((i for i, character in enumerate(text) if "\ud800" <= character <= "\udfff"), None)) is not None:
            return _half(text, at)
    return as_value_error(error)


def _half(text: str, at: int) -> ValueError:
    return ValueError(
        f"a text holds half of a surrogate pair, which is no character, at {at:,}: {text[max(0, at - 20) : at + 20]!r}; "
        "the bytes it was read from are not UTF-8, so read them by their own encoding"
    )


def as_value_error(error: BaseException) -> BaseException:
    if isinstance(error, UnicodeEncodeError):
        return _half(error.object, error.start)
    if type(error) is Exception or type(error).__name__ == "PanicException":
        return ValueError(" ".join(str(error).split())[:300])
    return error
