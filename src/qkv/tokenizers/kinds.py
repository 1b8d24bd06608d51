"""The kinds of tokenizer: what a recipe says about one, and how each kind learns its vocabulary.

Every kind becomes a pipeline of the `tokenizers` library (normalizer → pre-tokenizer → model → decoder). A new kind is
a subclass of `TokenizerSpec` with a `kind` and a `learn` method, from any package.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Annotated, Any, Literal, Self

from pydantic import Field, PositiveInt, field_validator, model_validator

import tokenizers
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, trainers

from ..core.spec import Spec
from .bpe import Pair, Step, Ties, bpe_steps
from .chat.template import ChatTemplate
from .pipelines import BYTES, any_of, byte_symbols, canonical, close_holes, contents, count_words, normalized, noting
from .readers.tokenizer_json import ROLES, Extra, Parts
from .wordpiece import CONTINUES, LONGEST_WORD, Merge, train_wordpiece

Trace = Callable[[Step], None]

VocabSize = Annotated[int, Field(ge=1, le=10_000_000)]  # the trainers take room for all of it before they begin


class TokenizerSpec(Spec, role="tokenizer"):
    """How text becomes ids.

    Ids begin with the control tokens, those that are set of `pad unk bos eos mask` in this order; then come the markers
    of `special`, then what was learned. Control tokens are put in by the program and are never read from text; markers
    are read from text, each as one id, and are written back when decoding.
    """

    lowercase: bool = False
    normalization: Literal["none", "nfc", "nfkc"] = "none"
    """Unicode normalization of the text. With `none` nothing is lost; `nfkc` is SentencePiece's."""
    pad: str | None = "<pad>"
    unk: str | None = "<unk>"
    bos: str | None = "<s>"
    eos: str | None = "</s>"
    mask: str | None = None
    special: tuple[str, ...] = ()
    """Markers such as `<de>`: printable ASCII without spaces."""
    chat_template: str | None = None
    """How conversations become text, in Jinja; see qkv.tokenizers.chat.template."""

    @field_validator(*ROLES)
    @classmethod
    def _known_name(cls, name: str | None, info: Any) -> str | None:
        allowed = ROLES[info.field_name]
        if name is not None and name not in allowed:
            raise ValueError(f"{name!r} would not be found again in a tokenizer.json; use one of {', '.join(allowed)}")
        return name

    @field_validator("special")
    @classmethod
    def _readable(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        for name in names:
            if not re.fullmatch(r"[!-~]{2,64}", name) or name in BYTES:
                raise ValueError(f"a special token is 2 to 64 printable ASCII characters without spaces, not {name!r}")
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
            raise ValueError(f"special tokens must differ, and {', '.join(map(repr, twice))} is there twice")
        return self

    # -- what a kind is made of ---------------------------------------------------------------------------------

    def learn(self, texts: Iterable[str], trace: Trace | None = None) -> models.Model:
        """The model with its vocabulary, which begins with `names`. `texts` have no markers in them any more."""
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

    # -- what they share ----------------------------------------------------------------------------------------

    @property
    def controls(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(n for n in (self.pad, self.unk, self.bos, self.eos, self.mask) if n))

    def with_roles(self, roles: Iterable[str]) -> Self:
        """With a control token for each of these roles, named in the way of those that there are."""
        way = any(name.startswith("[") for name in self.controls)
        return self.replace({role: ROLES[role][way] for role in roles if getattr(self, role) is None})

    @property
    def names(self) -> list[str]:
        """Control tokens and markers, which have the first ids."""
        return [*self.controls, *self.special]

    def parts(self, texts: Iterable[str], trace: Trace | None = None) -> Parts:
        """What a `qkv.tokenizers.tokenizer.Tokenizer` is made of; use `qkv.tokenizers.tokenizer.train`, which wraps it."""
        return Parts(self.train(texts, trace), Extra(dropout=getattr(self, "dropout", 0.0)))

    def train(self, texts: Iterable[str], trace: Trace | None = None) -> tokenizers.Tokenizer:
        """The library's tokenizer."""
        pipeline = self.pipeline(self.learn(self._without_markers(texts), trace))
        pipeline.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in self.controls])
        pipeline.add_tokens([AddedToken(name, special=False, normalized=False) for name in self.special])
        return pipeline

    def pipeline(self, model: models.Model) -> tokenizers.Tokenizer:
        """The kind's normalizer, pre-tokenizer and decoder around a model."""
        raw = tokenizers.Tokenizer(model)
        before, between, after = self.normalizer(), self.pre_tokenizer(), self.decoder()
        if before is not None:
            raw.normalizer = before
        if between is not None:
            raw.pre_tokenizer = between
        if after is not None:
            raw.decoder = after
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
                f"vocab_size is {vocab_size}, but {len(self.names)} special tokens and {needed} more, without which "
                f"these texts can't be spelled, make {least}: set it to that or more"
            )


