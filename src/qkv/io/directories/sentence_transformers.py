"""sentence-transformers directories, read and written: pooling, dense layers, normalization, length and prompts.

`modules.json` lists the modules after tokenization: the Transformer, a pooling, and any number of dense layers, norms and
normalizations. Any other module would change every vector, and is an error when embeddings are requested.
"""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ...core.spec import brief, nearest
from ...nn.models.heads.sequence import SentenceVector
from ...training.checkpoints.weights import replace_tensors
from ..hub.files import PICKLE, open_weights
from ..hub.values import Flag, List, Maybe, ObjectKind, StringKind, ValueKind, Whole
from .layout import CONFIG, MODULES, TOKENIZER_CONFIG, WEIGHTS, read_json, write_json

SETTINGS = ("sentence_bert_config.json", "config_sentence_transformers.json")
OLDER = tuple(
    f"sentence_{name}_config.json" for name in ["roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet"]
)
"""Earlier names of `sentence_bert_config.json`."""

NO_LIMIT = 1 << 30
"""From this length on, `model_max_length` means that there is no limit."""

Pooling = Literal["mean", "cls", "last", "max", "weighted-mean", "mean-sqrt", "none"]

# In the order in which the library concatenates several poolings.
LEGACY_NAMES: dict[str, str] = {
    "cls_token": "cls",
    "max_tokens": "max",
    "mean_tokens": "mean",
    "mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "weightedmean_tokens": "weightedmean",
    "lasttoken": "lasttoken",
}
"""Names of poolings in files of earlier versions, after `pooling_mode_`, and their names now."""

POOLINGS: dict[str, Pooling] = {
    "cls": "cls",
    "max": "max",
    "mean": "mean",
    "mean_sqrt_len_tokens": "mean-sqrt",
    "weightedmean": "weighted-mean",
    "lasttoken": "last",
}
"""The library's names of poolings, and ours."""

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "Identity": lambda x: x,
    "Tanh": torch.tanh,
    "ReLU": F.relu,
    "GELU": F.gelu,
    "SiLU": F.silu,
    "Sigmoid": torch.sigmoid,
}
"""Activation functions of dense layers, by their class in `torch.nn`."""

SIMILARITIES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "cosine": lambda u, v: F.cosine_similarity(u, v, dim=-1),
    "dot": lambda u, v: (u * v).sum(-1),
    "euclidean": lambda u, v: -(u - v).square().sum(-1).sqrt(),
    "manhattan": lambda u, v: -(u - v).abs().sum(-1),
}
"""The library's similarities of vectors (…, M); of distances, the negative."""

FILES = (CONFIG, WEIGHTS)
"""Files in the folder of a module after the Transformer."""

KEPT = ("Pooling", "Normalize", "Dropout")
"""Modules without weights, which a tuned model keeps."""

OTHER_HEADS = ("sparse_linear.pt", "colbert_linear.pt")
"""BGE-M3's weights for sparse vectors and for one vector per token."""

SUPPORTED = ("Pooling", "Normalize", "Dense", "LayerNorm", "Dropout")


@dataclass(frozen=True)
class Module:
    """A layer after pooling: its type in `modules.json`, and the function that it computes."""

    kind: str
    compute: Callable[[Tensor], Tensor] = field(compare=False)


@dataclass(frozen=True)
class SentenceSettings:
    """How texts become embeddings.

    poolings: computed from the tokens' hidden states, and concatenated.
    modules:  the layers after pooling.
    longest:  maximum number of tokens, special tokens included; longer texts are truncated.
    size:     the number of components of a vector that are kept, the first ones; None keeps all.
    prompts:  texts by name, one of which can be prepended to every text; `prompt` is the name of the default.
    pool_prompt: whether the tokens of the prompt are pooled too.
    lower:    whether texts are lower-cased.
    """

    poolings: tuple[Pooling, ...] = ("mean",)
    modules: tuple[Module, ...] = ()
    longest: int | None = None
    size: int | None = None
    prompts: Mapping[str, str] = field(default_factory=dict)
    prompt: str | None = None
    pool_prompt: bool = True
    lower: bool = False


