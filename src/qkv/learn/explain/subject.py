"""`Subject`: a model with a text whose computation is explained, and what of it was chosen: layer, head and token."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import torch
from torch import Tensor

from ...data.tokenizers.tokenizer import Tokenizer
from ...generation import Generation
from ...generation.logits_processors import Processor
from ...look.svg import visible
from ...nn.activations.record import Activations, record
from ...nn.attention import tap
from ...nn.kernels.request import Request
from ...nn.models.build import AnyModel
from ...nn.models.transformer import TransformerModel

Where = Literal["encoder", "decoder", "cross"]
Matrix = Tensor | list[list[float]]


@dataclass(frozen=True, eq=False)
class Subject:
    """A model and the tokens that it reads.

    about:   whose numbers they are, for the explanation: "Run runs/demo, text 'the cat'."
    ids:     the tokens of the text, and `tokens` their pieces.
    target:  of an encoder–decoder, the tokens that the decoder reads, and `target_tokens` their pieces.
    text:    the text itself. reader: its tokenizer.
    layer, head, token: indices from 0; None if none was chosen.
    start, ends: the tokens that start and end an output. generation: the settings of its search, with
             `processors` besides.
    """

    name: str
    about: str
    model: AnyModel
    ids: tuple[int, ...]
    tokens: tuple[str, ...]
    target: tuple[int, ...] = ()
    target_tokens: tuple[str, ...] = ()
    text: str = ""
    reader: Tokenizer | None = None
    writer: Tokenizer | None = None
    layer: int | None = None
    head: int | None = None
    token: int | None = None
    start: int | None = None
    ends: tuple[int, ...] = ()
    generation: Generation = field(default_factory=Generation)
    processors: tuple[Processor, ...] = ()
    words: tuple[str, ...] = ()
    """The words of a vocabulary without a tokenizer, in the order of their ids."""
    consulted: set[str] = field(default_factory=set, repr=False)
    """Which of layer, head and token the computation has used."""

    def __post_init__(self) -> None:
        for name in ("tokens", "target_tokens"):
            object.__setattr__(self, name, tuple(visible(token) for token in getattr(self, name)))

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """The arguments of the model."""
        rows = (self.ids, self.target) if self.model.is_encoder_decoder else (self.ids,)
        return tuple(torch.tensor([row], device=self.model.device) for row in rows)

    def piece(self, i: int) -> str:
        """A token of the output's vocabulary as a label."""
        if self.words:
            return visible(self.words[i])
        return visible(self.writer.tokens([i])[0]) if self.writer is not None else str(i)

    @cached_property
    def requests(self) -> list[Request]:
        """Every request to `attend` of one pass over the text."""
        with torch.no_grad(), tap.record_attention() as requests:
            self.model(*self.inputs)
        return requests

    @property
    def stacks(self) -> tuple[Where, ...]:
        """The stacks of a Transformer."""
        assert isinstance(self.model, TransformerModel)
        names: tuple[Where, ...] = ("encoder", "decoder")
        return tuple(name for name in names if getattr(self.model, name) is not None)

    def tokens_of(self, where: Where) -> tuple[str, ...]:
        """The tokens that a stack reads; of cross-attention, the tokens of its queries."""
        return self.target_tokens if self.model.is_encoder_decoder and where != "encoder" else self.tokens

    def attention(self, where: Where) -> Attended:
        """Attention of the chosen layer. Raises ValueError for a layer or head that is not there, or has no weights."""
        of_stack = [request for request in self.requests if _where(request) == where]
        if not of_stack:
            raise ValueError(f"no layer of {self.name} computes attention weights in its {_PLACES[where]}")
        layer = self.choose("layer", self.layer, len(of_stack), 0)
        request = of_stack[layer]
        head = self.choose("head", self.head, request.n_heads, 0)
        queries = self.tokens_of(where)[: request.q.shape[1]]
        keys = self.tokens if where == "cross" else queries
        token = self.choose("token", self.token, len(queries), len(queries) - 1)
        return Attended(request, layer, head, token, queries, keys)

    def choose(self, what: str, chosen: int | None, count: int, default: int) -> int:
        """The chosen index, or the default. Raises ValueError for one that is not there."""
        self.consulted.add(what)
        index = default if chosen is None else chosen
        if not 0 <= index < count:
            raise ValueError(f"--{what} {index} is not there: {self.name} has {what}s 0 to {count - 1} here")
        return index

    def record(self, names: Iterable[str]) -> Activations:
        """Named activations of one pass, see `look.activations.sites`."""
        with torch.no_grad(), record(self.model, names) as activations:
            self.model(*self.inputs)
        return activations


@dataclass(frozen=True, eq=False)
class Attended:
    """One head of one layer's attention over a text, and the query that was chosen."""

    request: Request
    layer: int
    head: int
    token: int
    queries: tuple[str, ...]
    keys: tuple[str, ...]

    @property
    def q(self) -> Tensor:
        """(T, D) queries of the head."""
        return self.request.q[0, :, self.head].detach().float()

    @property
    def k(self) -> Tensor:
        """(S, D) keys of the head."""
        return self.request.k[0, :, self._kv].detach().float()

    @property
    def v(self) -> Tensor:
        """(S, E) values of the head."""
        return self.request.v[0, :, self._kv].detach().float()

    @property
    def scores(self) -> Tensor:
        """(T, S) scores before the soft-max, −∞ where a pair is masked."""
        scores = tap.scores(self.request, [self.head])[0, 0].float()
        return scores.masked_fill(scores <= torch.finfo(torch.float32).min, -torch.inf)

    @property
    def weights(self) -> Tensor:
        """(T, S) weights."""
        return tap.weights(self.request, [self.head])[0, 0].float()

    @property
    def masked(self) -> Tensor:
        """(T, S), True where the query does not see the key."""
        return torch.isneginf(self.scores)

    @property
    def _kv(self) -> int:
        return self.head * self.request.n_kv_heads // self.request.n_heads

    def place(self) -> str:
        """The layer and head in words."""
        return f"Layer {self.layer}, head {self.head}."


_PLACES = {"encoder": "encoder", "decoder": "decoder", "cross": "cross-attention"}


def _where(request: Request) -> str:
    """The stack of a layer's self-attention, "cross", or "part" for a second request of a layer (Longformer)."""
    parts = request.name.split(".")
    if parts[-1] not in ("attention", "cross"):
        return "part"
    return "cross" if parts[-1] == "cross" else parts[0]


def attended(
    q: Matrix, k: Matrix, v: Matrix, queries: tuple[str, ...], keys: tuple[str, ...], **options: Any
) -> Attended:
    """Attention of one head over matrices (T, D), (S, D) and (S, E), by `attend` with these options."""
    from ...nn.attention.attend import attend

    with torch.no_grad(), tap.record_attention() as requests:
        attend(*(torch.as_tensor(x)[None, :, None] for x in (q, k, v)), **options)
    return Attended(requests[0], 0, 0, len(queries) - 1, queries, keys)
