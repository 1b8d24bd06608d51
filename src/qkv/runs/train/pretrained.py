"""Load the pretrained model for fine-tuning, with its tokenizer: a run directory, a Hub directory, or a name on the Hub."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from tokenizers import AddedToken
from torch import nn

from ...core import atomic
from ...core.spec import counted
from ...data.tokenizers import tokenizer_json
from ...data.tokenizers.tokenizer import Tokenizer
from ...data.tokenizers.tokenizer_json import ROLES
from ...data.tokenizers.training.spec import TokenizerSpec
from ...io.directories import hub_load, weights
from ...io.directories.layout import BASE, CONFIG, WEIGHTS, read_json, write_json
from ...io.directories.locate import has_tokenizer, is_hub, locate
from ...io.directories.origin import Origin
from ...io.directories.run_config import Use
from ...io.directories.spec import origin_of, spec_of
from ...io.hub.gguf.container import is_gguf
from ...nn.models.build import AnyModel
from ...nn.models.initialization import Values
from ...nn.models.replace import Replaced, replace
from ...nn.models.transformer import TransformerModel
from ...nn.models.vocabulary import resize_outline, resize_vocabulary
from ...nn.quantization.scheme import scheme_of
from ..inference.reading.complete import check_complete
from ..inference.run import load
from ..recipes.model_choice import ModelChoice
from ..recipes.recipe import Recipe


def added_template(name: str, spec: TokenizerSpec | None) -> str | None:
    """The chat template of a recipe's tokenizer settings if the tokenizer in the directory has none, else None."""
    template = None if spec is None else spec.chat_template
    if template is None or not has_tokenizer(folder := locate(name)):
        return None
    return None if Tokenizer.load(folder).config.get("chat_template") else template


def tokenizer_of(name: str, special: Sequence[str] = (), spec: TokenizerSpec | None = None) -> Tokenizer:
    """Load the tokenizer of a directory and add the special tokens that the data need. If it has no chat template, it gets
    the recipe's template and special tokens. Raises ValueError if the directory has no tokenizer.

    For an encoder–decoder of another library, the tokenizer also gets the decoder's start token, so training on pairs
    surrounds texts with the same tokens as pretraining did.
    """
    folder = locate(name)
    if not has_tokenizer(folder):
        raise ValueError(
            f"{name} has no tokenizer, and a pretrained model needs its own; put its tokenizer.json into that directory"
        )
    tokenizer = Tokenizer.load(folder)
    template, roles = added_template(name, spec), dict[str, str]()
    if spec is not None and template is not None:
        roles = {
            role: ROLES[role][0]
            for role in ("bos", "eos")
            if f"{role}_token" in template and role not in tokenizer.roles
        }
        special = [*special, *spec.special]
    new = [marker for marker in dict.fromkeys(special) if tokenizer.raw.token_to_id(marker) is None]
    start = _decoder_start(name)
    if not new and start is None and template is None:
        return tokenizer
    raw, extra, _ = tokenizer_json.parse(tokenizer.to_json())
    if template is not None:
        raw.add_special_tokens([AddedToken(token, normalized=False) for token in roles.values()])
        config = {**extra.config, "chat_template": template}
        extra = dataclasses.replace(extra, config=config, roles={**tokenizer.roles, **roles})
    raw.add_tokens([AddedToken(marker, normalized=False) for marker in new])
    if start is not None:
        extra = dataclasses.replace(extra, start=_token(raw.id_to_token(start), start, folder))
    return Tokenizer(raw, extra)


def origin_after(recipe: Recipe, use: Use) -> Origin | None:
    """What the directory of a recipe's trained model says that still holds after the training; None if it says nothing.

    The training's own are: what the model does with a text, that its classes exclude each other, and bounds of new tokens,
    which the bounds of whole sequences would contradict.
    """
    assert recipe.model.directory is not None
    origin = origin_of(recipe.model.directory)
    if origin is None:
        return None
    own = {key: value for key, value in origin.own.items() if key != "spec"}
    config: dict[str, Any] = {**origin.config, "qkv": {**own, "task": use}}
    if recipe.task is not None and config.get("problem_type") is not None:
        numbers = recipe.task.n_labels == 1
        config["problem_type"] = "regression" if numbers else "single_label_classification"
    given = recipe.generation.model_fields_set
    bounds = {"max_length"} if "max_new_tokens" in given and origin.ids.whole[0] is not None else set()
    bounds |= {"min_length"} if "min_new_tokens" in given and origin.ids.whole[1] is not None else set()
    generation = origin.generation
    if generation is None:
        config = {key: value for key, value in config.items() if key not in bounds}
    else:
        generation = {key: value for key, value in generation.items() if key not in bounds}
    return dataclasses.replace(origin, config=config, generation=generation)