def _needs_unk(spec: Any) -> Any:
    if spec.unk is None:
        raise ValueError(f"a {spec.kind} tokenizer meets text that it can't spell, so it needs an unk token")
    return spec


def _no_trace(spec: TokenizerSpec, trace: Trace | None) -> None:
    if trace:
        raise ValueError(f"only bpe and wordpiece grow by merges that can be traced, not {spec.kind}")


class _ByteFallback(TokenizerSpec):
    """Kinds that can spell what their vocabulary lacks."""

    byte_fallback: bool = False
    """Spell characters that the vocabulary lacks as their UTF-8 bytes, 256 more tokens, so that nothing is unknown."""

    @property
    def fallback(self) -> list[str]:
        return list(BYTES) if self.byte_fallback else []

    def _metaspace_decoder(self, prefix_space: bool) -> decoders.Decoder:
        decoder = decoders.Metaspace(prepend_scheme=_scheme(prefix_space))
        return decoders.Sequence([decoders.ByteFallback(), decoder]) if self.byte_fallback else decoder


class _Subword(_ByteFallback):
    """Kinds that learn pieces of words."""

    split_digits: bool = False
    """Every digit a token of its own (Llama, PaLM): numbers are then copied and compared digit by digit."""
    dropout: float = Field(default=0.0, ge=0, lt=1)
    """How much chance there is in the splits that training reads (qkv.tokenizers.subword_sampling), and nothing else does.

    bpe: the probability with which a merge is left out (Provilkov et al. 2020; 0.1). unigram: α, which the
    log-probabilities of splits are multiplied with before one is drawn (Kudo 2018; 0.1 to 0.5). 0: always one split.
    """

    def _digits_apart(self, words: pre_tokenizers.PreTokenizer) -> pre_tokenizers.PreTokenizer:
        if not self.split_digits:
            return words
        return pre_tokenizers.Sequence([words, pre_tokenizers.Digits(individual_digits=True)])


def _scheme(prefix_space: bool) -> str:
    return "first" if prefix_space else "never"


class BPE(_Subword, kind="bpe"):
    """Byte-pair encoding (Sennrich et al. 2016), over bytes as in GPT-2 (Radford et al. 2019) or over characters.

    Byte level: every text is spelled without loss. Character level: a space is `▁`, which begins the word after it, as
    in SentencePiece; characters that the training text lacked are unknown, or bytes with `byte_fallback`.
    """

    vocab_size: VocabSize = 8000
    min_frequency: PositiveInt = 2
    """Pairs seen less often are not merged."""
    byte_level: bool = True
    prefix_space: bool | None = None
    """Treat the first word like the others, by a space before it. None: at character level yes; at byte level never."""
    ties: Ties = "oldest"
    """Of equally frequent pairs the one with the older symbols, as the `tokenizers` library has it; or `lexicographic`, the
    greatest pair of bytes, as in textbook implementations, whose merges these are with `min_frequency: 1`."""

    @model_validator(mode="after")
    def _one_level(self) -> Self:
        if self.byte_level and (self.byte_fallback or self.prefix_space):
            field = "byte_fallback" if self.byte_fallback else "prefix_space"
            raise ValueError(f"{field} is for BPE over characters; set byte_level to false, or leave it out")
        if not self.byte_level and not self.byte_fallback:
            _needs_unk(self)
        return self

    def pre_tokenizer(self) -> pre_tokenizers.PreTokenizer:
        if self.byte_level:
            return self._digits_apart(pre_tokenizers.ByteLevel(add_prefix_space=False))
        return self._digits_apart(pre_tokenizers.Metaspace(prepend_scheme=_scheme(self.prefix_space is not False)))

    def decoder(self) -> decoders.Decoder:
        return decoders.ByteLevel() if self.byte_level else self._metaspace_decoder(self.prefix_space is not False)

    def learn(self, texts: Iterable[str], trace: Trace | None = None) -> models.Model:
        texts = list(texts) if trace else texts
        found, merges = self._merged(texts, trace) if self.ties == "lexicographic" else self._trained(texts, trace)
        vocabulary = {token: i for i, token in enumerate([*self.names, *self.fallback, *found])}
        unk = None if self.byte_level else self.unk
        return models.BPE(vocabulary, merges, unk_token=unk, byte_fallback=self.byte_fallback)

    def _merged(self, texts: Iterable[str], trace: Trace | None) -> tuple[list[str], list[Pair]]:
        """Symbols and merges, by the readable trainer."""
        counts = count_words(texts, self.pipeline(models.BPE()))
        alphabet = sorted(byte_symbols()) if self.byte_level else sorted({symbol for word in counts for symbol in word})
        self._check_size(self.vocab_size, len(alphabet) + len(self.fallback))
        room = self.vocab_size - len(self.names) - len(self.fallback) - len(alphabet)
        steps = list(bpe_steps(counts, room, self.min_frequency, "lexicographic", _bytes if self.byte_level else str))
        if trace is not None:
            for step in steps:
                trace(step)
        tokens = dict.fromkeys([*alphabet, *(step.token for step in steps)])
        return list(tokens), [(step.left, step.right) for step in steps]

    def _trained(self, texts: Iterable[str], trace: Trace | None) -> tuple[list[str], list[Pair]]:
        """Symbols and merges, by the library."""
        raw = self.pipeline(models.BPE())
        trainer = trainers.BpeTrainer(
            vocab_size=max(self.vocab_size - len(self.fallback), 0),
            min_frequency=self.min_frequency,
            special_tokens=self.names,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet() if self.byte_level else [],
            show_progress=False,
        )
        raw.train_from_iterator(texts, trainer)
        learned = contents(raw.model)
        found = list(learned["vocab"])[len(self.names) :]
        self._check_size(self.vocab_size, len(found) + len(self.fallback))
        merges = [(left, right) for left, right in learned["merges"]]
        if trace:
            grown = sum(len(token) > 1 for token in found)
            for step in bpe_steps(count_words(texts, raw), grown, self.min_frequency):
                trace(step)
        return found, merges


