"""Load the pretrained model for fine-tuning, with its tokenizer: a run directory, a Hub directory, or a name on the Hub."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace as changed
from pathlib import Path
from typing import Any

import torch

from tokenizers import AddedToken

from ..core import atomic
from ..directories import hub_load
from ..directories.layout import BASE, CONFIG, GENERATION, read_json, write_json
from ..directories.locate import has_tokenizer, is_hub, locate
from ..directories.origin import Origin
from ..inference.run import load
from ..models.build import AnyModel
from ..models.replace import Replaced, replace
from ..models.transformer import TransformerModel
from ..models.vocabulary import resize_vocabulary
from ..recipes.model_choice import ModelChoice
from ..tokenizers import tokenizer_json
from ..tokenizers.tokenizer import Tokenizer
from ..tokenizers.tokenizer_json import ROLES
from ..tokenizers.training.spec import TokenizerSpec


def added_template(name: str, spec: TokenizerSpec | None) -> str | None:
    """The chat template of a recipe's tokenizer, where the one in a directory has none."""
    template = None if spec is None else spec.chat_template
    if template is None or not has_tokenizer(folder := locate(name)):
        return None
    return None if Tokenizer.load(folder).config.get("chat_template") else template


def tokenizer_of(name: str, special: Sequence[str] = (), spec: TokenizerSpec | None = None) -> Tokenizer:
    """The tokenizer in a directory, with markers that the data need added, and with a recipe's chat template and its special
    tokens where it has no template. Raises ValueError where there is none.

    That of another library's encoder–decoder also knows what the decoder begins with, so that training on pairs goes on
    with the tokens around texts that the model was trained on.
    """
    folder = locate(name)
    if not has_tokenizer(folder):
        raise ValueError(
            f"{name} has no tokenizer, and a loaded model can only be trained with its own; put its tokenizer.json there"
        )
    found = Tokenizer.load(folder)
    template, roles = added_template(name, spec), dict[str, str]()
    if spec is not None and template is not None:
        roles = {
            role: ROLES[role][0] for role in ("bos", "eos") if f"{role}_token" in template and role not in found.roles
        }
        special = [*special, *spec.special]
    new = [marker for marker in dict.fromkeys(special) if found.raw.token_to_id(marker) is None]
    start = _decoder_start(folder)
    if not new and start is None and template is None:
        return found
    raw, extra = tokenizer_json.parse(found.to_json())
    if template is not None:
        raw.add_special_tokens([AddedToken(token, normalized=False) for token in roles.values()])
        config = {**extra.config, "chat_template": template}
        extra = changed(extra, config=config, roles={**found.roles, **roles})
    raw.add_tokens([AddedToken(marker, normalized=False) for marker in new])
    if start is not None:
        extra = changed(extra, start=_token(raw.id_to_token(start), start, folder))
    return Tokenizer(raw, extra)


def _decoder_start(folder: Path) -> int | None:
    """The token that the decoder of another library's encoder–decoder begins with; None for any other model."""
    if not is_hub(folder):
        return None
    config: dict[str, Any] = read_json(folder / CONFIG)
    if not hub_load.read_family(config, folder / CONFIG).is_encoder_decoder or Origin(config).is_ours:
        return None
    said = read_json(folder / GENERATION) if (folder / GENERATION).is_file() else {}
    start = next((s for c in (config, said) if (s := c.get("decoder_start_token_id")) is not None), None)
    if start is None:
        raise ValueError(
            f"{folder / CONFIG} does not say which token its decoder begins with; write it there as decoder_start_token_id"
        )
    return int(start)


def _token(token: str | None, number: int, folder: Path) -> str:
    if token is None:
        raise ValueError(f"{folder}: its decoder begins with the token {number}, which its tokenizer does not have")
    return token


def model_of(choice: ModelChoice, vocab_size: int, device: torch.device, seed: int = 0) -> Replaced[AnyModel]:
    """The model in the directory of a choice, in fp32, with room for `vocab_size` tokens and the choice's changes; and what
    became of its weights."""
    assert choice.directory is not None
    model = load(choice.directory, device, dtype="float32").model
    if not isinstance(model, TransformerModel):
        if choice.changes or vocab_size > model.vocab_size:
            raise ValueError(
                f"the model in {choice.directory} is no Transformer, and trains only as it is: leave out model.replace and "
                "markers that its tokenizer does not have"
            )
        return Replaced(model, ())
    if vocab_size > model.vocab_size:
        model = resize_vocabulary(model, vocab_size)
    return replace(model, choice.changes, seed=seed) if choice.changes else Replaced(model, ())


def keep_base(run: Path, name: str) -> None:
    """Write into a run's directory what its base is, where that is not there: an adapter means nothing on other weights."""
    if not (run / BASE).is_file():
        write_json(run / BASE, fingerprint(name))


def check_base(run: Path, name: str) -> None:
    """That the base is the one that a run began with. Raises ValueError naming the file that differs."""
    if not (run / BASE).is_file():
        return
    kept, found = read_json(run / BASE), fingerprint(name)
    for file in sorted({*kept, *found}):
        if kept.get(file) != found.get(file):
            what = "is gone" if file not in found else "is new" if file not in kept else "is another"
            raise ValueError(
                f"the model in {name} is not the one that the run in {run} began with: its {file} {what}; put the old one "
                "back, or begin anew with --overwrite"
            )


def fingerprint(name: str) -> dict[str, str]:
    """The SHA-256 of a model's configuration and weights, by file."""
    folder = locate(name)
    files = [folder / CONFIG, *folder.glob("model*.safetensors"), *folder.glob("pytorch_model*.bin")]
    return {path.name: atomic.sha256(path) for path in sorted(files)}