def _decoder_start(name: str) -> int | None:
    """The decoder's start token id of another library's encoder–decoder; None for any other model."""
    folder = locate(name)
    if is_gguf(folder) or not spec_of(name).is_encoder_decoder:
        return None
    origin = origin_of(name)
    if origin is None or origin.is_ours:
        return None
    said = (origin.config, origin.generation or {})
    start = next((s for c in said if (s := c.get("decoder_start_token_id")) is not None), None)
    if start is None:
        raise ValueError(f"{folder / CONFIG} lacks decoder_start_token_id, the decoder's first token; add it")
    return int(start)


def _token(token: str | None, number: int, folder: Path) -> str:
    if token is None:
        raise ValueError(
            f"{folder}: decoder_start_token_id is {number}, which is not in its vocabulary; correct it in {CONFIG}"
        )
    return token


def model_of(choice: ModelChoice, vocab_size: int, device: torch.device, seed: int = 0) -> Replaced[AnyModel]:
    """Load the pretrained model of a choice in fp32 or with quantized weights, resize its vocabulary to at least
    `vocab_size` tokens, and apply the choice's changes. The result also says which weights were kept."""
    assert choice.directory is not None
    if choice.weights and not choice.changes and vocab_size <= spec_of(choice.directory).vocab_size:
        return Replaced(load(choice.directory, device, dtype="float32", weights=choice.weights).model, ())
    model = load(choice.directory, device, dtype="float32").model
    if not isinstance(model, TransformerModel):
        if choice.changes or vocab_size > model.vocab_size:
            raise ValueError(
                f"the model in {choice.directory} is not a Transformer and can't be changed: remove model.replace and "
                "special tokens that its tokenizer lacks"
            )
        return Replaced(model, ())
    if vocab_size > model.vocab_size:
        model = resize_vocabulary(model, vocab_size)
    replaced = replace(model, choice.changes, seed=seed) if choice.changes else Replaced(model, ())
    if choice.weights:
        from ...nn.models.quantized.quantize import quantize

        quantize(replaced.model, scheme_of(choice.weights))
    return replaced


def outline_of(choice: ModelChoice, vocab_size: int, device: torch.device) -> tuple[Any, Values] | None:
    """The same model with its parameters on the meta device, and their values, which are read one at a time; None if they
    can't be (`begins_whole`)."""
    assert choice.directory is not None
    folder = locate(choice.directory)
    if choice.begins_whole:
        return None
    model: Any
    values: Values
    if is_hub(folder):
        model, values = hub_load.check(folder).outline(device, torch.float32)
    else:
        check_complete(folder)
        model, values = weights.outline(spec_of(choice.directory), folder / WEIGHTS, device, torch.float32)
    if vocab_size <= model.vocab_size:
        return model, values
    return resize_outline(model, values, vocab_size) if isinstance(model, TransformerModel) else None


def check_trainable(choice: ModelChoice, adapted: bool, ranks: int = 1) -> None:
    """Check that quantized weights, which don't train, have an adapter over them, on one rank. Raises ValueError."""
    stored = choice.stored
    if stored is None:
        return
    if not adapted:
        raise ValueError(
            f"the {stored} weights of {choice.directory} are quantized and don't train; train an adapter over them "
            "(adapter.kind=lora), or start from weights in full precision: "
            + ("leave out model.weights" if choice.weights else f"qkv convert {choice.directory} DIR --dequantize")
        )
    if ranks > 1:
        raise ValueError(
            f"an adapter over quantized weights ({stored}) is trained by one process, not by {ranks}; start one process"
        )


def note_of_untrained_tables(model: nn.Module, size: int, name: str) -> str | None:
    """What to say of frozen parameters that have a row for each of `size` tokens, if the model with this name has fewer."""
    new = size - spec_of(name).vocab_size
    named = model.named_parameters()
    tables = ",".join(n for n, p in named if p.ndim == 2 and len(p) == size and not p.requires_grad)
    if new <= 0 or not tables:
        return None
    return (
        f"Note: the adapter does not train the rows of {counted(new, 'new token')} in {tables.replace(',', ', ')}; train "
        f"these tables with adapter.train=[{tables}]."
    )


def keep_base(run: Path, name: str) -> None:
    """Record the checksums of an adapter's base model in a run directory, unless they are there already."""
    if not (run / BASE).is_file():
        write_json(run / BASE, fingerprint(name))


def check_base(run: Path, name: str) -> None:
    """Check that the base model is the one that a run started from. Raises ValueError naming the file that differs."""
    if not (run / BASE).is_file():
        return
    saved, current = read_json(run / BASE), fingerprint(name)
    for file in sorted({*saved, *current}):
        if saved.get(file) != current.get(file):
            what = "is missing" if file not in current else "is new" if file not in saved else "differs"
            raise ValueError(
                f"the model in {name} is not the one that the run in {run} started from: its {file} {what}; restore it, "
                "or start again with --overwrite"
            )


def fingerprint(name: str) -> dict[str, str]:
    """The SHA-256 checksums of a model's configuration and weights, by file name."""
    folder = locate(name)
    files = [folder / CONFIG, *folder.glob("model*.safetensors"), *folder.glob("pytorch_model*.bin")]
    return {path.name: atomic.sha256(path) for path in sorted(files)}
