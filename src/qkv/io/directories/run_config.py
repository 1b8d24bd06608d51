"""`config.json` and `generation_config.json` of a run: the model's spec, what it does with a text, how it generates."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

from ...core.spec import SCHEMA, brief
from ...data.tokenizers.tokenizer import Tokenizer
from ...generation import Generation
from ...nn.models.base import ModelSpec
from ...nn.models.transformer import Transformer, TransformerModel
from ..hub import generation as generation_file
from ..hub.quantized.config import KEY
from .layout import CONFIG, GENERATION, RECIPE, TOKENIZER, read_json, read_text, write_json, write_text
from .origin import MODEL_TYPE

Use = Literal["translate", "answer", "continue", "read"]
"""What a model does with a text: an encoder–decoder translates it; a language model trained on pairs answers it as a prompt,
which ends as a source does; one trained on running text continues it; an encoder only reads it."""


def write_settings(
    folder: Path,
    spec: ModelSpec,
    task: Use,
    generation: Generation,
    recipe: str | None,
    words: bool = True,
    quantization: Mapping[str, Any] | None = None,
) -> None:
    """Write `generation_config.json`, `recipe.yaml` (the text `recipe`) and `config.json`; `words` tells that there is a
    tokenizer, and `quantization` how the weights are quantized."""
    write_json(folder / GENERATION, generation.to_dict())
    if recipe is not None:
        write_text(folder / RECIPE, recipe)
    config: dict[str, Any] = {"model_type": MODEL_TYPE, "task": task, "qkv": {"schema": SCHEMA, **spec.to_dict()}}
    modules = sorted({type(part).__module__ for _, part in spec.walk()} - {"__main__"})
    if outside := [name for name in modules if name.split(".")[0] != "qkv"]:
        config["imports"] = outside
    if quantization is not None:
        config[KEY] = quantization
    write_json(folder / CONFIG, config if words else {**config, "tokenizer": None})


def for_auto_classes(folder: Path, model: TransformerModel, generation: Generation, config: Mapping[str, Any]) -> None:
    """Add to a directory of qkv what transformers' Auto classes want beside the spec (`qkv.transformers`): the class, ids of
    special tokens, names of labels, and settings of generation in their form."""
    head = type(model.spec.head).__name__ if model.spec.head is not None else ""
    decodes = "Seq2SeqLM" if model.spec.is_encoder_decoder else "CausalLM" if model.spec.decoder else "MaskedLM"
    task = AUTO_CLASSES.get(head, decodes if head == "LanguageModel" else "")
    kept = {key: config[key] for key in (*generation_file.IDS, "id2label", "label2id") if config.get(key) is not None}
    named = {
        "architectures": [f"QkvFor{task}" if task else "QkvModel"],
        "dtype": str(model.dtype).removeprefix("torch."),
    }
    write_json(folder / CONFIG, {**kept, **named, **read_json(folder / CONFIG)})
    if task in ("CausalLM", "Seq2SeqLM"):
        about = {**kept, "is_encoder_decoder": model.spec.is_encoder_decoder}
        write_json(folder / GENERATION, generation_file.write(generation.to_dict(), {}, about, generation.samples))


AUTO_CLASSES = {
    "SequenceClassifier": "SequenceClassification",
    "TokenClassifier": "TokenClassification",
    "Span": "QuestionAnswering",
    "ImageClassifier": "ImageClassification",
}
"""The classes of `qkv.transformers` for heads; language models have one for each kind of model."""


def usual_task(spec: ModelSpec) -> Use:
    """What a model does with a text by default."""
    if spec.is_encoder_decoder:
        return "translate"
    return "read" if isinstance(spec, Transformer) and spec.decoder is None else "continue"


def start_of(tokenizer: Tokenizer, task: Use) -> int | None:
    """The token that a decoder starts from, by its tokenizer."""
    if tokenizer.frame is not None:
        return tokenizer.frame.start
    return tokenizer.eos_id if tokenizer.bos_id is None and task == "translate" else tokenizer.bos_id


def read_config(path: Path) -> tuple[Any, Use]:
    """The model's spec and its task, from the `config.json` of a run."""
    data = read_json(path)
    if not isinstance(data, dict) or data.get("model_type") != MODEL_TYPE or not isinstance(data.get("qkv"), dict):
        model_type = data.get("model_type") if isinstance(data, dict) else None
        raise ValueError(f"{path} is not qkv's: its model_type is {brief(model_type)}, not {MODEL_TYPE!r}")
    try:
        spec = ModelSpec.from_dict(data["qkv"])
    except ValueError as error:
        undefined = "there is no " in str(error)
        advice = advice_on_imports([*itertools.chain(*read_imports(path.parent))]) if undefined else ""
        raise ValueError(f"{path}: {error}{advice}") from None
    task = data.get("task", usual_task(spec))
    check_task(task, spec, path)
    return spec, task


