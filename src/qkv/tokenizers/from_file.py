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
    """A tokenizer from a folder or file, in any of the forms that `Tokenizer.load` reads.

    `pad`, `unk`, `bos`, `eos` and `mask` name other tokens for these roles than the files do; one that the vocabulary
    lacks is added behind it (GPT-2 has no token for padding, say). So are the markers of `special`.
    """

    path: str
    dropout: float | None = Field(default=None, ge=0, lt=1)
    """As for bpe and unigram; None: what the file says."""
    pad: str | None = None
    unk: str | None = None
    bos: str | None = None
    eos: str | None = None

    @field_validator(*ROLES)
    @classmethod
    def _known_name(cls, name: str | None, info: object) -> str | None:
        return name  # any token: its role is written into the tokenizer.json

    @field_validator("lowercase", "normalization")
    @classmethod
    def _as_it_is(cls, value: object, info: object) -> object:
        if value not in (False, "none"):
            raise ValueError("a tokenizer from a file normalizes text as it was made to; leave this out")
        return value

    @property
    def vocab_size(self) -> int:
        """How many ids it has, once the tokens that are named here are added."""
        return _size(self.path, (*self.controls, *self.special))

    def with_roles(self, roles: Iterable[str]) -> Self:
        """As it is: the file says which token has which role, and what it lacks is named here."""
        return self

    def parts(self, texts: Iterable[str], trace: Trace | None = None) -> Parts:
        """Read it; the texts teach it nothing."""
        if trace is not None:
            raise ValueError("a tokenizer from a file is not trained, so that there are no merges to trace")
        raw, extra = read(self.path)
        given = {role: name for role in ROLES if (name := getattr(self, role)) is not None}
        found = extra.roles if extra.roles is not None or not given else usual_roles(raw)
        add_tokens(raw, [(None, AddedToken(name, special=True, normalized=False)) for name in given.values()])
        add_tokens(raw, [(None, AddedToken(name, special=False, normalized=False)) for name in self.special])
        roles = None if found is None else {**found, **given}
        dropout = extra.dropout if self.dropout is None else self.dropout
        return Parts(checked(raw), replace(extra, roles=roles, dropout=dropout))


@lru_cache(maxsize=8)
def _size(path: str, names: tuple[str, ...]) -> int:
    vocabulary = read(path).raw.get_vocab(with_added_tokens=True)
    return 1 + max(vocabulary.values()) + len({*names} - vocabulary.keys())
