"""Settings of a tokenizer (`TokenizerSpec`): special tokens, normalization, and how each kind learns its vocabulary."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Annotated, Any, Literal, Self, TypeVar

import tokenizers
from pydantic import Field, field_validator, model_validator
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers

from ....core.spec import Spec, brief
from ..chat.template import ChatTemplate
from ..pipelines import BYTES, any_of, close_holes
from ..tokenizer_json import ROLES, Parts, TokenizerExtra
from .pair_merges import MergeStep

Trace = Callable[[MergeStep], None]

VocabSize = Annotated[int, Field(ge=1, le=10_000_000)]  # the trainers allocate all of it at the start


class TokenizerSpec(Spec, role="tokenizer"):
    """Settings of a tokenizer.

    The first ids belong to the control tokens (`pad unk bos eos mask`, if set, in this order), then of the markers in
    `special`, then of the learned vocabulary. Control tokens are added by the program and never matched in text; markers
    are matched in text, each as one id, and kept when decoding.
    """

    lowercase: bool = False
    normalization: Literal["none", "nfc", "nfkc"] = "none"
    """Unicode normalization. `none` is lossless; `nfkc` is SentencePiece's default."""
    pad: str | None = "<pad>"
    unk: str | None = "<unk>"
    bos: str | None = "<s>"
    eos: str | None = "</s>"
    mask: str | None = None
    special: tuple[str, ...] = ()
    """Markers such as `<de>`: printable ASCII without spaces."""
    chat_template: str | None = None
    """A Jinja chat template; see qkv.data.tokenizers.chat.template."""

    @field_validator(*ROLES)
    @classmethod
    def _known_name(cls, name: str | None, info: Any) -> str | None:
        allowed = ROLES[info.field_name]
        if name is not None and name not in allowed:
            raise ValueError(
                f"{brief(name)} is not a known name for {info.field_name}; use one of {', '.join(allowed)}"
            )
        return name

    @field_validator("special")
    @classmethod
    def _readable(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        for name in names:
            if not re.fullmatch(r"[!-~]{2,64}", name) or name in BYTES:
                raise ValueError(
                    f"a special token is 2 to 64 printable ASCII characters without spaces, not {brief(name)}"
                )
        return names

    @field_validator("chat_template")
    @classmethod
    def _compiles(cls, template: str | None) -> str | None:
        if template is not None:
            ChatTemplate(template)
        return template

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        twice = [name for name, times in Counter(self.names).items() if times > 1]
        if twice:
            raise ValueError(
                f"special tokens must differ: {', '.join(map(repr, twice))} is given twice; rename or remove one"
            )
        return self

    # -- overridden by each kind ---------------------------------------------------------------------------------

    def learn(self, texts: Iterable[str], trace: Trace | None = None) -> models.Model:
        """Train the model and return it; its vocabulary begins with `names`. Markers have been removed from `texts`."""
        raise NotImplementedError

    def normalizer(self) -> normalizers.Normalizer | None:
        steps: list[normalizers.Normalizer] = []
        if self.normalization != "none":
            steps.append({"nfc": normalizers.NFC, "nfkc": normalizers.NFKC}[self.normalization]())
        if self.lowercase:
            steps.append(normalizers.Lowercase())
        return normalizers.Sequence(steps) if steps else None

    def pre_tokenizer(self) -> pre_tokenizers.PreTokenizer | None:
        return None

    def decoder(self) -> decoders.Decoder | None:
        return None

    # -- shared by all kinds ----------------------------------------------------------------------------------------

    @property
    def controls(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(n for n in (self.pad, self.unk, self.bos, self.eos, self.mask) if n))

    def with_roles(self, roles: Iterable[str]) -> Self:
        """Return the spec with a control token for each of these roles, named in the style of the existing ones."""
        style = any(name.startswith("[") for name in self.controls)
        return self.replace({role: ROLES[role][style] for role in roles if getattr(self, role) is None})

    @property
    def names(self) -> list[str]:
        """Control tokens and markers, which have the first ids."""
        return [*self.controls, *self.special]

    def parts(self, texts: Iterable[str], trace: Trace | None = None) -> Parts:
        """Train, and return the parts of a `Tokenizer`; `tokenizers.tokenizer.train` returns the `Tokenizer` itself."""
        return Parts(self.train(texts, trace), TokenizerExtra(dropout=getattr(self, "dropout", 0.0)))

    def train(self, texts: Iterable[str], trace: Trace | None = None) -> tokenizers.Tokenizer:
        """Train, and return a tokenizer of the `tokenizers` library."""
        pipeline = self.pipeline(self.learn(self._without_markers(texts), trace))
        pipeline.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in self.controls])
        pipeline.add_tokens([AddedToken(name, special=False, normalized=False) for name in self.special])
        return pipeline

    def pipeline(self, model: models.Model) -> tokenizers.Tokenizer:
        """Return a tokenizer of this model with the kind's normalizer, pre-tokenizer and decoder."""
        raw = tokenizers.Tokenizer(model)
        normalizer, pre_tokenizer, decoder = self.normalizer(), self.pre_tokenizer(), self.decoder()
        if normalizer is not None:
            raw.normalizer = normalizer
        if pre_tokenizer is not None:
            raw.pre_tokenizer = pre_tokenizer
        if decoder is not None:
            raw.decoder = decoder
        return close_holes(raw, self.controls)

    def _without_markers(self, texts: Iterable[str]) -> Iterator[str]:
        markers = any_of(self.special)
        empty = True
        for text in texts:
            for part in markers.split(text):
                empty = empty and not part.strip()
                if part:
                    yield part
        if empty:
            raise ValueError("there is nothing to learn a vocabulary from: the texts are empty")

    def _check_size(self, vocab_size: int, needed: int) -> None:
        least = len(self.names) + needed
        if vocab_size < least:
            raise ValueError(
                f"vocab_size is {vocab_size}, but these texts need {len(self.names)} special tokens and {needed} "
                f"characters or bytes: set it to {least} or more"
            )


