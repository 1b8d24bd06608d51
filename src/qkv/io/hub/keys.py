"""Configuration keys of the Hub and the sizes they stand for, both ways. Every key is claimed, harmless, or an error."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from ...core.spec import brief, nearest

Config = Mapping[str, Any]


class Anything:
    """Any value: of keys that change no output whatever their value."""

    def __repr__(self) -> str:
        return "anything"


ANY = Anything()


class Field(Protocol):
    """One size of a family, and the configuration keys that give it.

    `keys` are the keys that it claims, with their defaults.
    """

    @property
    def size(self) -> str: ...
    @property
    def keys(self) -> Mapping[str, Any]: ...
    def read(self, config: Config) -> object:
        """The size, by a configuration with every claimed key filled in. Raises ValueError naming the key."""
        ...

    def write(self, value: Any, sizes: Mapping[str, Any]) -> dict[str, Any]:
        """The keys and values of a size; `sizes` are all of them."""
        ...


@dataclass(frozen=True)
class Key:
    """One key for one size: `Key("n_embd", "d_model", 768)`.

    `values` maps what the Hub calls a value to what we do. `also` are other spellings of the key, read but not written.
    """

    key: str
    size: str
    default: object
    values: Mapping[Any, Any] | None = None
    also: tuple[str, ...] = ()

    @property
    def keys(self) -> Mapping[str, Any]:
        return {self.key: self.default, **dict.fromkeys(self.also)}

    def read(self, config: Config) -> object:
        value = next((config[key] for key in self.also if config[key] is not None), config[self.key])
        if self.values is None:
            return value
        if value not in self.values:
            near = nearest(str(value)[:80], map(str, self.values))
            raise ValueError(f"{self.key} {brief(value)} is not built here; {near}")
        return self.values[value]

    def write(self, value: object, sizes: Mapping[str, Any]) -> dict[str, Any]:
        if self.values is not None:
            theirs = [theirs for theirs, ours in self.values.items() if ours == value]
            if not theirs:
                raise ValueError(
                    f"{self.key} has no {brief(value)}; {nearest(str(value), map(str, self.values.values()))}"
                )
            value = theirs[0]
        return {self.key: value}


@dataclass(frozen=True)
class LabelCount:
    """The number of labels of a head, `usual` by default. The Hub names each label; models made here have the labels
    LABEL_0, LABEL_1 …"""

    size: str = "labels"
    usual: int = 2

    @property
    def keys(self) -> Mapping[str, Any]:
        return dict.fromkeys(("id2label", "label2id", "num_labels"))

    def read(self, config: Config) -> int:
        names = config["id2label"]
        return len(names) if names is not None else config["num_labels"] or self.usual

    def named(self, made: Config, before: Config) -> dict[str, Any]:
        """`made` with the names of classes that `before` has, unless it has more or fewer classes."""
        names, names_before = made.get("id2label"), before.get("id2label") or ()
        if names is not None and len(names) != len(names_before):
            return dict(made)
        others = {key: value for key, value in made.items() if key not in self.keys}
        return others | {key: before[key] for key in self.keys if key in before}

    def write(self, value: int, sizes: Mapping[str, Any]) -> dict[str, Any]:
        names = [f"LABEL_{i}" for i in range(value)]
        return {
            "id2label": {str(i): name for i, name in enumerate(names)},
            "label2id": {name: i for i, name in enumerate(names)},
        }


ACTIVATIONS = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_new": "gelu-tanh",
    "gelu_pytorch_tanh": "gelu-tanh",
    "gelu_fast": "gelu-tanh",
    "silu": "silu",
    "swish": "silu",
    "sigmoid": "sigmoid",
    "relu2": "relu-squared",
    "linear": "identity",
}
"""The Hub's names of activations. If several mean one function, the first is written."""

# Keys of every configuration that say nothing about a model's outputs: what to return, how to train, what made the file,
# which tokens have roles (the generation settings' business), and names of classes.
# fmt: off
BOOKKEEPING: dict[str, Any] = {
    **dict.fromkeys(
        (
            "architectures", "auto_map", "model_type", "_name_or_path", "name_or_path", "transformers_version",
            "_attn_implementation", "_attn_implementation_autoset", "attn_implementation", "_commit_hash",
            "torch_dtype", "dtype", "use_cache", "output_attentions", "output_hidden_states", "return_dict",
            "return_dict_in_generate", "output_scores", "use_return_dict", "torchscript", "use_bfloat16",
            "id2label", "label2id", "num_labels", "problem_type", "finetuning_task", "task_specific_params",
            "tokenizer_class", "prefix", "gradient_checkpointing", "chunk_size_feed_forward", "pretraining_tp",
            "bos_token_id", "eos_token_id", "pad_token_id", "sep_token_id", "decoder_start_token_id",
            "classifier_dropout", "initializer_range", "qkv", "quantization_config",
            # Old files keep generation settings here too.
            "max_length", "min_length", "do_sample", "early_stopping", "num_beams", "num_beam_groups",
            "diversity_penalty", "temperature", "top_k", "top_p", "typical_p", "repetition_penalty",
            "length_penalty", "no_repeat_ngram_size", "encoder_no_repeat_ngram_size", "bad_words_ids",
            "num_return_sequences", "forced_bos_token_id", "forced_eos_token_id", "remove_invalid_values",
            "exponential_decay_length_penalty", "suppress_tokens", "begin_suppress_tokens",
        ),
        ANY,
    ),
    **dict.fromkeys(("is_decoder", "add_cross_attention", "tie_encoder_decoder", "is_encoder_decoder"), False),
    "cross_attention_hidden_size": None,
    "pruned_heads": {},
}
# fmt: on


def changed(
    fields: tuple[Field, ...], *own: Field, without: Collection[str] = (), **defaults: Any
) -> tuple[Field, ...]:
    """Derive one family's fields from another's: `own` replaces fields of the same size or key, or is added.

    without:  sizes that the other family lacks.
    defaults: keys that stay as they are, with another default.
    """
    keys = {key for field in own for key in field.keys}
    sizes = {field.size for field in own} | set(without)
    kept = [field for field in fields if field.size not in sizes and not keys & set(field.keys)]
    known = {field.key for field in kept if isinstance(field, Key)}
    assert known.issuperset(defaults), sorted(defaults.keys() - known)
    return tuple(
        replace(field, default=defaults[field.key]) if isinstance(field, Key) and field.key in defaults else field
        for field in (*kept, *own)
    )


def filled(config: Config, fields: tuple[Field, ...]) -> Config:
    """A configuration with defaults for the claimed keys that it lacks."""
    defaults = {key: value for field in fields for key, value in field.keys.items()}
    return ChainMap(dict(config), defaults)


def check_claimed(config: Config, fields: tuple[Field, ...], harmless: Mapping[str, Any]) -> None:
    """Check that no key would be dropped silently.

    Raises ValueError naming the first key that no field claims and whose value is not harmless.
    """
    claimed = {key for field in fields for key in field.keys}
    harmless = {**BOOKKEEPING, **harmless}
    for key, value in config.items():
        if key in claimed or value is None:
            continue
        if key not in harmless:
            near = nearest(key[:80], claimed)
            raise ValueError(f"the key {brief(key)} ({brief(value)}) is not known here; {near}")
        if harmless[key] is not ANY and value != harmless[key]:
            raise ValueError(f"{key}={brief(value)} is not built here; what is, is {brief(harmless[key])}")