_BYTE_OF = {symbol: byte for byte, symbol in enumerate(byte_symbols())}


def _bytes(symbol: str) -> bytes:
    return bytes(_BYTE_OF[character] for character in symbol)


class Unigram(_Subword, kind="unigram"):
    """A unigram language model over pieces (Kudo 2018, SentencePiece): of all segmentations the most probable wins."""

    vocab_size: VocabSize = 8000
    prefix_space: bool = True
    """Treat the first word like the others, by a space before it."""
    max_piece_length: PositiveInt = 16

    @model_validator(mode="after")
    def _has_unk(self) -> Self:
        return _needs_unk(self)

    def pre_tokenizer(self) -> pre_tokenizers.PreTokenizer:
        return self._digits_apart(pre_tokenizers.Metaspace(prepend_scheme=_scheme(self.prefix_space)))

    def decoder(self) -> decoders.Decoder:
        return self._metaspace_decoder(self.prefix_space)

    def learn(self, texts: Iterable[str], trace: Trace | None = None) -> models.Model:
        _no_trace(self, trace)
        raw = self.pipeline(models.Unigram())
        trainer = trainers.UnigramTrainer(
            vocab_size=max(self.vocab_size - len(self.fallback), 0),
            special_tokens=self.names,
            unk_token=self.unk,
            max_piece_length=self.max_piece_length,
            show_progress=False,
        )
        characters = set("▁") if self.prefix_space else set()
        try:
            raw.train_from_iterator(noting(normalized(texts, raw), characters), trainer)
        finally:  # the library's own word on a size too small doesn't name the size that would do
            self._check_size(self.vocab_size, len(characters) + len(self.fallback))
        scored = canonical(
            contents(raw.model)["vocab"][len(self.names) :], self.vocab_size - len(self.names) - len(self.fallback)
        )
        vocabulary = [*((name, 0.0) for name in [*self.names, *self.fallback]), *scored]
        return models.Unigram(vocabulary, self.names.index(self.unk or ""), self.byte_fallback)


