"""A family of the Hub as a value: its configuration keys, its classes and its tensor names, read both ways."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, Generic

from torch import Tensor
from typing_extensions import TypeVar

from ...core.spec import Spec, brief, nearest
from ...nn.attention.multi_head import Attention
from ...nn.layers.embedding import Embedding
from ...nn.models.base import ModelSpec
from ...nn.models.dual_encoder import DualEncoder
from ...nn.models.heads.base import Head
from ...nn.models.heads.sequence import SequenceClassifier
from ...nn.models.heads.text import TokenClassifier
from ...nn.models.heads.vision import MaskTokens, PixelDecoder
from ...nn.models.transformer import Transformer
from ...nn.positions.bias import T5Buckets
from .keys import ANY, Config, Field, LabelCount, check_claimed, filled
from .names import Row
from .transforms import Shape
from .values import ARCHITECTURES, PROBABILITY, Maybe, check_values

Table = tuple[Row, ...]
S = TypeVar("S", bound=ModelSpec, default=Transformer)
UNSAID = object()  # the value of a size that a spec lacks, such as whether its head is tied, for a spec without a head

DIVIDED = ("llama", "gemma2", "gemma3_text")
"""Model types that `transformers` refuses to load unless the number of heads divides the width, whatever `head_dim` is."""


@dataclass(frozen=True)
class Class:
    """One of a family's classes on the Hub, for example `GPT2LMHeadModel`.

    sizes:    sizes that the class decides, such as which head there is.
    bare:     whether tensor names lack the family's prefix.
    may_lack_pooler: whether files may lack the pooler that the sizes ask for.
    head:     replaces the head that the sizes make, or a function of the sizes that gives it; a classifier gets as many
              labels as the configuration has.
    dropout:  configuration keys of the head's dropout, each with its default. The first key that is not None counts.
    alone:    whether the class is the encoder of an encoder–decoder. Its configuration may describe either.
    """

    sizes: Mapping[str, Any] = field(default_factory=dict)
    bare: bool = False
    may_lack_pooler: bool = False
    head: Head | Callable[[Mapping[str, Any]], Head] | None = None
    dropout: Mapping[str, float | None] = field(default_factory=dict)
    alone: bool = False

    @property
    def variants(self) -> tuple[Mapping[str, Any], ...]:
        """The sizes, and those without the pooler if files may lack it."""
        return (self.sizes, {**self.sizes, "pooler": False}) if self.may_lack_pooler else (self.sizes,)

    def labels(self, spec: ModelSpec) -> int | None:
        """How many labels of the configuration a spec of this class has: of sequences or of tokens; None without any."""
        head = getattr(spec, "head", None)
        own = isinstance(head, TokenClassifier) and self.head is not None
        return _labels(spec) if own or isinstance(head, SequenceClassifier) else None


@dataclass(frozen=True, eq=False)
class Family(Generic[S]):
    """The tables of one family.

    model_type: as the Hub calls it.
    make:       sizes → spec, the family's factory.
    classes:    by name; the first is the default if a configuration names none.
    fields:     configuration keys ↔ sizes.
    places:     where in a spec each size stands: a dotted path, or a function of the spec. A size that is not here
                stands at the path of its own name. A function may answer `UNSAID`.
    names:      tensor names, the same for every spec or a function of it. Ours are the names in the model's state_dict.
    harmless:   keys besides `keys.BOOKKEEPING` that belong to no size, with the one value that changes nothing (or ANY).
    prefix:     prefix of tensor names in classes with a head ("transformer.").
    computed:   tensors that files hold though they follow from the spec, by their names in classes with the prefix. What a
                file holds has to be the same.
    writes_computed: whether they are written too.
    carried:    tensors that files hold for what is not computed here, with their shapes, by their names in classes with the
                prefix. They are kept and written back; a model that was not loaded has zeros in them.
    modules:    regular expressions in tensor names, and what stands there in the names of transformers' modules, where these
                are others than in files. PEFT's adapters go by modules.
    adapted:    rows of linear layers that are other modules in transformers than tensors in files; PEFT's adapters name
                modules.
    inside:     values within configurations of parts that are written in any case, by the keys of the parts: what a model
                has no use for, and its files lack.
    labels:     the keys that give the number of labels, for classes that label sequences or tokens.
    kind:       the class of the specs: a Transformer, or a dual encoder.
    wraps:      whether a decoder that reads the encoder's text one token behind, below a classifier or a head that finds
                answers, starts from the text's last token (mBART) in place of the starting token.
    """

    model_type: str
    make: Callable[..., S]
    classes: Mapping[str, Class]
    fields: tuple[Field, ...]
    places: Mapping[str, str | Callable[[S], Any]]
    names: Table | Callable[[S], Table]
    harmless: Mapping[str, Any] = field(default_factory=dict)
    prefix: str = ""
    modules: Mapping[str, str] = field(default_factory=dict)
    adapted: Table = ()
    is_encoder_decoder: bool = False
    inside: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    labels: LabelCount = field(default_factory=LabelCount)
    computed: Callable[[S], Mapping[str, Tensor]] | None = None
    writes_computed: bool = True
    carried: Callable[[S], Mapping[str, Shape]] | None = None
    kind: type[ModelSpec] = Transformer
    wraps: bool = False

    # -- from the Hub -------------------------------------------------------------------------------------------

    def spec(self, config: Config, cls: str | None = None, variant: int = 0) -> S:
        """The spec of a configuration, for one of its classes (the configuration's own by default) and its variants.

        Raises ValueError naming a key or a class that is not known, or not built.
        """
        either = any(name in self.classes and self.classes[name].alone for name in (cls or "", _first_of(config)))
        stacks = {"is_encoder_decoder": ANY if either else self.is_encoder_decoder}
        check_claimed(config, self.fields, {**self.harmless, **stacks})
        full = filled(config, (*self.fields, self.labels))
        check_values(config, {key: value for f in (*self.fields, self.labels) for key, value in f.keys.items()})
        sizes = {f.size: f.read(full) for f in self.fields}
        entry = self.classes[cls or self.class_of(config)]
        for key in entry.dropout:
            Maybe(PROBABILITY).check(full.get(key), key)
        rates = (full.get(key, usual) for key, usual in entry.dropout.items())
        dropout = next((value for value in rates if value is not None), 0.0)
        try:
            made = self.make(**sizes, **entry.variants[variant])
            return self._of_class(made, entry, sizes, self.labels.read(full), dropout)
        except ValueError as error:
            raise ValueError(self._in_keys(str(error), config)) from None

    def _in_keys(self, message: str, config: Config) -> str:
        """Add the configuration keys of the sizes that a message mentions."""
        words = set(re.findall(r"\w+", message.lower()))
        stems = set(map(_stem, words))
        notes = []
        for f in (*self.fields, self.labels):
            keys = [key for key in f.keys if key in config] or list(f.keys)[:1]
            if keys and _stem(f.size) in stems and not words & set(keys):
                notes.append(f"{f.size} is {' or '.join(keys)}")
        return f"{message} (in this configuration {', '.join(notes)})" if notes else message

    def _of_class(self, spec: S, cls: Class, sizes: Mapping[str, Any], labels: int, dropout: float = 0.0) -> S:
        """Return a spec from the factory with the head of a class."""
        if cls.head is not None:
            spec = spec.replace(head=cls.head if isinstance(cls.head, Head) else cls.head(sizes))
        if cls.labels(spec) is None:
            return spec
        return spec.replace({"head.labels": labels, "head.dropout": dropout})

    def class_of(self, config: Config) -> str:
        """The class that a configuration names, or the family's first."""
        ARCHITECTURES.check(config.get("architectures"), "architectures")
        named: str = (config.get("architectures") or [next(iter(self.classes))])[0]
        if named not in self.classes:
            raise ValueError(
                f"architectures: the class {brief(named)} of {self.model_type!r} is not built here; "
                f"{nearest(named[:80], self.classes)}"
            )
        return named

    # -- to the Hub ---------------------------------------------------------------------------------------------

    def config(self, spec: S) -> dict[str, Any]:
        """The configuration of a spec: its class, its model type, and every claimed key.

        Raises ValueError naming the difference if the family can't express the spec.
        """
        cls, sizes = self.sizes(spec)
        config: dict[str, Any] = {"architectures": [cls], "model_type": self.model_type}
        for f in self.fields:
            if f.size in sizes:
                config = _merged(config, f.write(sizes[f.size], sizes))
        if (labels := self.classes[cls].labels(spec)) is not None:
            config |= self.labels.write(labels, sizes)
        if self.is_encoder_decoder:
            config["is_encoder_decoder"] = not self.classes[cls].alone
        if self.model_type in DIVIDED and config["hidden_size"] % config["num_attention_heads"]:
            raise ValueError(
                f"{self.model_type} needs a number of heads that divides its width in transformers, and this model has "
                f"{config['num_attention_heads']} heads and a width of {config['hidden_size']}"
            )
        return config

    def sizes(self, spec: S) -> tuple[str, dict[str, Any]]:
        """The class and the sizes that make a spec. Raises ValueError if the family can't express it."""
        cls, sizes, differences = self.nearest(spec)
        if differences:
            path, (theirs, ours) = next(iter(differences.items()))
            raise ValueError(f"{self.model_type} has {path} = {brief(theirs)}, and this model {brief(ours)}")
        return cls, sizes

    def nearest(self, spec: S) -> tuple[str, dict[str, Any], dict[str, tuple[Any, Any]]]:
        """The class nearest to a spec, the sizes, and the paths at which they still differ (theirs, ours).

        A size that the spec lacks takes the factory's default, so the missing part shows as a difference.
        Raises ValueError or TypeError if there is no such default.
        """
        sizes, wanted = self._sizes_of(spec), _wanted(spec)
        candidates = (
            (name, _differing(dict(_leaves(one, one.d_model, BESIDE)), wanted)) for name, one in self._made(spec)
        )
        cls, differences = min(candidates, key=lambda candidate: len(candidate[1]))
        return cls, sizes, differences

    def nearest_spec(self, spec: S) -> S:
        """The spec of this family that is nearest to a spec. Raises ValueError or TypeError as `nearest` does."""
        name, _, _ = self.nearest(spec)
        candidates = [made for cls, made in self._made(spec) if cls == name]
        return min(candidates, key=lambda candidate: len(difference(candidate, spec)))

    def expresses(self, spec: S) -> bool:
        """Return whether the family has a configuration for a spec. Faster than `config`, which names a difference."""
        wanted = _wanted(spec)
        try:
            made = self._made(spec, lambda bare: _agrees(bare, wanted))
            same = any(not _differing(dict(_leaves(one, one.d_model, BESIDE)), wanted) for _, one in made)
            return same and not self.unwritable(self._sizes_of(spec))
        except (ValueError, TypeError):
            return False  # it doesn't even have the same parts

    def _sizes_of(self, spec: S) -> dict[str, Any]:
        return {f.size: value for f in self.fields if (value := self._at(spec, f.size)) is not UNSAID}

    def _made(self, spec: S, may: Callable[[S], bool] = lambda bare: True) -> Iterator[tuple[str, S]]:
        """Yield the spec of each class and variant, with the sizes of a given spec.

        The factory is called once per variant, because classes differ in their heads only. Variants for which `may` is
        false are skipped.
        """
        sizes, labels, made = self._sizes_of(spec), _labels(spec), dict[str, S | None]()
        for name, cls in self.classes.items():
            for decided in cls.variants:
                what = str(decided)
                if what not in made:
                    bare = self.make(**sizes, **decided)
                    made[what] = bare if may(bare) else None
                if (one := made[what]) is not None:
                    yield name, self._of_class(one, cls, sizes, labels)

    def unwritable(self, sizes: Mapping[str, Any]) -> list[str]:
        """Why no configuration can express some of the sizes, one sentence for each."""
        reasons = []
        for f in self.fields:
            try:
                if f.size in sizes:
                    f.write(sizes[f.size], sizes)
            except ValueError as error:
                reasons.append(str(error))
            except (AttributeError, KeyError, TypeError):
                continue  # it depends on another size, which is reported already
        return reasons

    def variant(self, spec: S, cls: str) -> int:
        """Which variant of one of its classes a spec is: 1 if it lacks the pooler that the class may lack."""
        return int(self.classes[cls].may_lack_pooler and getattr(spec, "classification_head", None) is None)

    def table(self, spec: S, bare: bool) -> Table:
        """The rows of tensor names, for classes with a head or for those without."""
        return self._prefixed(self.names(spec) if callable(self.names) else self.names, bare)

    def module_tables(self, spec: S, bare: bool) -> list[Table]:
        """The rows of names of modules, as transformers has them now and as files have them."""
        table = self.table(spec, bare)
        return [(*self._prefixed(self.adapted, bare), *table), table] if self.adapted else [table]

    def _prefixed(self, table: Table, bare: bool) -> Table:
        if not bare:
            return table
        return tuple(Row(row.theirs.removeprefix(self.prefix), row.ours, row.how) for row in table)

    def computed_tensors(self, spec: S, bare: bool) -> dict[str, Tensor]:
        """The computed tensors of a spec by their names in a file."""
        tensors = {} if self.computed is None else self.computed(spec)
        return {name.removeprefix(self.prefix) if bare else name: tensor for name, tensor in tensors.items()}

    def carried_shapes(self, spec: S, bare: bool) -> dict[str, Shape]:
        """The shapes of the carried tensors of a spec by their names in a file."""
        shapes = {} if self.carried is None else self.carried(spec)
        return {name.removeprefix(self.prefix) if bare else name: shape for name, shape in shapes.items()}

    @cached_property
    def claimed(self) -> frozenset[str]:
        """Every key that belongs to some field."""
        return frozenset(key for f in self.fields for key in f.keys)

    def _at(self, spec: S, size: str) -> Any:
        place = self.places.get(size, size)
        try:
            return place(spec) if callable(place) else at(spec, place)
        except (AttributeError, IndexError):
            return UNSAID


def _first_of(config: Config) -> str:
    """Return the class that a configuration names; empty if it names none."""
    named = config.get("architectures")
    return str(named[0]) if isinstance(named, list) and named else ""


def _merged(config: dict[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration with further keys, also of the configurations within it."""
    inside = {
        key: {**config[key], **value}
        for key, value in more.items()
        if isinstance(value, Mapping) and isinstance(config.get(key), Mapping)
    }
    return {**config, **more, **inside}


def _stem(size: str) -> str:
    """What a size counts or measures: "n_heads" and "encoder_heads" are heads, "patches" a patch."""
    return re.sub(r"^(n|encoder|decoder)_|e?s$", "", size)


def _labels(spec: ModelSpec) -> int:
    """The number of labels of a classifier of sequences or tokens."""
    head = getattr(spec, "head", None)
    return head.labels or 2 if isinstance(head, SequenceClassifier | TokenClassifier) else 2


def at(spec: Spec, path: str) -> Any:
    """The value at a dotted path in a spec: `at(spec, "decoder.blocks.0.attention.n_heads")`."""
    value: Any = spec
    for part in path.split("."):
        value = value[int(part)] if part.isdigit() else getattr(value, part)
    return value


# What changes no output: how parameters begin, what is dropped in training, which kernel computes.
# fmt: off
BESIDE = frozenset(
    {
        "initialization", "dropout", "drop_path", "backend", "fused",
        "jitter", "balance", "balance_weight", "router_z", "capacity",  # of a mixture of experts
        "temperature",  # of a dual encoder, at the beginning of training
    }
)
# fmt: on


def difference(a: ModelSpec, b: ModelSpec, beside: frozenset[str] = BESIDE) -> dict[str, tuple[Any, Any]]:
    """The dotted paths at which two models would compute differently, each with both values.

    Defaults that follow from other fields count as what they are; fields in `beside` don't count.
    """
    return _differing(dict(_leaves(a, a.d_model, beside)), dict(_leaves(b, b.d_model, beside)))


@lru_cache(maxsize=2)
def _wanted(spec: ModelSpec) -> dict[str, Any]:
    """The values of a spec that every family is compared with."""
    return dict(_leaves(spec, spec.d_model, BESIDE))


def _differing(one: dict[str, Any], other: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    paths = dict.fromkeys([*one, *other])
    return {path: (one.get(path), other.get(path)) for path in paths if one.get(path) != other.get(path)}


def _agrees(bare: ModelSpec, wanted: dict[str, Any]) -> bool:
    """Return whether all values of a spec, except its head, equal the wanted values. Stops at the first difference."""
    leaves = _leaves(bare, bare.d_model, BESIDE | {"head"})
    return all(path in wanted and wanted[path] == value for path, value in leaves)


def _leaves(node: Any, d_model: int, beside: frozenset[str], path: str = "") -> Iterator[tuple[str, Any]]:
    """The values in a spec that have no parts, by their dotted paths."""
    if isinstance(node, Spec):
        d_model = node.d_model if isinstance(node, Transformer) else d_model
        parts = _spelled_out(node, d_model, path)
        if isinstance(node, DualEncoder) and beside:
            parts["bias"] = node.bias is not None  # a number is where it begins
    elif isinstance(node, tuple) and node and all(isinstance(item, Spec) for item in node):
        parts = {str(i): item for i, item in enumerate(node)}
    else:
        yield path, list(node) if isinstance(node, tuple) else node
        return
    if isinstance(node, PixelDecoder | MaskTokens):
        d_model = node.width  # of its stack
    for key, value in parts.items():
        if key not in beside:
            yield from _leaves(value, d_model, beside, f"{path}.{key}" if path else key)


def _spelled_out(spec: Spec, d_model: int, path: str) -> dict[str, Any]:
    """A spec's kind and fields, with the values that its fields stand for if they are None."""
    fields: dict[str, Any] = {"kind": spec.kind} if spec.kind else {}
    fields |= {name: getattr(spec, name) for name in type(spec).model_fields}
    implied: dict[str, Any] = {}
    if isinstance(spec, Attention):
        d_head = spec.d_head or d_model // spec.n_heads
        implied = {"n_kv_heads": spec.n_heads, "d_head": d_head, "d_value": d_head}
        implied |= {
            "scale": d_head**-0.5 if d_head else 0.0,
            "out_bias": spec.bias,
            "key_bias": spec.bias,
        }  # a candidate may have no width
    elif isinstance(spec, Embedding):
        implied = {"width": d_model}
    elif isinstance(spec, T5Buckets):
        implied = {"bidirectional": path.startswith("encoder")}
    return fields | {name: value for name, value in implied.items() if fields[name] is None}
