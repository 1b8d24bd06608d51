"""Metadata keys of GGUF and configuration keys of the Hub, both ways: entries of an architecture's table.

A key stands in the file as "ARCHITECTURE.name"; the tables name what comes after the dot. Numbers are fp32 in the file, so a
configuration's 1e-05 comes back as the shortest decimal that is the same fp32.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import numpy as np

from ....core.spec import brief

T = TypeVar("T")

Config = Mapping[str, Any]
Metadata = dict[str, Any]
TENSORS = "the shapes of its tensors"
"""Under this key, entries that read find the shapes of the file's tensors by name, beside the metadata."""


class MetadataEntry(Protocol):
    """Some metadata, and the configuration keys that say the same."""

    def write(self, config: Config) -> Metadata:
        """The metadata of a configuration. Raises ValueError if llama.cpp has no way to say it."""
        ...

    def read(self, metadata: Config) -> dict[str, Any]:
        """The configuration keys of metadata. Raises ValueError naming what is missing."""
        ...


class Noted(Mapping[str, object]):
    """Metadata that note in `names` which keys were asked for."""

    def __init__(self, metadata: Config) -> None:
        self.names: set[str] = set()
        self._metadata = metadata

    def __getitem__(self, name: str) -> object:
        self.names.add(name)
        return self._metadata[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._metadata)

    def __len__(self) -> int:
        return len(self._metadata)


def decimal(value: T) -> T | float:
    """Round a float to the shortest decimal with the same fp32 value; return other values unchanged."""
    return float(str(np.float32(value))) if isinstance(value, float) else value


def need(metadata: Config, name: str) -> None:
    """Raise ValueError if a key is missing."""
    if name not in metadata:
        raise ValueError(f"its metadata lacks {brief(name)}, which a model of its architecture has")


def scalar(metadata: Config, name: str, default: object = None) -> Any:
    """A key's value. Raises ValueError for an array, which llama.cpp takes if layers differ."""
    value = metadata.get(name, default)
    if isinstance(value, list | np.ndarray):
        raise ValueError(f"{name} is an array, one value for each layer, and layers of different sizes are not read")
    return decimal(value)


@dataclass(frozen=True)
class Same:
    """One key for one: `Same("embedding_length", "hidden_size")`.

    usual:    its value if the file lacks it.
    optional: the configuration may lack it as well.
    """

    name: str
    key: str
    usual: bool | float | str | None = None
    whole: bool = True
    optional: bool = False

    def write(self, config: Config) -> Metadata:
        value = config.get(self.key)
        value = self.usual if value is None else value
        if value is None:
            return {}
        return {self.name: value if isinstance(value, bool) else int(value) if self.whole else float(value)}

    def read(self, metadata: Config) -> dict[str, Any]:
        if self.optional and self.name not in metadata:
            return {}
        if self.usual is None:
            need(metadata, self.name)
        return {self.key: scalar(metadata, self.name, self.usual)}


def number(name: str, key: str, usual: float | None = None, optional: bool = False) -> Same:
    """A key whose value is a real number."""
    return Same(name, key, usual, whole=False, optional=optional)


@dataclass(frozen=True)
class Says:
    """A configuration key that has no metadata: llama.cpp knows one way. `values` are what it may be, the first as read."""

    key: str
    values: tuple[Any, ...]
    what: str

    def write(self, config: Config) -> Metadata:
        value = config.get(self.key, self.values[0])
        if value not in self.values:
            said = " or ".join(map(str, self.values))
            raise ValueError(f"llama.cpp's {self.what}: {self.key} has to be {said} there, and this model's is {value}")
        return {}

    def as_written(self, config: Config) -> dict[str, Any]:
        return {self.key: self.values[0]} if self.key in config else {}

    def read(self, metadata: Config) -> dict[str, Any]:
        return {} if self.values[0] is None else {self.key: self.values[0]}


@dataclass(frozen=True)
class Present:
    """A flag of the configuration that is true if the file has a certain tensor."""

    key: str
    tensor: str

    def write(self, config: Config) -> Metadata:
        return {}

    def read(self, metadata: Config) -> dict[str, Any]:
        return {self.key: self.tensor in metadata[TENSORS]}


@dataclass(frozen=True)
class ConstantMetadata:
    """Metadata that is always the same."""

    metadata: Mapping[str, Any] = field(default_factory=dict)

    def write(self, config: Config) -> Metadata:
        return dict(self.metadata)

    def read(self, metadata: Config) -> dict[str, Any]:
        return {}


@dataclass(frozen=True)
class Heads:
    """Heads and their width. `head_dim` is the width over the heads if it isn't said."""

    heads: str = "num_attention_heads"
    kv_heads: str | None = "num_key_value_heads"
    width: str = "hidden_size"
    head_dim: str | None = "head_dim"

    def write(self, config: Config) -> Metadata:
        heads = config[self.heads]
        metadata = {"attention.head_count": heads}
        if self.kv_heads is not None:
            metadata["attention.head_count_kv"] = config.get(self.kv_heads) or heads
        if self.head_dim is not None:
            d_head = config.get(self.head_dim) or config[self.width] // heads
            metadata |= {"attention.key_length": d_head, "attention.value_length": d_head}
        elif config[self.width] % heads:
            raise ValueError(
                f"llama.cpp's heads divide the width in this family, and this model has {heads} heads and a width of "
                f"{config[self.width]}"
            )
        return metadata

    def read(self, metadata: Config) -> dict[str, Any]:
        need(metadata, "attention.head_count")
        heads = scalar(metadata, "attention.head_count")
        config = {self.heads: heads}
        if self.kv_heads is not None:
            config[self.kv_heads] = scalar(metadata, "attention.head_count_kv", heads)
        if self.head_dim is not None:
            wide = scalar(metadata, "embedding_length")
            usual = wide // heads if type(wide) is int and type(heads) is int and heads > 0 else None
            widths = [scalar(metadata, f"attention.{which}_length", usual) for which in ("key", "value")]
            if widths[0] != widths[1]:
                raise ValueError(
                    f"attention.key_length is {brief(widths[0])} and attention.value_length {brief(widths[1])}, which are "
                    "the same in this family"
                )
            config[self.head_dim] = widths[0]
        return config


@dataclass(frozen=True)
class Narrowed:
    """Sliding windows of a family for which llama.cpp computes none.

    Within the window both are the same, so the context that is written is no longer than the window; the entry stands after
    the one that writes `context_length`.
    """

    key: str = "sliding_window"
    context: str = "max_position_embeddings"

    def window(self, config: Config) -> int | None:
        """The window of some layer, if it is shorter than the context."""
        slides = config.get("use_sliding_window", True) and "sliding_attention" in (
            config.get("layer_types") or ["sliding_attention"]
        )
        window, context = config.get(self.key), config.get(self.context)
        return window if slides and window and (context is None or window < context) else None

    def write(self, config: Config) -> Metadata:
        window = self.window(config)
        return {} if window is None else {"context_length": window}

    def as_written(self, config: Config) -> dict[str, Any]:
        """Without windows: none is shorter than the context that is written."""
        changes: dict[str, Any] = {}
        if self.key in config:
            changes[self.key] = None
        if "use_sliding_window" in config:
            changes["use_sliding_window"] = False
        if config.get("layer_types"):
            changes["layer_types"] = ["full_attention"] * len(config["layer_types"])
        window = self.window(config)
        return changes if window is None else changes | {self.context: window}

    def read(self, metadata: Config) -> dict[str, Any]:
        return {self.key: None}
