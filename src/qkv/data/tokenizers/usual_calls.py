"""The calls and names that the tokenizers of the library transformers have, with the same results.

`tokenizer(texts, padding=True, return_tensors="pt")` adds the special tokens of the tokenizer's template, and reads names of
control tokens in a text as these tokens. With `split_special_tokens=True` they are spelled out, as `Tokenizer.encode` does.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import tokenizers

from ...core.several import shown, worded
from ...core.spec import brief, nearest
from .tokenizer_json import encoding_errors, library_errors

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedTokenizerFast

    from .chat.conversations import Conversations
    from .chat.messages import Messages, Tools
    from .tokenizer_json import TokenizerExtra

NO_LIMIT = int(1e20)  # more than this is no longest input
CALLED = ("model_max_length", "padding_side", "truncation_side", "model_input_names")
"""What a tokenizer_config.json says about calls."""
Padding = bool | Literal["longest", "max_length", "do_not_pad"]
Truncation = bool | Literal["longest_first", "only_first", "only_second", "do_not_truncate"] | None
Texts = str | Sequence[str] | Sequence[Sequence[str]]
Rows = list[list[int]]


class EncodedTexts(dict[str, Any]):
    """The result of a call: `input_ids`, `attention_mask` … by name, also as attributes. `encodings` are the library's."""

    encodings: list[tokenizers.Encoding]

    def __init__(self, values: Mapping[str, Any], encodings: list[tokenizers.Encoding]) -> None:
        super().__init__(values)
        self.__dict__["encodings"] = encodings

    def __getattr__(self, name: str) -> Any:
        if name not in self:
            raise AttributeError(f"there is no {name!r} in what the tokenizer gave; {nearest(name, self)}")
        return self[name]

    def to(self, device: torch.device | torch.dtype | str | int) -> EncodedTexts:
        """The same with every tensor on a device, or with a dtype."""
        moved = {name: value.to(device) if hasattr(value, "to") else value for name, value in self.items()}
        return EncodedTexts(moved, self.encodings)

    def tokens(self, index: int = 0) -> list[str]:
        return list(self.encodings[index].tokens)

    def word_ids(self, index: int = 0) -> list[int | None]:
        """The number of the word of each token; None for special tokens."""
        return list(self.encodings[index].word_ids)

    def sequence_ids(self, index: int = 0) -> list[int | None]:
        """0 or 1 for tokens of the first or second text; None for special tokens."""
        return list(self.encodings[index].sequence_ids)


def _token(role: str) -> Any:
    return property(lambda self: self.roles.get(role), doc=f"The {role} token; None if there is none.")


def _token_id(role: str) -> Any:
    return property(lambda self: self.controls.get(self.roles.get(role)), doc=f"The id of the {role} token, or None.")