def read(folder: Path, allow_pickle: bool = False) -> SentenceSettings | None:
    """Read how a directory computes embeddings; None if it has no `modules.json`. Weights of dense layers may be pickles
    only with `allow_pickle`.

    Raises ValueError naming the file, and the setting or module that is not supported.
    """
    if not (folder / MODULES).is_file():
        return None
    entries = _entries(folder)
    types = [kind for kind, _ in entries]
    if types[:2] != ["Transformer", "Pooling"]:
        raise ValueError(f"{folder / MODULES} lists the modules {brief(' → '.join(types))}; {_SUPPORTED}")
    reading = _reading(folder)
    _check_reading(folder, reading)
    _warn_of_other_heads(folder)
    poolings, pool_prompt = _poolings(folder / entries[1][1] / CONFIG)
    prompts, prompt = _prompts(folder / SETTINGS[1])
    return SentenceSettings(
        poolings,
        tuple(
            Module(kind, _layer(folder, kind, path, allow_pickle)) for kind, path in entries[2:] if kind != "Dropout"
        ),
        longest=_longest(folder, reading),
        size=_object(folder / SETTINGS[1], {"truncate_dim": Whole(1, 1 << 30)}).get("truncate_dim"),
        prompts=prompts,
        prompt=prompt,
        pool_prompt=pool_prompt,
        lower=bool(reading.get("do_lower_case", False)),
    )


def _warn_of_other_heads(folder: Path) -> None:
    if found := [name for name in OTHER_HEADS if (folder / name).is_file()]:
        warnings.warn(
            f"{folder} has {' and '.join(found)}, BGE-M3's weights for sparse and multi-vector retrieval, which qkv lacks: "
            "only dense vectors are computed; a saved copy lacks these files, so copy them if another program needs them",
            stacklevel=4,
        )


_SUPPORTED = (
    "supported are a Transformer and a Pooling, followed by any of Dense, LayerNorm, Normalize and Dropout; "
    "pooling='none' (--pooling none) gives the hidden states of the tokens"
)


def similarity_of(folder: Path | None) -> str:
    """The name of the similarity of vectors that a directory chooses (`similarity_fn_name`), cosine by default.

    Raises ValueError for one that is not among `SIMILARITIES`.
    """
    if folder is None or not (folder / MODULES).is_file():
        return "cosine"
    name = _object(folder / SETTINGS[1], {"similarity_fn_name": StringKind()}).get("similarity_fn_name")
    if name is not None and name not in SIMILARITIES:
        raise ValueError(f"{folder / SETTINGS[1]}: similarity_fn_name is {brief(name)}; {nearest(name, SIMILARITIES)}")
    return name or "cosine"


def copy(folder: Path, target: Path, allow_pickle: bool = False) -> None:
    """Copy the files of sentence-transformers from one directory to another, without the files of unsupported modules.

    Pickled weights are copied as safetensors, and only if `allow_pickle` is set.
    """
    if not (folder / MODULES).is_file() or folder.resolve() == target.resolve():
        return
    modules = [path for kind, path in _entries(folder) if path and kind in SUPPORTED]
    for name in (*(f"{path}/{name}" for path in modules for name in FILES), *SETTINGS, MODULES):
        if (folder / name).is_file():
            (target / name).parent.mkdir(exist_ok=True)
            shutil.copyfile(folder / name, target / name)
        elif allow_pickle and (folder / name).with_name(PICKLE).is_file() and name.endswith(WEIGHTS):
            weights = open_weights((folder / name).parent, allow_pickle)
            replace_tensors(target / name, {key: weights.read(key) for key in weights.shapes})
    _keep_reading(folder, target)


def write(folder: Path, head: SentenceVector, d_model: int, max_positions: int | None) -> None:
    """Write the files with which sentence-transformers computes the vectors of the head `sentence-vector`."""
    prefix = "sentence_transformers.models"
    modules = [
        {"idx": 0, "name": "0", "path": "", "type": f"{prefix}.Transformer"},
        {"idx": 1, "name": "1", "path": "1_Pooling", "type": f"{prefix}.Pooling"},
    ]
    mode = {pooling: name for name, pooling in POOLINGS.items()}[pooling_of(head)]
    flags = {f"pooling_mode_{legacy}": name == mode for legacy, name in LEGACY_NAMES.items()}
    (folder / "1_Pooling").mkdir(exist_ok=True)
    write_json(folder / "1_Pooling" / CONFIG, {"word_embedding_dimension": d_model, **flags, "include_prompt": True})
    write_json(folder / SETTINGS[0], {"max_seq_length": max_positions, "do_lower_case": False})
    write_json(folder / SETTINGS[1], {"prompts": {}, "default_prompt_name": None, "similarity_fn_name": "cosine"})
    write_json(folder / MODULES, modules)