class WordPiece(TokenizerSpec, kind="wordpiece"):
    """BERT's pieces (Schuster & Nakajima 2012, Devlin et al. 2019); `##` continues a word.

    Words are split at spaces and punctuation, control characters are dropped, and `lowercase` also strips accents, as
    in BERT: decoding gives back the words, not the spacing. A word with an unseen character is unknown as a whole.
    """

    vocab_size: VocabSize = 8000
    min_frequency: PositiveInt = 2
    """Pairs seen less often are not merged."""
    limit_alphabet: PositiveInt | None = None
    """Keep only this many characters, the most frequent."""
    merge: Merge = "likelihood"
    """What is merged first: the pair that makes the texts likeliest, as published, or the most frequent. With less than
    some hundred million words `frequency` makes the better vocabulary, in which common words are whole."""

    @model_validator(mode="after")
    def _has_unk(self) -> Self:
        return _needs_unk(self)

    def normalizer(self) -> normalizers.Normalizer:
        bert = normalizers.BertNormalizer(lowercase=self.lowercase)
        before = super().normalizer()
        return bert if before is None else normalizers.Sequence([before, bert])

    def pre_tokenizer(self) -> pre_tokenizers.PreTokenizer:
        return pre_tokenizers.BertPreTokenizer()

    def decoder(self) -> decoders.Decoder:
        return decoders.WordPiece(prefix=CONTINUES)

    def learn(self, texts: Iterable[str], trace: Trace | None = None) -> models.Model:
        counts = count_words(texts, self.pipeline(models.WordPiece(unk_token=self.unk)))
        pieces = train_wordpiece(
            counts,
            self.vocab_size - len(self.names),
            min_frequency=self.min_frequency,
            limit_alphabet=self.limit_alphabet,
            merge=self.merge,
            trace=trace,
        )
        self._check_size(self.vocab_size, len(pieces))
        vocabulary = {piece: i for i, piece in enumerate(dict.fromkeys([*self.names, *pieces]))}
        return models.WordPiece(vocabulary, unk_token=self.unk, max_input_chars_per_word=LONGEST_WORD)


class Word(TokenizerSpec, kind="word"):
    """Words as they stand between spaces, the most frequent of them; all others are unknown."""

    vocab_size: VocabSize = 50_000
    """At most; the most frequent words are kept."""
    min_frequency: PositiveInt = 1
    punctuation: bool = False
    """Split punctuation off words; decoding puts spaces around it."""

    @model_validator(mode="after")
    def _has_unk(self) -> Self:
        return _needs_unk(self)

    def pre_tokenizer(self) -> pre_tokenizers.PreTokenizer:
        return pre_tokenizers.Whitespace() if self.punctuation else pre_tokenizers.WhitespaceSplit()

    def learn(self, texts: Iterable[str], trace: Trace | None = None) -> models.Model:
        _no_trace(self, trace)
        self._check_size(self.vocab_size, 1)
        raw = self.pipeline(models.WordLevel(unk_token=self.unk))
        trainer = trainers.WordLevelTrainer(
            vocab_size=self.vocab_size,
            min_frequency=self.min_frequency,
            special_tokens=self.names,
            show_progress=False,
        )
        raw.train_from_iterator(texts, trainer)
        return models.WordLevel(contents(raw.model)["vocab"], unk_token=self.unk)


class Char(_ByteFallback, kind="char"):
    """Characters (Unicode code points), spaces among them."""

    vocab_size: VocabSize = 50_000
    """At most; the most frequent characters are kept."""
    min_frequency: PositiveInt = 1

    @model_validator(mode="after")
    def _never_silent(self) -> Self:
        return self if self.byte_fallback else _needs_unk(self)

    def decoder(self) -> decoders.Decoder:
        spelled = [decoders.ByteFallback()] if self.byte_fallback else []
        return decoders.Sequence([*spelled, decoders.Fuse()])

    def learn(self, texts: Iterable[str], trace: Trace | None = None) -> models.Model:
        _no_trace(self, trace)
        self._check_size(self.vocab_size, len(self.fallback) + 1)
        counts = Counter[str]()
        for text in normalized(texts, self.pipeline(models.BPE())):
            counts.update(text)
        seen = sorted((c for c, n in counts.items() if n >= self.min_frequency), key=lambda c: (-counts[c], c))
        found = seen[: self.vocab_size - len(self.names) - len(self.fallback)]
        vocabulary = {token: i for i, token in enumerate([*self.names, *self.fallback, *found])}
        return models.BPE(vocabulary, [], unk_token=self.unk, byte_fallback=self.byte_fallback)


class Byte(TokenizerSpec, kind="byte"):
    """The 256 bytes of UTF-8 (Xue et al. 2021, ByT5): nothing to learn, nothing unknown, nothing lost."""

    def pre_tokenizer(self) -> pre_tokenizers.PreTokenizer:
        return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)

    def decoder(self) -> decoders.Decoder:
        return decoders.ByteLevel()

    def learn(self, texts: Iterable[str], trace: Trace | None = None) -> models.Model:
        _no_trace(self, trace)
        return models.BPE({token: i for i, token in enumerate([*self.names, *byte_symbols()])}, [])