class UsualCalls:
    """Adds transformers' calls to a tokenizer."""

    if TYPE_CHECKING:
        raw: tokenizers.Tokenizer
        roles: Mapping[str, str]
        controls: Mapping[str, int]
        config: Mapping[str, Any]
        _extra: TokenizerExtra

        @property
        def chat(self) -> Conversations: ...
        @property
        def name(self) -> str: ...
        @property
        def _cleans_up(self) -> bool: ...

    def _said(self, key: str, usual: Any) -> Any:
        """What the tokenizer_config.json says about calls."""
        return self._extra.calls.get(key, self.config.get(key, usual))

    pad_token, unk_token, bos_token, eos_token = _token("pad"), _token("unk"), _token("bos"), _token("eos")
    cls_token, sep_token, mask_token = _token("cls"), _token("sep"), _token("mask")
    pad_token_id, unk_token_id = _token_id("pad"), _token_id("unk")
    bos_token_id, eos_token_id = _token_id("bos"), _token_id("eos")
    cls_token_id, sep_token_id, mask_token_id = _token_id("cls"), _token_id("sep"), _token_id("mask")

    @property
    def padding_side(self) -> str:
        return str(self._said("padding_side", "right"))

    @property
    def truncation_side(self) -> str:
        return str(self._said("truncation_side", "right"))

    @property
    def model_max_length(self) -> int:
        """The longest input by the tokenizer_config.json, or a huge number."""
        longest = self._said("model_max_length", None)
        return int(longest) if isinstance(longest, int | float) else int(1e30)

    @property
    def model_input_names(self) -> list[str]:
        return list(self._said("model_input_names", ("input_ids", "attention_mask")))

    @property
    def special_tokens_map(self) -> dict[str, str]:
        return {f"{role}_token": token for role, token in self.roles.items()}

    @property
    def all_special_ids(self) -> list[int]:
        return list(self.controls.values())

    def __len__(self) -> int:
        return int(self.raw.get_vocab_size(with_added_tokens=True))

    def get_vocab(self) -> dict[str, int]:
        return dict(self.raw.get_vocab(with_added_tokens=True))

    def convert_tokens_to_ids(self, tokens: str | Sequence[str]) -> int | list[int | None] | None:
        """The id of a token, or of each; of an unknown one, that of the unknown token."""
        if isinstance(tokens, str):
            found = self.raw.token_to_id(tokens)
            return self.unk_token_id if found is None else int(found)
        return [self.convert_tokens_to_ids(token) for token in tokens]  # type: ignore[misc]

    def convert_ids_to_tokens(self, ids: int | Iterable[int]) -> str | list[str | None] | None:
        """The token of an id, or of each."""
        if isinstance(ids, int):
            return self.raw.id_to_token(ids)
        return [self.raw.id_to_token(int(i)) for i in ids]

    # -- texts to ids ---------------------------------------------------------------------------------------------

    @worded
    def __call__(
        self,
        text: Texts,
        text_pair: Texts | None = None,
        *,
        add_special_tokens: bool = True,
        padding: Padding = False,
        truncation: Truncation = None,
        max_length: int | None = None,
        stride: int = 0,
        is_split_into_words: bool = False,
        pad_to_multiple_of: int | None = None,
        padding_side: Literal["left", "right"] | None = None,
        return_tensors: Literal["pt", "np"] | None = None,
        return_token_type_ids: bool | None = None,
        return_attention_mask: bool | None = None,
        return_overflowing_tokens: bool = False,
        return_special_tokens_mask: bool = False,
        return_offsets_mapping: bool = False,
        return_length: bool = False,
        split_special_tokens: bool = False,
        verbose: bool = True,
    ) -> EncodedTexts:
        """Encode a text or several, or pairs of texts, as `transformers.PreTrainedTokenizerFast` does with these options.

        Without `return_tensors` there are lists, and for a single text no axis of the batch. Raises ValueError for
        padding without a padding token, and for texts that don't fit together.
        """
        several, inputs = _inputs(text, text_pair, is_split_into_words)
        pad, cut, longest = self._limits(padding, truncation, max_length, pad_to_multiple_of, verbose)
        cutting: dict[str, Any] = {
            "max_length": longest,
            "stride": stride,
            "strategy": cut,
            "direction": self.truncation_side,
        }
        padded: dict[str, Any] = {
            "length": longest if pad == "max_length" else None,
            "direction": padding_side or self.padding_side,
        }
        padded |= {"pad_id": self.pad_token_id, "pad_token": self.pad_token, "pad_to_multiple_of": pad_to_multiple_of}
        raw, lock = self._configured
        texts = [one for one in inputs if isinstance(one, str)]
        with lock, encoding_errors(texts):
            raw.no_truncation() if cut == "do_not_truncate" else raw.enable_truncation(**cutting)
            raw.no_padding() if pad == "do_not_pad" else raw.enable_padding(**padded)
            raw.encode_special_tokens = split_special_tokens
            found = raw.encode_batch(inputs, add_special_tokens=add_special_tokens, is_pretokenized=is_split_into_words)
        rows = [(i, e) for i, one in enumerate(found) for e in (one, *(one.overflowing * return_overflowing_tokens))]
        names = self.model_input_names
        fields = {
            "input_ids": ("ids", True),
            "token_type_ids": ("type_ids", _wanted(return_token_type_ids, names, "token_type_ids")),
            "attention_mask": ("attention_mask", _wanted(return_attention_mask, names, "attention_mask")),
            "special_tokens_mask": ("special_tokens_mask", return_special_tokens_mask),
            "offset_mapping": ("offsets", return_offsets_mapping),
        }
        values = {key: [getattr(e, name) for _, e in rows] for key, (name, wanted) in fields.items() if wanted}
        if return_length:
            values["length"] = [len(e.ids) for _, e in rows]
        if return_overflowing_tokens:
            values["overflow_to_sample_mapping"] = [i for i, _ in rows]
        encodings = [e for _, e in rows]
        if return_tensors is not None:
            return EncodedTexts(_as_tensors(values, return_tensors), encodings)
        if not several and not return_overflowing_tokens:
            values = {key: rows[0] if isinstance(rows[0], list) else rows for key, rows in values.items()}
        return EncodedTexts(values, encodings)

    @cached_property
    def _configured(self) -> tuple[tokenizers.Tokenizer, threading.Lock]:
        """A second pipeline, whose settings a call changes, and the lock to do so."""
        return tokenizers.Tokenizer.from_str(self.raw.to_str()), threading.Lock()

    def _limits(
        self, padding: Padding, truncation: Truncation, longest: int | None, multiple: int | None, verbose: bool
    ) -> tuple[str, str, int | None]:
        """How to pad, how to cut, and the longest input."""
        if longest is not None and padding is False and truncation is None:
            truncation = True
        pad = ("do_not_pad", "longest")[padding] if isinstance(padding, bool) else padding
        plain = bool(truncation) if isinstance(truncation, bool | None) else None
        cut = str(truncation) if plain is None else ("do_not_truncate", "longest_first")[plain]
        _known("padding", pad, ("longest", "max_length", "do_not_pad"))
        _known("truncation", cut, ("longest_first", "only_first", "only_second", "do_not_truncate"))
        if verbose and padding is True and longest is not None and cut == "do_not_truncate":
            warnings.warn("max_length has no effect with padding=True; cut by truncation=True", stacklevel=4)
        if longest is None:
            bounded = self.model_max_length <= NO_LIMIT
            longest = self.model_max_length if bounded else None
            pad = "do_not_pad" if pad == "max_length" and not bounded else pad
            cut = cut if bounded else "do_not_truncate"
        if pad != "do_not_pad" and self.pad_token_id is None:
            raise ValueError(
                f"the tokenizer {self.name} has no padding token; encode texts one by one, without padding, or give it one "
                'by the role "pad" in its tokenizer_config.json'
            )
        if "do_not" not in pad + cut and multiple is not None and longest is not None and longest % multiple:
            raise ValueError(
                f"max_length {longest} is not a multiple of pad_to_multiple_of {multiple}; change one of them"
            )
        return pad, cut, longest

    # -- ids to texts ---------------------------------------------------------------------------------------------

    def batch_decode(
        self, sequences: Iterable[Iterable[int]], skip_special_tokens: bool = False, **options: bool | None
    ) -> list[str]:
        """The texts of rows of ids, with control tokens unless `skip_special_tokens`, the unknown token among them."""
        cleans = options.pop("clean_up_tokenization_spaces", None)
        if options:
            raise ValueError(f"batch_decode has no argument {brief(next(iter(options)))}")
        rows = [row.tolist() if hasattr(row, "tolist") else [int(i) for i in row] for row in sequences]
        with library_errors():
            texts: list[str] = self.raw.decode_batch(rows, skip_special_tokens=skip_special_tokens)
        if not (self._cleans_up if cleans is None else cleans):
            return texts
        return [cleaned(text) for text in texts]

    # -- conversations --------------------------------------------------------------------------------------------

    @worded
    def apply_chat_template(
        self,
        conversation: Messages | Sequence[Messages],
        tools: Tools = None,
        *,
        add_generation_prompt: bool = False,
        tokenize: bool = True,
        padding: Padding = False,
        truncation: bool = False,
        max_length: int | None = None,
        return_tensors: Literal["pt", "np"] | None = None,
        return_dict: bool = True,
        return_assistant_tokens_mask: bool = False,
        **variables: Any,
    ) -> Any:
        """Render conversations by the chat template: as text without `tokenize`, else as ids with a mask.

        conversation: messages, or a list of conversations. tools: the JSON schemas of functions that may be called.
        add_generation_prompt: end where the assistant's reply begins.
        return_assistant_tokens_mask: `assistant_masks` are 1 for tokens that the assistant says, which training counts.
        variables: values of other variables of the template, such as `enable_thinking`.

        Control tokens come from the template alone: their names in messages are spelled out. transformers does so with
        `sanitize_control_tokens=True`.
        """
        batch = bool(conversation) and isinstance(conversation[0], list | tuple)
        talks: Any = conversation if batch else [conversation]
        options = {"tools": tools, "prompt": add_generation_prompt, **variables}
        mask = return_assistant_tokens_mask
        if not tokenize:
            said = [self.chat.text(one, **options) for one in talks]
            return said if batch else said[0]
        rows, masks = zip(*(self.chat.encode(one, mask=mask, **options) for one in talks), strict=True)
        named = {"input_ids": list(rows)} | ({"assistant_masks": list(masks)} if mask else {})
        values = self._padded(named, padding, truncation, max_length)
        if return_tensors is not None:
            values = _as_tensors(values, return_tensors)
        elif not batch:
            values = {key: value[0] for key, value in values.items()}
        return EncodedTexts(values, []) if return_dict else values["input_ids"]

    def _padded(
        self, named: Mapping[str, Rows], padding: Padding, truncation: bool, max_length: int | None
    ) -> dict[str, Any]:
        """Rows of ids, cut and padded, with their mask."""
        pad, cut, longest = self._limits(padding, truncation or None, max_length, None, True)
        left, start = self.padding_side == "left", self.truncation_side == "left"
        values = dict(named)
        if cut != "do_not_truncate" and longest is not None:
            values = {key: [r[-longest:] if start else r[:longest] for r in rows] for key, rows in values.items()}
        lengths = [len(row) for row in values["input_ids"]]
        width = longest if pad == "max_length" and longest is not None else max(lengths)
        values["attention_mask"] = [[1] * length for length in lengths]
        if pad != "do_not_pad":
            for key, rows in values.items():
                fill = self.pad_token_id if key == "input_ids" else 0
                more = [[fill] * (width - len(row)) for row in rows]
                values[key] = [m + r if left else r + m for r, m in zip(rows, more, strict=True)]
        return values

    # -- to transformers ------------------------------------------------------------------------------------------

    def to_transformers(self) -> PreTrainedTokenizerFast:
        """This tokenizer as a `transformers.PreTrainedTokenizerFast`. Raises ValueError if transformers is not installed."""
        try:
            from transformers import PreTrainedTokenizerFast
        except ModuleNotFoundError:
            raise ValueError("to_transformers needs transformers: pip install transformers") from None
        names = ("chat_template", "clean_up_tokenization_spaces", *CALLED)
        said = {name: value for name in names if (value := self._said(name, None)) is not None}
        raw = tokenizers.Tokenizer.from_str(self.raw.to_str())
        return PreTrainedTokenizerFast(tokenizer_object=raw, **self.special_tokens_map, **said)


