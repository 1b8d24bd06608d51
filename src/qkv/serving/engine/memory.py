"""The most memory that a server may take: weights, keys and values, prefix caches, bodies of requests, and a step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import psutil
import torch

from ...generation.log_likelihood import LOGITS
from ...nn.cost.fit import Decoding, prompt_bytes
from ...nn.cost.flops import BatchShape
from ...nn.cost.kv_cache import cache_bytes
from ...nn.models.base import ModelSpec
from ...nn.models.transformer import Transformer
from ...runs.inference.loaded import LoadedModel
from .decoder import CHUNK, SOURCES
from .jobs import MOST_CHARACTERS

LOGIT_COPIES = 3  # while log-probabilities are computed from them
ACTIVATIONS = 9  # of the model's width for each token of a batch: queries, keys, values, and the feedforward layer's


class ServerMemory(NamedTuple):
    """Upper bounds in bytes.

    program:  the process now, and the pages of weights that it has not read yet.
    caches:   keys and values of all tokens in flight. prefixes: of the prefix caches.
    bodies:   of all requests. step: the temporary memory of a step of the engine.
    """

    program: int
    caches: int
    prefixes: int
    bodies: int
    step: int


def server_memory(
    runs: Sequence[LoadedModel], most_tokens: int, prefix_bytes: int, bodies: int, text_tokens: int
) -> ServerMemory:
    """The most memory that a server of these runs may take, once they are loaded.

    most_tokens: in flight. prefix_bytes: of each prefix cache. bodies: bytes of all requests. text_tokens: of a text that is
    read whole.
    """
    sizes = [size for run in runs if (size := token_bytes(run.model.spec, run.model.dtype))]
    return ServerMemory(
        psutil.Process().memory_info().rss + _unread(runs),
        max(sizes, default=0) * most_tokens,
        len(sizes) * prefix_bytes,
        bodies,
        max((_step_bytes(run, text_tokens) for run in runs), default=0),
    )


def token_bytes(spec: ModelSpec, dtype: torch.dtype) -> int:
    """Bytes of the keys and values of a token; 0 for a model that doesn't generate, or is not a Transformer of qkv."""
    if not isinstance(spec, Transformer) or spec.decoder is None:
        return 0
    source = 1 if spec.is_encoder_decoder else None
    return cache_bytes(spec, 1, None, dtype, source) or 0


def _unread(runs: Sequence[LoadedModel]) -> int:
    """Bytes of the weights' files that are mapped, and of which no page was read yet."""
    process = psutil.Process()
    if not hasattr(process, "memory_maps"):
        return sum(weight.nbytes for run in runs for weight in run.model.parameters())
    return sum(one.size - one.rss for one in process.memory_maps() if one.path.endswith(".safetensors"))


def _step_bytes(run: LoadedModel, tokens: int) -> int:
    """The temporary memory of one step: reading texts or a chunk of a prompt, or scoring texts."""
    spec, context = run.model.spec, run.model.max_positions
    if not isinstance(spec, Transformer):
        return 0
    most = min(tokens, context or tokens)
    read = ACTIVATIONS * 4 * spec.d_model * max(most, MOST_CHARACTERS)
    if spec.decoder is None:
        return read
    shape = BatchShape(1, min(CHUNK, most), min(SOURCES, most) if spec.is_encoder_decoder else 0)
    scored = LOGIT_COPIES * 4 * spec.vocab_size * max(most, min(LOGITS // spec.vocab_size, MOST_CHARACTERS))
    return max(prompt_bytes(spec, shape, Decoding(torch.float32)), read, scored)
