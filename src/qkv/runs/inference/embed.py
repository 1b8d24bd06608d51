"""Text embeddings: a model's last hidden states, one vector per token or pooled into one per text."""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from ...core.spec import brief, nearest
from ...generation.prompts import length_groups, padded
from ...io.directories import sentence_transformers
from ...io.directories.sentence_transformers import Pooling, SentenceSettings, pooling_of
from ...nn.models.heads.sequence import SentenceVector
from ...nn.models.long_texts import reads_unpadded
from ...nn.models.recurrent.model import RecurrentModel
from ...nn.models.transformer import Transformer, TransformerModel
from . import unknown_words
from .loaded import LoadedModel, has_towers
from .output import SLOTS


def as_pooling(name: str) -> Pooling:
    """Check the name of a pooling. Raises ValueError with the nearest names."""
    if not isinstance(name, str) or name not in get_args(Pooling):
        raise ValueError(f"there is no pooling {brief(name)}; {nearest(name, get_args(Pooling))}")
    return cast("Pooling", name)


@torch.inference_mode()
def embed(
    run: LoadedModel,
    texts: Sequence[str],
    pooling: Pooling | None = None,
    normalize: bool | None = None,
    prompt: str | None = None,
) -> list[Tensor]:
    """Return a vector (M,) for each text, or with the pooling "none" (T, M), one per token. On the CPU, in fp32.

    pooling:   the "mean" of the hidden states of a text's tokens, the maximum of each component ("max"), the first token
               ("cls") or the "last"; "weighted-mean" weights the states by their positions 1 … T (Muennighoff 2022), and
               "mean-sqrt" is their sum over √T. By default that of the sentence-transformers files in the run's
               directory or of the head `sentence-vector`, else the mean.
    normalize: whether to scale vectors to length 1; by default only if the sentence-transformers files do.
    prompt:    name of the prompt in these files that is prepended to every text; by default the one that they name.

    The files of sentence-transformers may also truncate texts, with a warning, add dense layers, and keep only the first
    components of a vector (`truncate_dim`). An explicit `pooling` leaves all of this out. Encoder–decoders embed by their
    encoder, dual encoders by their tower of texts. Raises ValueError for a text without tokens.
    """
    if has_towers(run):
        return _by_tower(run, texts, pooling, normalize, prompt)
    settings = _settings(run, pooling)
    poolings = settings.poolings if pooling is None else (as_pooling(pooling),)
    text_before = _prompt(settings, prompt, run.name)
    _warn_of_special_tokens(run, texts)
    rows = [run.encode(_lowered(text_before + text, settings)) for text in texts]
    rows = _truncated(run, rows, settings.longest)
    unknown_words.warn(run, texts, rows)
    if not all(rows):
        raise ValueError(f"text {rows.index([]) + 1} has no tokens, so there is nothing to embed")
    start = 0 if settings.pool_prompt else _prompt_length(_lowered(text_before, settings), run)
    vectors: list[Tensor] = [torch.empty(0)] * len(rows)
    for group in length_groups([len(row) for row in rows], SLOTS, padded=not reads_unpadded(run.model)):
        for i, states in zip(group, _hidden(run, [rows[i] for i in group]), strict=True):
            states = states[: len(rows[i])].float().cpu()
            vectors[i] = torch.cat([_pooled(states, name, start) for name in poolings], -1)
    return [_after_pooling(vector, settings, normalize) for vector in vectors]


def embed_images(run: LoadedModel, paths: Sequence[str | Path], normalize: bool | None = None) -> list[Tensor]:
    """Return a vector (M,) for each picture file, by the tower of images of a dual encoder; of length 1 unless `normalize`
    is false. Raises ValueError for another model."""
    from .towers import towers_of

    return list(towers_of(run).images([str(path) for path in paths], normalize is not False))


def _by_tower(
    run: LoadedModel, texts: Sequence[str], pooling: Pooling | None, normalize: bool | None, prompt: str | None
) -> list[Tensor]:
    """The vectors of a dual encoder's tower of texts. Raises ValueError for options that it has no use for."""
    from .towers import towers_of

    if pooling is not None or prompt is not None:
        unused = "pooling" if pooling is not None else "prompt"
        raise ValueError(f"{run.name} embeds texts by its tower, which has its own head; leave out {unused}")
    return list(towers_of(run).texts(texts, normalize is not False))


def embed_array(run: LoadedModel, texts: Sequence[str], **options: Any) -> NDArray[np.float32]:
    """Return the vectors of all texts as one array (texts, M); `options` are the options of `embed`. With the pooling "none"
    the rows are the tokens of all texts, one text after another."""
    vectors = embed(run, texts, **options)
    joined = torch.cat if options.get("pooling") == "none" else torch.stack
    return joined(vectors).numpy() if vectors else np.empty((0, run.model.spec.d_model), np.float32)


def longest_embedded(run: LoadedModel) -> int | None:
    """The most tokens of a text that `embed` reads; None if longer texts are not cut, or the run can't embed."""
    try:
        return _settings(run, None).longest
    except ValueError:
        return None


