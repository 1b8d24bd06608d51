"""`Tokenizer`: text to token ids and back, with the `tokenizers` library.

`train` learns a tokenizer from texts. `Tokenizer.load` reads a tokenizer.json, or the older files of Hub models
(readers/load.py). `Tokenizer.save` writes a tokenizer.json.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import tokenizers
from tokenizers import models, processors

from ...core.atomic import make_folder, write_files
from ...core.several import instance, shown, worded
from ...core.several import text as text_of
from ...core.spec import brief, nearest
from . import subword_regularization, tokenizer_json
from .chat.conversations import Conversations
from .chat.template import ChatTemplate
from .pipelines import BYTES, byte_symbols
from .protocol import PairFrame
from .readers.load import read
from .tokenizer_json import ALL_ROLES, Parts, TokenizerExtra, encoding_errors, library_errors
from .usual_calls import UsualCalls, cleaned

if TYPE_CHECKING:
    from .training.spec import TokenizerSpec, Trace


def train(
    spec: TokenizerSpec | str, texts: Iterable[str], *, progress: bool = False, trace: Trace | None = None
) -> Tokenizer:
    """Train a tokenizer on texts, which are read once. The same texts give the same tokenizer.

    Args:
        spec: the kind and its settings; a bare kind such as "bpe" stands for its defaults.
        progress: show a progress bar on stderr.
        trace: called with every merge (bpe and wordpiece; it keeps all texts in memory).

    The vocabulary may be smaller than `vocab_size` if the texts are short. Raises ValueError if they are empty, or if
    `vocab_size` is too small to spell them; the message names a size that is large enough.
    """
    if isinstance(texts, str):
        raise ValueError("texts is one string; give a list or an iterator of texts")
    if isinstance(texts, bytes | Mapping) or not isinstance(texts, Iterable):
        raise ValueError(f"texts are a list or an iterator of strings, not {shown(texts)}")
    from .training.spec import TokenizerSpec

    if isinstance(spec, str):
        from . import from_file  # noqa: F401  # registers the kind `file`

        spec = TokenizerSpec.from_dict({"kind": spec})
    if not isinstance(spec, TokenizerSpec):
        raise ValueError(f"a tokenizer is a kind such as 'bpe' or a TokenizerSpec, not {shown(spec)}")
    with _watched(_all_texts(texts), progress) as watched, library_errors():
        raw, extra, _ = spec.parts(watched, trace)
    if spec.chat_template is not None:
        extra = replace(extra, config={**extra.config, "chat_template": spec.chat_template})
    return Tokenizer(raw, extra)


def _all_texts(texts: Iterable[str]) -> Iterator[str]:
    for number, text in enumerate(texts, 1):
        if not isinstance(text, str):
            raise ValueError(f"texts are strings, and number {number} of them is {shown(text)}")
        yield text


class Templated(NamedTuple):
    """Ids with the special tokens of a template, and their token types (BERT)."""

    ids: list[int]
    types: list[int]


class Tokenizer(UsualCalls):
    """Text to ids and back.

    Control tokens (`<pad>`, `<unk>`, `<s>`, `</s>`, `<mask>`, or the names of BERT and GPT-2) are never read from text.
    A `</s>` in a text is tokenized like other characters, so no text can end a sequence or begin a second one. Only
    `bos`, `eos` and `control=True` put them in. Markers (`special` in the spec) are read from text and written back.

    Calls as in transformers, `tokenizer(texts, padding=True)`, read control tokens from text, see `usual_calls`.
    """

    def __init__(
        self, raw: tokenizers.Tokenizer, extra: TokenizerExtra | None = None, model_size: int | None = None
    ) -> None:
        instance(raw, tokenizers.Tokenizer, "a tokenizer's `raw`", "the library tokenizers")
        raw.no_padding()
        raw.no_truncation()
        raw.encode_special_tokens = True  # spell control tokens out
        self.raw = raw  # the library's tokenizer, for features that are not wrapped here; do not modify it
        extra = extra if extra is not None else TokenizerExtra()
        added = {token.content: (i, token.special) for i, token in raw.get_added_tokens_decoder().items()}
        self.markers = tuple(name for name, (_, special) in added.items() if not special)
        self.controls = {name: i for name, (i, special) in added.items() if special}
        self.roles = tokenizer_json.usual_roles(raw) if extra.roles is None else dict(extra.roles)
        self._extra = replace(extra, roles=self.roles)
        ids = {role: self._control(role, name) for role, name in self.roles.items()}
        self.pad_id, self.unk_id, self.mask_id = ids.get("pad"), ids.get("unk"), ids.get("mask")
        self.cls_id, self.sep_id = ids.get("cls"), ids.get("sep")
        self.bos_id, self.eos_id = ids.get("bos", self.cls_id), ids.get("eos", self.sep_id)
        others = {i for role, i in ids.items() if role != "unk"}
        self._silent = frozenset(self.controls.values()) - ({self.unk_id} - others)
        self.vocab_size = tokenizer_json.size(raw, model_size)
        self.dropout = extra.dropout
        """The strength of `sample`: p of BPE-dropout or α of unigram sampling; 0 for none."""
        self.config: Mapping[str, Any] = extra.config
        """The tokenizer_config.json that it came with."""
        if self.dropout and not isinstance(raw.model, models.BPE | models.Unigram):
            raise ValueError(
                f"dropout is {self.dropout}, but only bpe and unigram tokenizers have several ways to split"
            )

    def _control(self, role: str, name: str) -> int:
        if role not in ALL_ROLES or name not in self.controls:
            raise ValueError(f"its {role} token is {brief(name)}; {nearest(name, self.controls)}")
        return self.controls[name]

    def require(self, *roles: str) -> None:
        """Raise ValueError if the tokenizer lacks a token of these roles, such as `mask` or `pad`."""
        if unknown := [role for role in roles if role not in tuple(ALL_ROLES)]:
            raise ValueError(f"there is no role {brief(unknown[0])}; {nearest(str(unknown[0]), ALL_ROLES)}")
        missing = [role for role in roles if getattr(self, f"{role}_id") is None]
        if missing:
            raise ValueError(
                f"the tokenizer {self.name} has no {' and no '.join(missing)} token; its control tokens are "
                f"{', '.join(self.controls) or 'none'}"
            )

    def without(self, *roles: str) -> Self:
        """Return the same tokenizer without the tokens of these roles; texts have the same ids."""
        kept = {role: name for role, name in self.roles.items() if role not in roles}
        return type(self)(self.raw, replace(self._extra, roles=kept))

    def within(self, size: int) -> Self:
        """Return the same tokenizer without the added tokens whose id is at least `size`."""
        parts = json.loads(self.raw.to_str())
        parts["added_tokens"] = kept = [token for token in parts["added_tokens"] if token["id"] < size]
        names = {token["content"] for token in kept}
        roles = {role: name for role, name in self.roles.items() if name in names}
        return type(self)(tokenizers.Tokenizer.from_str(json.dumps(parts)), replace(self._extra, roles=roles))

    def templated(self, bos: bool = True, eos: bool = True, *, replace_own: bool = False) -> Self:
        """Return the same tokenizer with a template, with which other libraries add the special tokens as well:
        `<s> a </s>`, and `<s> a </s> b </s>` for pairs. Without `bos` or `eos`, `<s>` or `</s>` is left out; with `<s>`
        alone, pairs are `<s> a <s> b`. A template of its own is kept, unless `replace_own` is set and it adds others."""
        own = self.raw.post_processor  # may trim offsets alone, as that of byte-level BPE
        adds = own is not None and self.raw.num_special_tokens_to_add(False) > 0
        if (adds and not replace_own) or (eos and self.eos_id is None):
            return self
        before, after = ([i] if i is not None and on else [] for i, on in ((self.bos_id, bos), (self.eos_id, eos)))
        raw = self.raw
        if self.with_template(["a"])[0].ids != [*before, *self.encode("a"), *after]:
            template = self._template(before, after)
            raw = tokenizers.Tokenizer.from_str(self.raw.to_str())
            raw.post_processor = template if own is None or adds else processors.Sequence([own, template])
        flags = {"add_bos_token": bool(before), "add_eos_token": bool(after)}  # which count before the template
        flags = {key: flag for key, flag in flags.items() if key in self.config}
        return type(self)(raw, replace(self._extra, config={**self.config, **flags}))

    def _template(self, before: list[int], after: list[int]) -> processors.TemplateProcessing:
        names = {i: str(self.raw.id_to_token(i)) for i in (*before, *after)}
        first, end = (" ".join(names[i] for i in side) for side in (before, after))
        single = f"{first} $A {end}".strip()
        second = " ".join(f"{part}:1" for part in ("" if end else first, "$B", end) if part)
        return processors.TemplateProcessing(single, f"{single} {second}", [(name, i) for i, name in names.items()])

    # -- files ----------------------------------------------------------------------------------------------------

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a tokenizer from a folder or file. Nothing in it is executed, imported or fetched.

        A folder's `tokenizer.json` comes first; else BERT's `vocab.txt`, `vocab.json` with `merges.txt` (GPT-2, RoBERTa,
        CLIP, Qwen 2), a SentencePiece `.model`, or a `.tiktoken`; a Marian folder has two models, `source.spm` and
        `target.spm`. Roles and flags come from the tokenizer_config.json, special_tokens_map.json, added_tokens.json and
        config.json beside it. Raises ValueError if there is no
        tokenizer, or it is broken, a pickle, or made to exhaust memory.
        """
        parts = read(path)
        try:
            return cls(*parts)
        except ValueError as error:
            raise ValueError(f"{brief(path)} is not a usable tokenizer: {error}") from None

    from_pretrained = load  # transformers' name

    @classmethod
    def from_json(cls, text: str) -> Self:
        """From the content of a tokenizer.json."""
        return cls(*tokenizer_json.parse(text_of(text, "a tokenizer.json")))

    def save(self, path: str | Path) -> Path:
        """Write `tokenizer.json` into a folder, or to a path that ends in .json, atomically. Returns the path.

        A chat template is also written to `chat_template.jinja` beside a `tokenizer.json`, where other libraries read it.
        An earlier tokenizer's is deleted once the new files are on disk, so a full disk loses nothing; a kill at this
        moment leaves the earlier tokenizer without that file, never with another's.
        """
        place, template = tokenizer_json.place(path), self.config.get("chat_template")
        contents, stale = {place: self.to_json().encode()}, list[Path]()
        if place.name == tokenizer_json.FILE:
            beside = place.with_name(tokenizer_json.CHAT_TEMPLATE)
            if isinstance(template, str):
                contents[beside] = template.encode()
            if beside.is_file() and beside.read_bytes() != contents.get(beside):
                stale.append(beside)
        make_folder(place.parent)
        write_files(contents, stale)
        return place

    save_pretrained = save  # transformers' name

    def to_json(self) -> str:
        """The content of tokenizer.json."""
        return tokenizer_json.dump(Parts(self.raw, self._extra))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self)._from_pickle, (self.to_json(), dict(self._extra.calls))

    @classmethod
    def _from_pickle(cls, text: str, calls: Mapping[str, Any]) -> Self:
        raw, extra, size = tokenizer_json.parse(text)
        return cls(raw, replace(extra, calls=calls), size)

    # -- properties --------------------------------------------------------------------------------------------

    @cached_property
    def kind(self) -> str:
        """bpe, wordpiece, unigram, word, char or byte."""
        named = {models.WordPiece: "wordpiece", models.Unigram: "unigram", models.WordLevel: "word"}
        kind = named.get(type(self.raw.model))
        if kind is not None:
            return kind
        if json.loads(self.raw.model.__getstate__())["merges"]:
            return "bpe"
        return "byte" if self._byte_level else "char"

    @cached_property
    def chat(self) -> Conversations:
        """Encodes conversations by the chat template. Raises ValueError if there is none."""
        return Conversations(self.raw, self.controls, self.markers, ChatTemplate.of(self.config, self.roles))

    @cached_property
    def frame(self) -> PairFrame | None:
        """The special tokens around the texts of the encoder–decoder that it came with; None for a qkv model."""
        if self._extra.start is None:
            return None
        around = self.raw.encode("a", add_special_tokens=True)
        added = "".join(map(str, around.special_tokens_mask))
        before, after = len(added) - len(added.lstrip("1")), len(added.rstrip("1"))
        return PairFrame(self.id(self._extra.start), tuple(around.ids[:before]), tuple(around.ids[after:]))

    @cached_property
    def sources(self) -> Tokenizer:
        """The tokenizer of sources: another one if they have their own vocabulary, else this one."""
        if self._extra.source is None:
            return self
        return Tokenizer.from_json(json.dumps(self._extra.source))

    def with_sources(self, other: Tokenizer) -> Tokenizer:
        """Return a tokenizer that uses this one for targets and another, with its own vocabulary, for sources."""
        instance(other, Tokenizer, "the tokenizer of sources", "Tokenizer.load")
        return Tokenizer(self.raw, replace(self._extra, source=json.loads(other.to_json())))

    @cached_property
    def targets(self) -> Tokenizer:
        """The tokenizer of targets: another one with the same ids if each side has its own pieces (Marian), else this one
        without a tokenizer for sources."""
        if self._extra.source is not None:
            return Tokenizer(self.raw, replace(self._extra, source=None))
        if self._extra.target is None:
            return self
        raw = tokenizer_json.parse(json.dumps(self._extra.target)).raw
        added = self.raw.get_added_tokens_decoder()
        tokenizer_json.add_tokens(raw, [(i, added[i]) for i in sorted(added)])
        if raw.get_vocab(with_added_tokens=True) != self.raw.get_vocab(with_added_tokens=True):
            raise ValueError(
                "its source and target vocabularies differ; they must give the same ids to the same tokens"
            )
        return Tokenizer(raw, replace(self._extra, target=None))

    @property
    def name(self) -> str:
        """Its kind and size, such as `bpe-8000`."""
        return f"{self.kind}-{self.vocab_size}"

    def __repr__(self) -> str:
        return f"<Tokenizer {self.name}>"

    def _repr_html_(self) -> str:
        """Kind, size, special tokens and a text in pieces, for notebooks."""
        pieces = "".join(f"<code>{escape(piece)}</code> " for piece in self.tokens(self.encode("Hello, world!")))
        rows = {
            "kind": escape(self.kind),
            "vocabulary": f"{self.vocab_size:,}",
            "special tokens": escape(" ".join(self.controls)) or "none",
            "Hello, world!": pieces or "no tokens",
        }
        cells = "".join(
            f"<tr><th>{name}</th><td style='text-align:left'>{value}</td></tr>" for name, value in rows.items()
        )
        return f"<table>{cells}</table>"

    def id(self, token: str) -> int:
        """Return the id of a token of the vocabulary. Raises ValueError if it isn't there."""
        number = self.raw.token_to_id(text_of(token, "a token"))
        if number is None:
            raise ValueError(
                f"the tokenizer has no token {brief(token)}; {nearest(token, [*self.controls, *self.markers])}"
            )
        return number

    # -- text to ids --------------------------------------------------------------------------------------------

    @worded
    def encode(self, text: str, *, bos: bool = False, eos: bool = False, control: bool = False) -> list[int]:
        """Return the ids of a text. `bos` and `eos` add those tokens; `control` reads control tokens from the text.

        Set `control` only for text that you wrote yourself, such as a `[MASK]` to be filled in.
        """
        return self.encode_batch([text], bos=bos, eos=eos, control=control)[0]

    def encode_batch(
        self, texts: Sequence[str], *, bos: bool = False, eos: bool = False, control: bool = False
    ) -> list[list[int]]:
        """`encode` for many texts at once, on all cores unless the environment sets TOKENIZERS_PARALLELISM=false."""
        before, after = self._token(bos, self.bos_id, "beginning"), self._token(eos, self.eos_id, "end")
        raw = self._reads_control if control else self.raw
        with encoding_errors(texts):
            encoded = raw.encode_batch_fast(texts, add_special_tokens=False)
        if before or after:
            return [[*before, *encoding.ids, *after] for encoding in encoded]
        return [encoding.ids for encoding in encoded]

    def with_template(
        self, texts: Sequence[str], pairs: Sequence[str] | None = None, *, control: bool = False
    ) -> list[Templated]:
        """Encode texts, or pairs of texts, with the special tokens of the tokenizer's template, as `transformers` does.

        For BERT, `[CLS] text [SEP]`, and `[CLS] text [SEP] pair [SEP]` with types 0 and 1. Without a template there are
        no special tokens.
        """
        inputs = texts if pairs is None else list(zip(texts, pairs, strict=True))
        raw = self._reads_control if control else self.raw
        with encoding_errors(texts if pairs is None else [*texts, *pairs]):
            encoded = raw.encode_batch_fast(inputs, add_special_tokens=True)
        return [Templated(encoding.ids, encoding.type_ids) for encoding in encoded]

    def unknown(self, texts: Sequence[str]) -> tuple[int, list[str]]:
        """Return the number of words in texts (pieces, for kinds with several per word), and the unknown ones."""
        if self.unk_id is None:
            return 0, []
        with encoding_errors(texts):
            encoded = self.raw.encode_batch(texts, add_special_tokens=False)
        by_word = self.kind in ("word", "wordpiece")
        count, unknown = 0, []
        for text, encoding in zip(texts, encoded, strict=True):
            count += len(set(encoding.word_ids)) if by_word else len(encoding)
            places = (place for i, place in zip(encoding.ids, encoding.offsets, strict=True) if i == self.unk_id)
            unknown += [text[start:end].strip() for start, end in places]
        return count, unknown

    def sample(self, texts: Sequence[str], seeds: Sequence[int]) -> list[list[int]]:
        """Return ids of texts, split at random if `dropout` is above 0 (see `subword_regularization`); for training only.

        Each text has its own seed, an integer, and the same seed always gives the same split. No token is added.
        """
        if len(texts) != len(seeds):
            raise ValueError(f"there are {len(texts)} texts and {len(seeds)} seeds: give a seed for each text")
        if not self.dropout:
            return self.encode_batch(texts)
        with encoding_errors(texts):
            packed = self._packed_texts.of(texts)
        return self._sampler.sample_texts(packed, [int(seed) for seed in seeds])

    @cached_property
    def _packed_texts(self) -> subword_regularization.PackedTexts:
        return subword_regularization.PackedTexts(self.raw)

    @cached_property
    def _sampler(self) -> subword_regularization.Sampler:
        return subword_regularization.sampler(self.raw, self.dropout)

    def _token(self, wanted: bool, token: int | None, which: str) -> list[int]:
        if wanted and token is None:
            raise ValueError(f"this tokenizer has no {which}-of-sequence token")
        return [token] if wanted and token is not None else []

    def reading(self, *names: str) -> Self:
        """Return the same tokenizer, which also reads these control tokens from texts, such as the places of pictures."""
        if not (wanted := [name for name in names if name in self.controls]):
            return self
        parts = json.loads(self.raw.to_str())
        for token in parts["added_tokens"]:
            token["special"] = token["special"] and token["content"] not in wanted
        raw = tokenizers.Tokenizer.from_str(json.dumps(parts))
        return type(self)(raw, self._extra)

    @cached_property
    def _reads_control(self) -> tokenizers.Tokenizer:
        """A second pipeline that reads control tokens: the first can't be switched while another thread encodes."""
        raw = tokenizers.Tokenizer.from_str(self.raw.to_str())
        raw.encode_special_tokens = False
        return raw

    # -- ids to text --------------------------------------------------------------------------------------------

    @worded
    def decode(self, ids: Iterable[int], skip_special: bool = True) -> str:
        """Return the text of ids, without control tokens unless `skip_special` is off; `<unk>` stays.

        Half a character (byte-level ids cut off in its middle) is `�`. Raises ValueError for ids that don't exist.
        """
        return self.decode_batch([ids], skip_special=skip_special)[0]

    def decode_batch(self, rows: Iterable[Iterable[int]], skip_special: bool = True) -> list[str]:
        """`decode` for many rows at once."""
        if not isinstance(rows, Iterable):
            raise ValueError(f"rows are lists of ids, not {shown(rows)}")
        silent = self._silent if skip_special else frozenset()
        checked = map(self._checked, rows)
        kept = [ids if silent.isdisjoint(ids) else [i for i in ids if i not in silent] for ids in checked]
        with library_errors():
            texts = self.raw.decode_batch(kept, skip_special_tokens=False)
        return [cleaned(text) for text in texts] if self._cleans_up else texts

    @cached_property
    def _cleans_up(self) -> bool:
        """Whether to clean up spaces, as in `transformers`: if the configuration says so, and never for BPE."""
        return bool(self.config.get("clean_up_tokenization_spaces")) and not isinstance(self.raw.model, models.BPE)

    def tokens(self, ids: Iterable[int]) -> list[str]:
        """Return each token as visible text: spaces as `▁`, line ends as `↵`, tabs as `⇥`, half characters as `<0xE2>`."""
        pieces = [self.raw.id_to_token(i) or "" for i in self._checked(ids)]
        return [self._shown(piece) for piece in pieces]

    def _shown(self, piece: str) -> str:
        if self._byte_level and piece not in self.controls and piece not in self.markers:
            values = bytes(_VALUE_OF[symbol] for symbol in piece if symbol in _VALUE_OF)
            try:
                piece = values.decode("utf-8")
            except UnicodeDecodeError:
                piece = "".join(chr(value) if value < 0x80 else BYTES[value] for value in values)
        return piece.translate(_VISIBLE)

    @cached_property
    def _byte_level(self) -> bool:
        stages = (self.raw.pre_tokenizer, self.raw.decoder)
        return any(stage is not None and b'"ByteLevel"' in stage.__getstate__() for stage in stages)

    def _checked(self, ids: Iterable[int]) -> list[int]:
        try:
            listed = ids.tolist() if hasattr(ids, "tolist") else list(ids)
            known = not listed or 0 <= min(listed) <= max(listed) < self.vocab_size
        except TypeError:
            raise ValueError(f"ids are a list of whole numbers, not {shown(ids)}") from None
        if not known:
            wrong = min(listed) if min(listed) < 0 else max(listed)
            raise ValueError(f"there is no token {int(wrong)}; the vocabulary has ids 0 to {self.vocab_size - 1}")
        return listed


_VALUE_OF = {symbol: byte for byte, symbol in enumerate(byte_symbols())}
_VISIBLE = str.maketrans({" ": "▁", "\n": "↵", "\t": "⇥", "\r": "␍"})


@contextlib.contextmanager
def _watched(texts: Iterable[str], progress: bool) -> Iterator[Iterable[str]]:
    """The texts, with a progress bar on stderr."""
    if not progress:
        yield texts
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("tokenizer: {task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("reading")

        def counted() -> Iterator[str]:
            count = 0
            for count, text in enumerate(texts, 1):
                if count % 1000 == 0:
                    bar.update(task, description=f"reading, {count:,} texts")
                yield text
            bar.update(task, description=f"learning from {count:,} texts")

        yield counted()