def read_imports(folder: Path) -> tuple[list[str], list[str]]:
    """The modules outside qkv that a run needs: the modules that its `recipe.yaml` names, and the modules that define
    parts of its model by its `config.json`. The first may import the others."""
    recipe = None
    if (folder / RECIPE).is_file():
        from ...core import yamls  # imported here: directories of the Hub have no YAML

        recipe = yamls.load(read_text(folder / RECIPE), str(folder / RECIPE))
    config = read_json(folder / CONFIG) if (folder / CONFIG).is_file() else None
    named, defining = (
        [name for name in names if isinstance(name, str)] if isinstance(names, list) else []
        for names in (data.get("imports") if isinstance(data, dict) else None for data in (recipe, config))
    )
    files = {Path(name).stem for name in named}
    return named, [name for name in defining if name not in {*named, *files}]


def advice_on_imports(names: Sequence[str]) -> str:
    """What to do if a kind is not known because its module has not been imported."""
    if not names:
        return "; your own part has to be defined first: import its module, then call qkv.load"
    options = " ".join(f"--import {name}" for name in names)
    listed = ", ".join(names)
    return f"; it uses parts of {listed}: import that first, or give `qkv {options} …`, or qkv.load(…, imports=True)"


def check_task(task: object, spec: ModelSpec, where: Path | str) -> None:
    """Raise ValueError if a model can't have this task."""
    if task not in get_args(Use) or (task == "translate") != spec.is_encoder_decoder:
        fits = [use for use in get_args(Use) if (use == "translate") == spec.is_encoder_decoder]
        raise ValueError(f"{where}: the task {brief(task)} is not one for this model; there is {', '.join(fits)}")


def check_fit(tokenizer: Tokenizer, spec: ModelSpec, where: str) -> None:
    """Raise ValueError if the model's vocabulary is smaller than the tokenizer's."""
    if tokenizer.vocab_size > spec.vocab_size:
        raise ValueError(
            f"{where}: the tokenizer has {tokenizer.vocab_size:,} tokens and the model a vocabulary of "
            f"{spec.vocab_size:,}, so they don't belong together"
        )
    if tokenizer.sources.vocab_size > spec.source_vocabulary:
        raise ValueError(
            f"{where}: the tokenizer of sources has {tokenizer.sources.vocab_size:,} tokens and the model a vocabulary of "
            f"{spec.source_vocabulary:,} for them, so they don't belong together"
        )


def expects_tokenizer(folder: Path) -> bool:
    """Whether a run has a tokenizer: its configuration says so if it has none, but not one that transformers wrote."""
    data = read_json(folder / CONFIG) if (folder / CONFIG).is_file() else {}
    if isinstance(data, dict) and BY_TRANSFORMERS in data:
        return (folder / TOKENIZER).is_file()
    return not (isinstance(data, dict) and "tokenizer" in data and data["tokenizer"] is None)


BY_TRANSFORMERS = "transformers_version"  # a key of files that transformers writes (`qkv.transformers`)
_FOR_TRANSFORMERS = {
    BY_TRANSFORMERS, "num_return_sequences", "max_length", "min_length", generation_file.OWN, *generation_file.IDS
}  # fmt: skip


def read_generation(path: Path, is_encoder_decoder: bool) -> Generation:
    """The settings in a `generation_config.json`, ours or one for transformers; the defaults if there is no file."""
    if not path.is_file():
        return Generation()
    data = read_json(path)
    if not isinstance(data, dict):
        raise ValueError(f"{path} is not a JSON object but {brief(data)}")
    try:
        if data.keys() & _FOR_TRANSFORMERS:
            return Generation.from_dict(generation_file.read(data, {}, is_encoder_decoder)[0])
        return Generation.from_dict(data)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path}: {error}") from None