def of_a_tuned_model(folder: Path, head: object) -> list[str]:
    """What becomes of a directory's settings when its model is trained with the head `sentence-vector`: sentences for the
    user; [] for another head or directory. The loss compares pooled vectors, so dense layers and layer norms, which would
    follow untrained, are left out.

    Raises ValueError if the directory pools otherwise than the head.
    """
    if not isinstance(head, SentenceVector) or not (folder / MODULES).is_file():
        return []
    entries = _entries(folder)
    if [kind for kind, _ in entries[:2]] != ["Transformer", "Pooling"]:
        return [
            f"{folder} lists other modules than a Transformer and a Pooling, so its embedding settings are not kept."
        ]
    poolings, _ = _poolings(folder / entries[1][1] / CONFIG)
    if poolings != (pooling_of(head),):
        pools = {"cls": "first", "mean": "mean", "max": "max", "last": "last"}
        own = pools.get(poolings[0]) if len(poolings) == 1 else None
        advice = (
            f"give head.pool={own}" if own else f"remove {MODULES} from a copy of it, and it is trained with head.pool"
        )
        raise ValueError(f"{folder} pools by {' and '.join(poolings)}, and head.pool is {head.pool}; {advice}")
    left_out = [kind for kind, _ in entries[2:] if kind not in KEPT]
    reading, (prompts, default) = _reading(folder), _prompts(folder / SETTINGS[1])
    notes = []
    if left_out:
        notes.append(f"Its modules {', '.join(left_out)} are left out: training compares the pooled vectors.")
    if default is not None:
        notes.append(
            f"Its default prompt {brief(prompts[default])} begins texts to embed, and none that are trained on."
        )
    if (similarity := similarity_of(folder)) != "cosine":
        notes.append(
            f"The trained model compares texts by {similarity}, as it does (similarity_fn_name); training by the cosine."
        )
    if reading.get("do_lower_case"):
        notes.append("It lower-cases texts to embed, and none that are trained on.")
    if (longest := _longest(folder, reading)) is not None:
        notes.append(f"The trained model embeds up to {longest} tokens of a text, as it does (max_seq_length).")
    if (size := _object(folder / SETTINGS[1], {"truncate_dim": Whole(1, 1 << 30)}).get("truncate_dim")) is not None:
        notes.append(
            f"The trained model embeds into {size} numbers, as it does (truncate_dim); the loss compares whole vectors."
        )
    return notes


def keep(folder: Path, target: Path) -> None:
    """Copy the settings of a directory into that of a model trained from it: pooling, normalization, length, prompts
    and the similarity function, without modules that have weights."""
    if not (folder / MODULES).is_file():
        return
    entries = [(kind, path) for kind, path in _entries(folder) if kind in ("Transformer", *KEPT)]
    if [kind for kind, _ in entries[:2]] != ["Transformer", "Pooling"]:
        return
    kept = {path for _, path in entries}
    modules = [module for module in read_json(folder / MODULES) if (module.get("path") or "") in kept]
    for path in filter(None, kept):
        if (folder / path / CONFIG).is_file():
            (target / path).mkdir(exist_ok=True)
            write_json(target / path / CONFIG, read_json(folder / path / CONFIG))
    for name in SETTINGS:
        if (folder / name).is_file():
            write_json(target / name, read_json(folder / name))
    _keep_reading(folder, target)
    write_json(target / MODULES, [{**module, "idx": i, "name": str(i)} for i, module in enumerate(modules)])


def _reading(folder: Path) -> Mapping[str, Any]:
    """How a directory's Transformer reads texts: `sentence_bert_config.json`, or a file with one of its earlier names."""
    path = next((path for name in (SETTINGS[0], *OLDER) if (path := folder / name).is_file()), folder / SETTINGS[0])
    arguments = ObjectKind(most=4096)
    return _object(
        path,
        {
            "max_seq_length": Whole(1, NO_LIMIT),
            "do_lower_case": Flag(),
            **dict.fromkeys(("modality_config", "processing_kwargs", *_ARGUMENTS), arguments),
        },
    )


_ARGUMENTS = ("processor_kwargs", "tokenizer_args")
"""Where a directory may give arguments of the tokenizer; the second is the earlier name."""