def _inputs(text: Any, pair: Any, words: bool) -> tuple[bool, list[Any]]:
    """Whether there are several texts, and what the library encodes. Raises ValueError if texts don't fit together."""
    if not isinstance(text, str | list | tuple) or not isinstance(pair, str | list | tuple | None):
        raise ValueError(f"give a text or a list of texts, not {shown(text if pair is None else pair)}")
    several = bool(text) and isinstance(text[0], list | tuple) if words else not isinstance(text, str)
    if not several:
        return False, [(text, pair)] if pair else [text]
    if pair is not None and (isinstance(pair, str) or len(pair) != len(text)):
        raise ValueError(
            f"there are {len(text)} texts and {'one text' if isinstance(pair, str) else len(pair)} beside them; give one "
            "for each"
        )
    return True, list(text) if pair is None else list(zip(text, pair, strict=True))


def _wanted(asked: bool | None, names: Sequence[str], name: str) -> bool:
    return name in names if asked is None else asked


def _known(what: str, value: object, known: tuple[str, ...]) -> None:
    if value not in known:
        raise ValueError(f"there is no {what} {brief(value)}; it is True, False or one of {', '.join(known)}")


def _as_tensors(values: Mapping[str, list[Any]], kind: str) -> dict[str, Any]:
    if kind not in ("pt", "np"):
        raise ValueError(f"return_tensors is 'pt', 'np' or None, not {brief(kind)}")
    ids = values["input_ids"]
    if len({len(row) for row in ids}) > 1:
        raise ValueError("rows of unequal length make no tensor; give padding=True, truncation=True, or both")
    if kind == "np":
        import numpy

        return {key: numpy.array(rows) for key, rows in values.items()}
    import torch

    return {key: torch.tensor(rows) for key, rows in values.items()}


_CLEANED = {
    **{f" {sign}": sign for sign in ".?!,"},
    " ' ": "'",
    **{f" {ending}": ending for ending in ("n't", "'m", "'s", "'ve", "'re")},
}


def cleaned(text: str) -> str:
    """Remove the spaces that splitting at punctuation leaves in English (`clean_up_tokenization_spaces`)."""
    for spaced, close in _CLEANED.items():
        text = text.replace(spaced, close)
    return text