def _settings(run: LoadedModel, pooling: Pooling | None) -> SentenceSettings:
    """How the run computes embeddings, by its files or its head. With an explicit `pooling`, no other setting counts."""
    if pooling is not None:
        return SentenceSettings()
    settings = None if run.path is None else sentence_transformers.read(run.path, run.allow_pickle)
    if settings is not None:
        lengths = [length for length in (settings.longest, run.model.max_positions) if length is not None]
        return replace(settings, longest=min(lengths, default=None))
    head = run.model.spec.head if isinstance(run.model.spec, Transformer) else None
    return SentenceSettings((pooling_of(head),)) if isinstance(head, SentenceVector) else SentenceSettings()


def _prompt(settings: SentenceSettings, name: str | None, where: str) -> str:
    """The text of a prompt, or of the default prompt. Raises ValueError for an unknown name."""
    if name is None:
        return "" if settings.prompt is None else settings.prompts[settings.prompt]
    if not isinstance(name, str) or name not in settings.prompts:
        known = nearest(name, settings.prompts) if settings.prompts else "it has no prompts; leave it out"
        raise ValueError(f"{where} has no prompt {brief(name)}; {known}")
    return settings.prompts[name]


def _prompt_length(prompt: str, run: LoadedModel) -> int:
    """The number of tokens of a prompt, with the tokens that the tokenizer puts before a text."""
    if not prompt:
        return 0
    return len(run.encode(prompt)) - len(_around(run)[1])


def _lowered(text: str, settings: SentenceSettings) -> str:
    return text.lower() if settings.lower else text


def _warn_of_special_tokens(run: LoadedModel, texts: Sequence[str]) -> None:
    """Warn of texts with the spelling of a special token, such as [MASK]: they are plain text here, and tokens elsewhere."""
    if run.tokenizer is None:
        return
    special = [re.escape(token) for token in run.tokenizer.controls if token.strip()]
    if not special:
        return
    found = [match[0] for text in texts if (match := re.search("|".join(special), text))]
    if found:
        warnings.warn(
            f"{len(found)} of {len(texts)} texts: {brief(found[0])} within a text is read as plain text here, and as "
            "a special token by sentence-transformers, whose vectors differ",
            stacklevel=4,
        )


def _around(run: LoadedModel) -> tuple[list[int], list[int]]:
    """The tokens that are put before and after every text."""
    around, with_text = run.encode(""), run.encode("a")
    before = next((i for i, token in enumerate(around) if with_text[i] != token), len(around))
    return around[:before], around[before:]


def _truncated(run: LoadedModel, rows: list[list[int]], longest: int | None) -> list[list[int]]:
    """Cut rows to `longest` tokens, at the tokenizer's `truncation_side`; the tokens that it puts around a text stay."""
    if longest is None or all(len(row) <= longest for row in rows):
        return rows
    before, after = _around(run)
    count = sum(len(row) > longest for row in rows)
    lengths = "text is" if len(rows) == 1 else "texts are"
    warnings.warn(
        f"{count} of {len(rows)} {lengths} longer than max_seq_length ({longest}) and cut there", stacklevel=4
    )
    if cuts_left(run):
        kept = max(longest - len(before), 1)
        return [row if len(row) <= longest else before + row[-kept:] for row in rows]
    return [row if len(row) <= longest else row[: max(longest - len(after), 0)] + after for row in rows]


def cuts_left(run: LoadedModel) -> bool:
    """Whether the beginning of a long text is cut, not its end."""
    return run.tokenizer is not None and run.tokenizer.config.get("truncation_side") == "left"


def _hidden(run: LoadedModel, rows: Sequence[Sequence[int]]) -> Tensor:
    """The last hidden states (B, T, M), padded on the right."""
    model = run.model
    ids, layout = padded(rows, model.device)
    if isinstance(model, RecurrentModel):
        return model.read(ids, layout).states
    if isinstance(model, TransformerModel) and model.decoder is not None and model.encoder is not None:
        return model.encoder(ids, layout)
    return model.hidden(ids, layout=layout)


def _pooled(states: Tensor, pooling: Pooling, start: int) -> Tensor:
    """Pool the hidden states (T, M) of a text, without the first `start` of them."""
    weights = torch.arange(1, len(states) + 1, dtype=states.dtype)[start:, None]
    states = states[start:]
    if pooling == "none":
        return states
    if pooling == "max":
        return states.amax(0)
    if pooling == "weighted-mean":
        return (states * weights).sum(0) / weights.sum()
    if pooling in ("mean", "mean-sqrt"):
        return states.sum(0) / (len(states) if pooling == "mean" else math.sqrt(len(states)))
    return states[0 if pooling == "cls" else -1]


def _after_pooling(vector: Tensor, settings: SentenceSettings, normalize: bool | None) -> Tensor:
    """Apply the modules after pooling, and normalize if requested. `normalize=False` leaves out the last normalization."""
    modules = settings.modules
    if normalize is False and modules and modules[-1].kind == "Normalize":
        modules = modules[:-1]
    for module in modules:
        vector = module.compute(vector)
    vector = vector[..., : settings.size]
    return F.normalize(vector, dim=-1) if normalize else vector