Needing = TypeVar("Needing", bound=TokenizerSpec)


def require_unk(spec: Needing) -> Needing:
    """Raise ValueError for a specification without an unknown token, which its kind needs."""
    if spec.unk is None:
        raise ValueError(f"a {spec.kind} tokenizer can't encode every text, so it needs an unk token; set unk")
    return spec


def refuse_trace(spec: TokenizerSpec, trace: Trace | None) -> None:
    if trace:
        raise ValueError(f"only bpe and wordpiece learn merges that can be traced, not {spec.kind}")


class ByteFallbackSpec(TokenizerSpec):
    """Base of kinds with byte fallback."""

    byte_fallback: bool = False
    """Encode characters that the vocabulary lacks as UTF-8 bytes, so nothing is unknown; adds 256 tokens."""

    @property
    def fallback(self) -> list[str]:
        return list(BYTES) if self.byte_fallback else []

    def _metaspace_decoder(self, prefix_space: bool) -> decoders.Decoder:
        decoder = decoders.Metaspace(prepend_scheme=prepend_scheme(prefix_space))
        return decoders.Sequence([decoders.ByteFallback(), decoder]) if self.byte_fallback else decoder


class SubwordSpec(ByteFallbackSpec):
    """Base of subword kinds."""

    split_digits: bool = False
    """Make every digit its own token (Llama, PaLM), so numbers are processed digit by digit."""
    dropout: float = Field(default=0.0, ge=0, lt=1)
    """Subword regularization of training texts (qkv.data.tokenizers.subword_regularization); evaluation is not affected.

    bpe: probability of dropping a merge (Provilkov et al. 2020; 0.1). unigram: α, which multiplies the log-probabilities
    of segmentations before one is sampled (Kudo 2018; 0.1 to 0.5). 0: no regularization.
    """

    def _digits_apart(self, words: pre_tokenizers.PreTokenizer) -> pre_tokenizers.PreTokenizer:
        if not self.split_digits:
            return words
        return pre_tokenizers.Sequence([words, pre_tokenizers.Digits(individual_digits=True)])


def prepend_scheme(prefix_space: bool) -> str:
    return "first" if prefix_space else "never"
