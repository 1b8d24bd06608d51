"""Reads and writes tokenizer.json safely: nothing in it is executed, imported or downloaded, and its size is limited.

The format has no fields for the roles of special tokens or for dropout. They are stored in its model under "qkv", which
the `tokenizers` library ignores.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import tokenizers
from tokenizers import AddedToken

from ...core import atomic, several
from ...core.several import shown
from ...core.spec import brief
from .pipelines import close_holes
from .safety_limits import check

FILE, CHAT_TEMPLATE = "tokenizer.json", "chat_template.jinja"
LARGEST_FILE = 128 << 20  # bytes; the largest published files have about 35 MB
OURS = "qkv"

ROLES: dict[str, tuple[str, ...]] = {
    "pad": ("<pad>", "[PAD]", "<|pad|>"),
    "unk": ("<unk>", "[UNK]", "<|unk|>"),
    "bos": ("<s>", "[CLS]", "<bos>", "<|begin_of_text|>", "<|startoftext|>", "<|endoftext|>"),
    "eos": ("</s>", "[SEP]", "<eos>", "<|end_of_text|>", "<|endoftext|>"),
    "mask": ("<mask>", "[MASK]", "<|mask|>"),
}
"""Allowed names of control tokens. Roles can be recovered from these names when another program rewrites the file."""

ALL_ROLES = {**ROLES, "cls": ("[CLS]",), "sep": ("[SEP]",)}


@dataclass(frozen=True)
class TokenizerExtra:
    """Settings for which a tokenizer.json has no fields.

    roles:   role → token; None finds the tokens by their usual names.
    dropout: strength of subword regularization in training (qkv.data.tokenizers.subword_regularization).
    config:  content of the tokenizer_config.json that was loaded, kept for saving; it holds the chat template.
    start:   first token of the decoder, for an encoder–decoder of another library; the special tokens around its texts
             are then those that the tokenizer.json adds.
    source:  a second tokenizer.json with its own vocabulary, for the source side of pairs.
    target:  a second tokenizer.json with the same vocabulary but other pieces, for the target side of pairs (Marian).
    calls:   what a tokenizer_config.json beside a file of qkv says about calls, such as the longest input; not stored.
    """

    roles: Mapping[str, str] | None = None
    dropout: float = 0.0
    config: Mapping[str, Any] = field(default_factory=dict)
    start: str | None = None
    target: Mapping[str, Any] | None = None
    source: Mapping[str, Any] | None = None
    calls: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields that differ from their defaults."""
        roles = {} if self.roles is None else {"roles": dict(self.roles)}
        rest = {"dropout": self.dropout, "config": dict(self.config), "start": self.start}
        rest |= {"target": self.target, "source": self.source}
        return {**roles, **{name: value for name, value in rest.items() if value}}

    @classmethod
    def from_dict(cls, data: object) -> TokenizerExtra:
        """Read `to_dict`'s result. Raises ValueError if a field is unknown or has a wrong type."""
        given: dict[str, Any] = data if isinstance(data, dict) else {"?": data}
        unknown = [name for name in given if name not in cls.__dataclass_fields__ or name == "calls"]
        roles, dropout, config = given.get("roles"), given.get("dropout", 0.0), given.get("config", {})
        start, target, source = given.get("start"), given.get("target"), given.get("source")
        fine = isinstance(config, dict) and isinstance(dropout, int | float) and 0 <= dropout < 1
        fine = fine and isinstance(start, str | None) and isinstance(target, dict | None)
        fine = fine and isinstance(source, dict | None)
        if unknown or not fine or not (roles is None or _names_roles(roles)):
            raise ValueError(f"its {OURS!r} entry is not valid for this version of qkv")
        return cls(roles, float(dropout), config, start, target, source)


def _names_roles(roles: Any) -> bool:
    return isinstance(roles, dict) and all(k in ALL_ROLES and isinstance(v, str) for k, v in roles.items())


class Parts(NamedTuple):
    """A tokenizer of the `tokenizers` library, and the settings for which its file has no fields.

    model_size: 1 + the largest id in the vocabulary of its model, if that is known already.
    """

    raw: tokenizers.Tokenizer
    extra: TokenizerExtra = TokenizerExtra()
    model_size: int | None = None


def read(path: str | Path) -> str:
    """Return the text of a tokenizer.json, given its path or its folder. Raises ValueError if it is missing, too large, or
    not a JSON object."""
    path = Path(path).expanduser()
    path = path / FILE if path.is_dir() else path
    if not path.is_file():
        raise ValueError(f"there is no tokenizer at {brief(path)}: give a {FILE}, or a folder with one")
    if path.stat().st_size > LARGEST_FILE:
        raise ValueError(
            f"{brief(path)} has {path.stat().st_size:,} bytes; the limit for a tokenizer is {LARGEST_FILE:,}"
        )
    data = path.read_bytes()
    if data.lstrip()[:1] != b"{":
        raise ValueError(f"{brief(path)} is not a {FILE}, which is a JSON object (and never a pickle)")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise ValueError(f"{brief(path)} is not valid UTF-8") from None


