"""Save a model with its tokenizer and settings as a directory: in the Hub's format, or as qkv's own model type."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, Protocol

from ...core import several
from ...core.atomic import check_replaceable, check_room, replacing_folder
from ...core.spec import brief, counted
from ...data.tokenizers.hub_export import save_for_hub
from ...data.tokenizers.tokenizer import Tokenizer
from ...generation import Generation
from ...nn.layers.lora import of_merged
from ...nn.layers.quantized import quantized as is_quantized
from ...nn.models.base import ModelSpec
from ...nn.models.build import AnyModel
from ...nn.models.dual_encoder import DualEncoder, DualEncoderModel
from ...nn.models.electra import published
from ...nn.models.heads.sequence import SentenceVector
from ...nn.models.transformer import Transformer, TransformerModel
from ...training.checkpoints.weights import model_tensors, replace_tensors
from ..hub.equivalent import equivalent_specs
from ..hub.files import open_weights
from ..hub.quantized import stored
from . import hub_save, preprocessor, sentence_transformers, sharded
from .layout import CARD, MODEL, RECIPE, TOKENIZER, WEIGHTS, note_written, read_text, replaceable, stamped, write_text
from .origin import MODEL_TYPE, Origin, keep
from .run_config import Use, for_auto_classes, start_of, usual_task, write_settings

Format = Literal["hub", "qkv"]
# fmt: off
COPIED = (
    "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "chat_template.jinja",
    "preprocessor_config.json", "processor_config.json", "video_preprocessor_config.json",
)
# fmt: on
"""Files of a Hub model that are copied unchanged."""


class HasYaml(Protocol):
    """A recipe, as far as saving asks."""

    def to_yaml(self) -> str: ...


@of_merged
def save(
    model: Any,
    path: Path | str,
    to: Format | None = None,
    *,
    tokenizer: Tokenizer | None = None,
    generation: Generation | None = None,
    task: Use | None = None,
    recipe: HasYaml | None = None,
    labels: str | Sequence[str] = (),
    longest: int | None = None,
    origin: Origin | None = None,
    source: Path | None = None,
    max_shard_size: int | str = sharded.MAX_SHARD_SIZE,
    allow_pickle: bool = False,
    with_weights: bool = True,
    overwrite: bool = False,
    card: Callable[[Path], str] | None = None,
) -> Path:
    """Write a directory that `qkv.load` reads back. Once complete, it replaces a model in `path` as a whole. An
    adapter is merged into the written weights, and stays separate in the model; `save_adapter` writes only the adapter.

    to:      "hub" writes what `transformers` loads, and raises ValueError if no Hub family matches the model; "qkv"
             writes our own model type. None means the Hub's format where a family matches, else ours, with a warning.
    labels:  names of the classes or tags that the head tells apart; if there are more or fewer of them, a warning says so
             and none are saved.
    longest: the most tokens of a text that the model reads, if it is less than its context; for the tokenizer of "hub".
    origin:  what the Hub directory said that the model was loaded from; source: that directory.
    max_shard_size: bytes, or "5GB"; larger weights in the Hub's format are split into several files.
    allow_pickle: whether weights of sentence-transformers' modules in `source` may be pickles, which become safetensors.
    with_weights: whether to write the model's weights; formats of other programs have their own (`qkv.runs.export`).
    overwrite: whether to replace a model that is in `path`. A directory that this process saved from `model` is replaced
             in any case.
    card:      with "hub", writes the text of the model card about the directory that it gets.

    Raises ValueError, before anything is written, if `path` holds a model that may not be replaced, or anything else, or is
    `source`; OSError if the disk has no room.
    """
    if to not in (None, "hub", "qkv"):
        raise ValueError(f"a directory is saved to 'hub' or 'qkv', not {brief(to)}")
    asked, size = to, sharded.parsed(max_shard_size)
    target, labels = several.path(path), several.texts(labels, "labels")
    if source is not None and source.resolve() == target.resolve():
        raise ValueError(
            f"{target} is where the model was loaded from and is not replaced by it; choose another directory"
        )
    saved, check = model, replaceable(MODEL, model, overwrite)
    check_replaceable(target, check)
    if to != "qkv":
        model = _in_hub_form(model, to, tokenizer, origin)
    auto = to == "hub" and isinstance(model.spec, Transformer) and not is_quantized(model)
    if to != "qkv" and (why := _refusal(model, origin, to)) is not None:
        if to == "hub" and not auto:
            raise ValueError(why)
        known = "which Auto classes know after `import qkv.transformers`"
        warnings.warn(f"{target} is saved under the model type {MODEL_TYPE!r}, {known}: {why}", stacklevel=3)
        to = "qkv"
    if generation is None:
        generation = Generation.from_dict({} if origin is None else dict(origin.fields))
    task, makes_vectors = task or usual_task(model.spec), isinstance(getattr(model.spec, "head", None), SentenceVector)
    if with_weights:
        check_room(target, sum(tensor.nbytes for tensor in model_tensors(model).values()))
    with replacing_folder(target, check) as folder:
        auto = auto and to == "qkv"
        template = None if to == "qkv" and not auto else _template(model.spec, task, tokenizer, origin)
        segments = template == "framed" and model.spec.token_types > 1
        _save_tokenizer(folder, tokenizer, template, _longest(model, tokenizer, longest, origin), segments)
        if origin is not None and source is not None:
            _copy(source, folder, allow_pickle)
        elif source is not None and makes_vectors:
            sentence_transformers.copy(source, folder, allow_pickle)
        written = None if recipe is None else recipe.to_yaml()
        if to == "qkv":
            tensors, quantization = stored.tensors_of(model)
            if with_weights:
                replace_tensors(folder / WEIGHTS, tensors)
            write_settings(folder, model.spec, task, generation, written, tokenizer is not None, quantization)
            if auto:
                said = _origin(model, tokenizer, task, labels, origin).config
                for_auto_classes(folder, model, generation, said)
            if origin is not None:
                keep(folder, origin)
        else:
            if written is not None:
                write_text(folder / RECIPE, written)
            preprocessor.write(folder, model.spec, getattr(recipe, "task", None))
            if makes_vectors and not (folder / sentence_transformers.MODULES).is_file():
                sentence_transformers.write(folder, model.spec.head, model.spec.d_model, model.max_positions)
            if origin is None or origin.is_ours:
                origin = _origin(model, tokenizer, task, labels, origin)
            hub_save.save(folder, model, generation.to_dict(), origin, size, with_weights)
        if card is not None and asked == "hub":
            write_text(folder / CARD, stamped(card(folder)))
        if with_weights:
            open_weights(folder)  # what was written can be read
    note_written(MODEL, saved, target)
    return target


def _in_hub_form(model: Any, to: Format | None, tokenizer: Tokenizer | None, origin: Origin | None) -> Any:
    """Return the model in the form of the Hub's files. Unless `to` is "hub", every weight stays the same, bit for bit."""
    if isinstance(model, DualEncoderModel):
        return _with_end(model, tokenizer)
    if not isinstance(model, TransformerModel):
        return model
    return hub_save.in_hub_form(published(model), origin) if to == "hub" else published(model)


