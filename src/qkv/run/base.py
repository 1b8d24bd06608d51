"""The model that fine-tuning begins with: a run's directory, one of the Hub, or a name on the Hub, with its tokenizer."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from tokenizers import AddedToken

from ..data import tokenizer_file
from ..data.tokenizer import Tokenizer
from ..model.replace import replace
from ..model.transformer import Transformer, TransformerModel
from ..model.vocabulary import resize_vocabulary
from . import hub
from .directory import CONFIG
from .load import TOKENIZERS, is_hub, load, locate, read_config
from .recipe import ModelChoice


def spec_of(name: str) -> Transformer:
    """The spec of the model in a directory. Raises ValueError where it holds none."""
    folder = locate(name)
    if is_hub(folder):
        return hub.spec(folder)
    if not (folder / CONFIG).is_file():
        raise ValueError(f"there is no model in {name}: it has no {CONFIG}")
    return read_config(folder / CONFIG)[0]


def tokenizer_of(name: str, special: Sequence[str] = ()) -> Tokenizer:
    """The tokenizer in a directory, with markers that the data need added. Raises ValueError where there is none."""
    folder = locate(name)
    if not any((folder / file).is_file() for file in TOKENIZERS):
        raise ValueError(
            f"{name} has no tokenizer, and a loaded model can only be trained with its own; put its tokenizer.json there"
        )
    found = Tokenizer.load(folder)
    new = [marker for marker in special if found.raw.token_to_id(marker) is None]
    if not new:
        return found
    raw, extra = tokenizer_file.parse(found.to_json())
    raw.add_tokens([AddedToken(marker, normalized=False) for marker in new])
    return Tokenizer(raw, extra)


def model_of(choice: ModelChoice, vocab_size: int, device: torch.device) -> TransformerModel:
    """The model in the directory of a choice, in fp32, with room for `vocab_size` tokens and the choice's changes."""
    assert choice.directory is not None
    model = load(choice.directory, device, dtype="float32").model
    if vocab_size > model.vocab_size:
        model = resize_vocabulary(model, vocab_size)
    return replace(model, choice.changes).model if choice.changes else model
