"""Encoders in GGUF: the stack alone, with positions from 0, and how its states are pooled into a vector.

llama.cpp runs BERT and its relatives for embeddings, so a file holds no head for masked tokens and no pooler. RoBERTa's rows
before the first position are left out, and the file is BERT's.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import torch

from ....core.spec import brief
from ....nn.models.build import build
from ....nn.models.heads.sequence import Pooling, SentenceVector
from ....nn.models.transformer import Transformer, TransformerModel
from ....nn.positions.absolute import Learned
from .keys import TENSORS, Config, Metadata, need

ENCODERS = ("bert", "nomic-bert")
"""llama.cpp's names of the architectures of encoders."""
POOLING = "pooling_type"
POOLINGS: Mapping[Pooling, int] = {"mean": 1, "first": 2, "last": 3}
NO_POOLING = 0
TYPE_COUNT = "tokenizer.ggml.token_type_count"
POSITIONS = "encoder.position.weight"


@dataclass(frozen=True)
class RowsOf:
    """A size that is the number of rows of a tensor: `RowsOf("type_vocab_size", "token_types.weight")`."""

    key: str
    tensor: str

    def write(self, config: Config) -> Metadata:
        return {}

    def read(self, metadata: Config) -> dict[str, Any]:
        shape = metadata[TENSORS].get(self.tensor)
        if shape is None:
            raise ValueError(f"it lacks the tensor {self.tensor}, which a model of its architecture has")
        return {self.key: shape[0]}


@torch.no_grad()
def bare_encoder(model: TransformerModel) -> TransformerModel:
    """Return the encoder as a GGUF file stores it, with the same hidden states. Warns if a head is left out.

    Raises ValueError for a head that is no language model's.
    """
    spec, encoder = model.spec, model.spec.encoder
    if encoder is None or spec.decoder is not None:
        return model
    offset = encoder.position.offset if isinstance(encoder.position, Learned) else 0
    changes: dict[str, Any] = {"head": None, "classification_head": None}
    if offset:
        changes["encoder.position"] = Learned()
    bare = spec.replace(changes)
    if bare == spec:
        return model
    left = [name for name in model.state_dict() if name.startswith(("head.", "classification_head."))]
    if left:
        warnings.warn(
            f"GGUF holds encoders for embeddings, so {len(left)} tensors of heads, such as {left[0]}, are left out",
            stacklevel=4,
        )
    made = cast("TransformerModel", build(bare, device="meta"))
    state = {name: tensor for name, tensor in model.state_dict().items() if name not in left}
    if offset:
        state[POSITIONS] = state[POSITIONS][offset:]
    made.load_state_dict(state, assign=True)
    return made.eval()


def pooling_metadata(pooling: str | None) -> Metadata:
    """How states become a vector, by the name of the pooling of a head or of sentence-transformers' files.

    Raises ValueError for a pooling that llama.cpp has no number for.
    """
    if pooling is None:
        return {POOLING: NO_POOLING}
    known = {"cls": POOLINGS["first"]} | {str(name): number for name, number in POOLINGS.items()}
    if pooling not in known:
        raise ValueError(f"llama.cpp pools by {', '.join(POOLINGS)}, and this model by {pooling}")
    return {POOLING: known[pooling]}


def with_pooling(spec: Transformer, metadata: Config) -> Transformer:
    """The spec of a file's encoder with the head `sentence-vector` if the file says how states are pooled."""
    need(metadata, "attention.causal")
    if metadata["attention.causal"] is not False:
        raise ValueError("attention.causal must be false for an encoder")
    number = metadata.get(POOLING, NO_POOLING)
    pool = next((name for name, known in POOLINGS.items() if known == number), None)
    if pool is None and number != NO_POOLING:
        raise ValueError(
            f"{POOLING} is {brief(number)}, which is not read here; it is {NO_POOLING} for none, or 1 to 3"
        )
    return spec if pool is None else spec.replace(head=SentenceVector(pool=pool))