def _with_end(model: DualEncoderModel, tokenizer: Tokenizer | None) -> DualEncoderModel:
    """The dual encoder with the token that ends its texts, which the Hub's configuration names."""
    end = None if tokenizer is None else tokenizer.eos_id
    if model.spec.end is not None or model.spec.fills or end is None:
        return model
    ending = copy(model)
    ending.spec = model.spec.replace(end=end)
    return ending


def _copy(source: Path, folder: Path, allow_pickle: bool) -> None:
    """Copy the files of a Hub model that say more than its configuration, its weights and its tokenizer."""
    for name in COPIED:
        if (source / name).is_file():
            write_text(folder / name, read_text(source / name))
    sentence_transformers.copy(source, folder, allow_pickle)


def _refusal(model: Any, origin: Origin | None, to: str | None) -> str | None:
    """Why no Hub family matches a model; None if one does."""
    if not isinstance(model.spec, Transformer | DualEncoder):
        return f"no Hub family has models of the kind {model.spec.kind!r}"
    try:
        hub_save.check(model, hub_save.config_of(model.spec, model.dtype, origin))
    except ValueError as error:
        if is_quantized(model):
            return str(error)
        other = equivalent_specs(model.spec)[-1] if isinstance(model.spec, Transformer) else model.spec
        if other == model.spec:
            return str(error)
        try:
            hub_save.config_of(other, model.dtype, origin)
        except ValueError as error:
            return str(error)
        if to is None:
            return "no Hub family matches this model as it is; to='hub' saves an equivalent one"
        return "the model has tensors for which qkv knows no equivalent in a Hub family"
    return None


