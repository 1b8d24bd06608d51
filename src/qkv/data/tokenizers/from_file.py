"""The tokenizer kind `file`: loads an existing tokenizer instead of training one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache
from typing import Self

from pydantic import Field, field_validator
from tokenizers import AddedToken

from .readers.load import read
from .tokenizer_json import ROLES, Parts, add_tokens, checked, usual_roles
from .training.spec import TokenizerSpec, Trace


class FromFile(TokenizerSpec, kind="file"):
    """A tokenizer from a folder or file, in any form that `Tokenizer.load` reads.

    `pad`, `unk`, `bos`, `eos` and `mask` override the files' tokens for these roles. Tokens that the vocabulary lacks are
    added after it (GPT-2, for example, has no padding token), and so are the markers of `special`.
    """

    path: str
    dropout: float | None = Field(default=None, ge=0, lt=1)
    """As for bpe and unigram; None takes the file's setting."""
    pad: str | None = None
    unk: str | None = None
    bos: str | None = None
    eos: str | None = None

    @field_validator(*ROLES)
    @classmethod
    def _known_name(cls, name: str | None, info: object) -> str | None:
        return name  # any name is allowed, because the tokenizer.json stores roles

    @field_validator("lowercase", "normalization")
    @classmethod
    def _as_it_is(cls, value: object, info: object) -> object:
        if value not in (False, "none"):
            raise ValueError("a tokenizer from a file has its own normalization; leave this setting out")
        return value

    @property
    def vocab_size(self) -> int:
        """Number of ids, including the tokens that these settings add."""
        return _size(self.path, (*self.controls, *self.special))

    def with_roles(self, roles: Iterable[str]) -> Self:
        """Return the spec unchanged: roles come from the file, or from these settings."""
        return self

    def parts(self, texts: Iterable[str], trace: Trace | None = None) -> Parts:
        """Read the tokenizer; `texts` are ignored."""
        if trace is not None:
            raise ValueError(
                "a tokenizer from a file is not trained, so there are no merges to trace; leave out the trace"
            )
        raw, extra, _ = read(self.path)
        overrides = {role: name for role in ROLES if (name := getattr(self, role)) is not None}
        file_roles = extra.roles if extra.roles is not None or not overrides else usual_roles(raw)
        add_tokens(raw, [(None, AddedToken(name, special=True, normalized=False)) for name in overrides.values()])
        add_tokens(raw, [(None, AddedToken(name, special=False, normalized=False)) for name in self.special])
        roles = None if file_roles is None else {**file_roles, **overrides}
        dropout = extra.dropout if self.dropout is None else self.dropout
        return Parts(checked(raw), replace(extra, roles=roles, dropout=dropout))


@lru_cache(maxsize=8)
def _size(path: str, names: tuple[str, ...]) -> int:
    vocabulary = read(path).raw.get_vocab(with_added_tokens=True)
    return 1 + max(vocabulary.values()) + len({*names} - vocabulary.keys())