def parse(text: str) -> Parts:
    """Parse the text of a tokenizer.json. Raises ValueError if it is broken, or could exhaust memory."""
    repeated = False

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal repeated
        entries = dict(pairs)
        repeated = repeated or len(entries) != len(pairs)
        return entries

    try:
        data = json.loads(text, object_pairs_hook=once)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(data, dict):
        raise ValueError(f"it is not a JSON object but a {type(data).__name__}")
    check(data)
    model = data["model"] if isinstance(data.get("model"), dict) else {}
    extra = TokenizerExtra.from_dict(model.get(OURS, {}))
    with library_errors():
        raw = tokenizers.Tokenizer.from_str(
            json.dumps(data) if repeated else text
        )  # what was checked: of a key, the last value
        if model.get("dropout"):  # the library's own dropout can't be seeded, and would be on in evaluation too
            extra = replace(extra, dropout=extra.dropout or float(model["dropout"]))
            raw.model.dropout = None
        vocab = model.get("vocab")
        size = 1 + max(vocab.values(), default=-1) if isinstance(vocab, dict) else None
        return Parts(checked(raw, size), extra, size)


def size(raw: tokenizers.Tokenizer, of_model: int | None = None) -> int:
    """1 + the largest id of a tokenizer. `of_model` is that of its model alone; asking the library for it copies the whole
    vocabulary."""
    if of_model is None:
        of_model = 1 + max(raw.get_vocab(with_added_tokens=False).values(), default=-1)
    return max(of_model, 1 + max(raw.get_added_tokens_decoder(), default=-1))


def checked(raw: tokenizers.Tokenizer, model_size: int | None = None) -> tokenizers.Tokenizer:
    """Check that a vocabulary is not empty and its ids not too sparse, and keep control tokens out of texts."""
    count, largest = raw.get_vocab_size(with_added_tokens=True), size(raw, model_size) - 1
    if not count:
        raise ValueError("its vocabulary is empty")
    if largest > 2 * count + 1024:
        raise ValueError(f"it has the id {largest:,}, but only {count:,} tokens")
    controls = [token.content for token in raw.get_added_tokens_decoder().values() if token.special]
    return close_holes(raw, controls)


def usual_roles(raw: tokenizers.Tokenizer) -> dict[str, str]:
    """Return the roles of control tokens with the usual names, for a file that doesn't give roles."""
    controls = {token.content for token in raw.get_added_tokens_decoder().values() if token.special}
    names = {role: next((name for name in usual if name in controls), None) for role, usual in ALL_ROLES.items()}
    return {role: name for role, name in names.items() if name is not None}


def dump(parts: Parts) -> str:
    """Return the text of a tokenizer.json."""
    data = json.loads(parts.raw.to_str())
    data["model"][OURS] = parts.extra.to_dict()
    return json.dumps(data, indent=2, ensure_ascii=False)


def add_tokens(raw: tokenizers.Tokenizer, tokens: Iterable[tuple[int | None, AddedToken]]) -> None:
    """Add tokens, or update the flags of existing ones, and check that each has the given id.

    An existing token given without an id keeps its flags. Raises ValueError if a token has another id.
    """
    for wanted, token in tokens:
        existing_id = raw.token_to_id(token.content)
        known = None if existing_id is None else raw.get_added_tokens_decoder().get(existing_id)
        if wanted is not None or known is None or token.special > known.special:
            (raw.add_special_tokens if token.special else raw.add_tokens)([token])
        actual = raw.token_to_id(token.content)
        if wanted is not None and actual != wanted:
            raise ValueError(
                f"the token {brief(token.content)} has the id {wanted:,} in its configuration, but {actual:,} in "
                "its vocabulary"
            )


def place(path: str | Path) -> Path:
    """Return the path that a tokenizer is written to: `path` if it ends in .json, else the tokenizer.json in that folder."""
    path = several.path(path).expanduser()
    return path if path.suffix == ".json" else path / FILE


def write_text(path: Path, text: str) -> Path:
    """Write a text file atomically; create its folder if needed."""
    return write_bytes(path, text.encode("utf-8"))


def write_bytes(path: Path, data: bytes) -> Path:
    """Write bytes like `write_text`."""
    atomic.make_folder(path.parent)
    atomic.write_file(path, data)
    return path


@contextlib.contextmanager
def library_errors() -> Iterator[None]:
    """Turn the `tokenizers` library's bare exceptions and Rust panics into ValueErrors."""
    try:
        yield
    except BaseException as error:
        raise as_value_error(error) from None


@contextlib.contextmanager
def encoding_errors(texts: Sequence[str]) -> Iterator[None]:
    """Turn an error of encoding these texts into a ValueError that gives the reason."""
    try:
        yield
    except BaseException as error:
        raise _unreadable(texts, error) from None


def _unreadable(texts: Sequence[str], error: BaseException) -> BaseException:
    if isinstance(texts, str):
        return ValueError("texts is one string; give a list of texts, or use encode")
    if isinstance(error, Exception) and not (isinstance(texts, Sequence) and not isinstance(texts, bytes)):
        return ValueError(f"texts are a list of strings, not {shown(texts)}")
    for text in texts if isinstance(error, Exception) else ():
        if not isinstance(text, str):
            return ValueError(f"a text is a string, not {type(text).__name__}")
        if (at := next((i for i, character in enumerate(text) if "\ud800" <= character <= "\udfff"), None)) is not None:
            return _half(text, at)
    return as_value_error(error)


def _half(text: str, at: int) -> ValueError:
    return ValueError(
        f"a text holds half of a surrogate pair, which is no character, at {at:,}: {text[max(0, at - 20) : at + 20]!r}; "
        "its bytes were probably not UTF-8, so decode them with their own encoding"
    )


def as_value_error(error: BaseException) -> BaseException:
    if isinstance(error, UnicodeEncodeError):
        return _half(error.object, error.start)
    if type(error) is Exception or type(error).__name__ == "PanicException":
        return ValueError(" ".join(str(error).split())[:300])
    return error