def _origin(
    model: AnyModel, tokenizer: Tokenizer | None, task: Use, labels: Sequence[str], before: Origin | None
) -> Origin:
    """The parts of the Hub configuration of a model trained here that are not of the model itself: its task, special tokens
    and labels. `before` is what the directory said that it was trained from, and counts for the rest."""
    config = {} if before is None else dict(before.config)
    if tokenizer is not None and before is None:
        config = {f"{role}_token_id": getattr(tokenizer, f"{role}_id") for role in ("bos", "eos", "pad")}
        if model.is_encoder_decoder:
            config |= {"decoder_start_token_id": start_of(tokenizer, task), "forced_eos_token_id": None}
    elif tokenizer is not None and tokenizer.pad_id is not None and hub_save.judges(model):
        config["pad_token_id"] = tokenizer.pad_id if config.get("pad_token_id") is None else config["pad_token_id"]
    head = getattr(model.spec, "head", None)
    number = None if head is None else head.n_labels
    if labels and number not in (None, len(labels)):
        warnings.warn(
            f"{number} labels have no names: {counted(len(labels), 'name')} {'is' if len(labels) == 1 else 'are'} given",
            stacklevel=4,
        )
    if labels and number == len(labels):
        config["id2label"] = {str(i): name for i, name in enumerate(labels)}
        config["label2id"] = {name: i for i, name in enumerate(labels)}
    config["qkv"] = {**({} if before is None else before.own), "task": task}
    return Origin(config) if before is None else replace(before, config=config)


Template = Literal["own", "begin", "end", "both", "framed"]
"""Special tokens that other libraries should put around a text: those of the tokenizer's own template; the beginning, the
end, or both, in place of its own; or both, if it has no template."""


def _template(spec: ModelSpec, task: Use, tokenizer: Tokenizer | None, origin: Origin | None) -> Template:
    """The special tokens around the texts of a model trained by qkv (`LoadedModel.encode`, and `framed` for models that
    read texts whole); for other models, the tokenizer adds them."""
    if origin is not None and not origin.is_ours:
        return "own"
    if task == "read" or not spec.predicts_tokens:
        return "framed"
    if task == "translate":
        return "end" if tokenizer is None or tokenizer.frame is None else "own"
    return "begin" if task == "continue" else "both"


def _longest(model: Any, tokenizer: Tokenizer | None, longest: int | None, origin: Origin | None) -> int | None:
    """The most tokens of a text, for the tokenizer: `longest` within the context, or as the directory's tokenizer says."""
    said = None if tokenizer is None or origin is None else tokenizer.config.get("model_max_length")
    if longest is None and isinstance(said, int) and said > 0:
        return said
    return min((limit for limit in (model.max_positions, longest) if limit is not None), default=None)


def _save_tokenizer(
    folder: Path, tokenizer: Tokenizer | None, template: Template | None, longest: int | None, segments: bool
) -> None:
    """The tokenizer in our format, or, if `template` is not None, with the files that only other libraries read."""
    if tokenizer is None:
        return
    if template is None:
        tokenizer.save(folder / TOKENIZER)
        return
    written = tokenizer
    if template != "own":
        written = tokenizer.templated(template != "end", template != "begin", replace_own=template != "framed")
    save_for_hub(written, folder, longest, segments)