def _check_reading(folder: Path, reading: Mapping[str, Any]) -> None:
    """Raise ValueError if texts are read in a way that is not supported."""
    found = []
    modalities = reading.get("modality_config") or {}
    plain = {"method": "forward", "method_output_name": "last_hidden_state"}
    if "message" in modalities:
        found.append("modality_config with messages, which puts texts into a chat template")
    elif "text" in modalities and modalities["text"] != plain:
        found.append(f"modality_config.text {brief(modalities['text'])}")
    if reading.get("module_output_name", "token_embeddings") != "token_embeddings":
        found.append(f"module_output_name {brief(reading['module_output_name'])}")
    found += [
        f"processing_kwargs {name}={brief(value)}"
        for name, value in _processing(reading).items()
        if name not in ("max_length", "padding", "return_tensors", "pad_to_multiple_of")
        and not (name == "truncation" and value in (True, "longest_first", "only_first"))
    ]
    if found:
        raise ValueError(
            f"{folder / SETTINGS[0]} has {found[0]}, which is not supported; pooling='none' (--pooling none) gives the "
            "hidden states of the tokens"
        )


def _processing(reading: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments with which the library calls the tokenizer."""
    given = reading.get("processing_kwargs") or {}
    return {**(given.get("text") or {}), **(given.get("common") or {})}


def _longest(folder: Path, reading: Mapping[str, Any]) -> int | None:
    """The most tokens of a text: by an argument of the call, else `max_seq_length`, else the tokenizer's
    `model_max_length`, where version 6 of the library writes it. None if there is no limit."""
    arguments: Mapping[str, Any] = next((reading[key] for key in _ARGUMENTS if reading.get(key)), {})
    lengths = (
        _processing(reading).get("max_length"),
        arguments.get("model_max_length"),
        reading.get("max_seq_length"),
        _object(folder / TOKENIZER_CONFIG, {}).get("model_max_length"),
    )
    longest = next((length for length in lengths if length is not None), None)
    if longest is not None and (type(longest) not in (int, float) or not longest >= 1):
        raise ValueError(f"{folder}: the longest text must have 1 token or more, not {brief(longest)}")
    return None if longest is None or longest >= NO_LIMIT else int(longest)


def _keep_reading(folder: Path, target: Path) -> None:
    """Write how texts are read where another tokenizer_config.json stands, or none: in `sentence_bert_config.json`."""
    reading = _reading(folder)
    if (longest := _longest(folder, reading)) is not None and _longest(target, _reading(target)) != longest:
        write_json(target / SETTINGS[0], {**reading, "max_seq_length": longest})


def pooling_of(head: SentenceVector) -> Pooling:
    """The pooling of a head, by the name that embeddings use."""
    return "cls" if head.pool == "first" else head.pool


def _entries(folder: Path) -> list[tuple[str, str]]:
    """The type and the subfolder of each module."""
    modules = read_json(folder / MODULES)
    entry = ObjectKind({"type": StringKind(), "path": StringKind()}, 64)
    List(entry, 64, 1).check(modules, str(folder / MODULES))
    entries = []
    for i, module in enumerate(modules):
        entry.check(module, f"{folder / MODULES}: {i}")
        path = module.get("path") or ""
        if Path(path).is_absolute() or "\\" in path or len(Path(path).parts) > 1 or ".." in path:
            raise ValueError(f"{folder / MODULES} names the folder {brief(path)}; a module's folder lies beside it")
        entries.append((str(module.get("type")).rpartition(".")[2], path))
    return entries


def _poolings(path: Path) -> tuple[tuple[Pooling, ...], bool]:
    """The poolings, and whether they include the tokens of the prompt."""
    if not path.is_file():
        raise ValueError(f"{path} is missing, which says how tokens are pooled")
    config = _object(path, {"include_prompt": Flag()})
    chosen = config.get("pooling_mode")
    if chosen is None:
        set_flags = {
            name.removeprefix("pooling_mode_"): on for name, on in config.items() if name.startswith("pooling_mode_")
        }
        unknown = [name for name, on in set_flags.items() if on and name not in LEGACY_NAMES]
        chosen = unknown or [name for legacy, name in LEGACY_NAMES.items() if set_flags.get(legacy)] or ["mean"]
    names = [chosen] if isinstance(chosen, str) else chosen
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        raise ValueError(f"{path}: pooling_mode must be a name or a list of names, not {brief(chosen)}")
    for name in names:
        if name not in POOLINGS:
            raise ValueError(
                f"{path} pools by {brief(name)}, which is not supported; choose from {', '.join(POOLINGS)}"
            )
    return tuple(POOLINGS[name] for name in names), config.get("include_prompt") is not False


def _prompts(path: Path) -> tuple[dict[str, str], str | None]:
    """The prompts by name, and the name of the default."""
    config = _object(path, {"prompts": ObjectKind(most=4096), "default_prompt_name": StringKind()})
    name, prompts = config.get("default_prompt_name"), config.get("prompts") or {}
    texts = {key: text for key, text in prompts.items() if isinstance(text, str)}
    if name is not None and name not in texts:
        raise ValueError(f"{path}: default_prompt_name is {brief(name)}, and prompts has no such text")
    return texts, name


# -- the modules after pooling -------------------------------------------------------------------------------------------


def _layer(folder: Path, kind: str, path: str, allow_pickle: bool) -> Callable[[Tensor], Tensor]:
    """The layer of a module after pooling. Raises ValueError if it is not supported."""
    if kind == "Normalize":
        config = _object(folder / path / CONFIG, {}) if path else {}
        _check_names(folder / path / CONFIG, config)
        return lambda x: F.normalize(x, dim=-1)
    if kind not in ("Dense", "LayerNorm") or not path:
        raise ValueError(f"{folder / MODULES} lists the module {brief(kind)}, which is not supported; {_SUPPORTED}")
    config = _object(
        folder / path / CONFIG,
        {
            **{key: Whole(1, 1 << 20) for key in ("in_features", "out_features", "dimension")},
            **{key: Flag() for key in ("bias", "use_residual")},
            **{key: StringKind() for key in ("activation_function", "module_input_name", "module_output_name")},
        },
    )
    try:
        module = _dense(config) if kind == "Dense" else _layer_norm(config)
    except ValueError as error:
        raise ValueError(f"{folder / path / CONFIG}: {error}") from None
    _check_names(folder / path / CONFIG, config)
    _load(module, folder / path, allow_pickle)
    return module.eval().requires_grad_(False)


def _check_names(path: Path, config: Mapping[str, Any]) -> None:
    """Raise ValueError if a module reads or writes anything but the text's vector."""
    for key in ("module_input_name", "module_output_name"):
        if config.get(key, "sentence_embedding") not in ("sentence_embedding", None):
            raise ValueError(f"{path}: {key} is {brief(config[key])}, and only sentence_embedding is supported")


def _size(config: Mapping[str, Any], key: str) -> int:
    if config.get(key) is None:
        raise ValueError(f"{key} is missing")
    return cast("int", config[key])


def _dense(config: Mapping[str, Any]) -> Dense:
    path = config.get("activation_function") or "torch.nn.modules.activation.Tanh"
    name = path.rpartition(".")[2]
    if not path.startswith("torch.nn.") or name not in ACTIVATIONS:
        raise ValueError(
            f"the activation_function {brief(path)} is not supported; choose from {', '.join(ACTIVATIONS)} of torch.nn"
        )
    bias, residual = config.get("bias") is not False, bool(config.get("use_residual"))
    return Dense(_size(config, "in_features"), _size(config, "out_features"), bias, residual, ACTIVATIONS[name])


class Dense(nn.Module):
    """f(W x + b), plus x or, if the widths differ, R x with a residual connection."""

    def __init__(
        self, d_in: int, d_out: int, bias: bool, residual: bool, activation: Callable[[Tensor], Tensor]
    ) -> None:
        super().__init__()
        self.linear, self.activation, self.residual = nn.Linear(d_in, d_out, bias=bias), activation, None
        if residual:
            self.residual = nn.Identity() if d_in == d_out else nn.Linear(d_in, d_out, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        out = self.activation(self.linear(x))
        return out if self.residual is None else out + self.residual(x)


def _layer_norm(config: Mapping[str, Any]) -> nn.Module:
    return _Norm(_size(config, "dimension"))


class _Norm(nn.Module):
    """Layer normalization of embeddings."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        return cast("Tensor", self.norm(x))


def _load(module: nn.Module, folder: Path, allow_pickle: bool) -> None:
    """Load the weights of a module in fp32. Raises ValueError if names or shapes do not match."""
    weights, state = open_weights(folder, allow_pickle), module.state_dict()
    expected = {name: tuple(tensor.shape) for name, tensor in state.items()}
    if {name: tuple(shape) for name, shape in weights.shapes.items()} != expected:
        raise ValueError(f"{folder} has tensors {brief(dict(weights.shapes))}, and its configuration needs {expected}")
    module.load_state_dict({name: weights.read(name).float() for name in expected})


def _object(path: Path, inside: Mapping[str, ValueKind]) -> Mapping[str, Any]:
    """A JSON object; an empty one if there is no file."""
    content = read_json(path) if path.is_file() else {}
    ObjectKind({key: Maybe(kind) for key, kind in inside.items()}, 4096).check(content, str(path))
    return cast("Mapping[str, Any]", content)
