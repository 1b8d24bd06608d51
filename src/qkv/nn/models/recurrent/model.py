"""Recurrent encoder–decoder models (RNN, GRU, LSTM) with a fixed context vector, Bahdanau or Luong attention."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from pydantic import Field, model_validator
from torch import Tensor

from ....core.layout import Layout
from ....core.several import wrong_call
from ....core.spec import Cost
from ...kv_cache.cache import Cache
from ...kv_cache.full import LayerState
from ...kv_cache.kinds import CacheKind, named
from ...kv_cache.recurrent import RecurrentState
from ...kv_cache.slot_table import SlotTables
from ...layers.dropout import dropout
from ...layers.embedding import Embedding
from ...layers.losses import LossSums
from ...layers.rnn import Cell, PaddedRows, Recurrence, rnn_flops, rnn_parameters
from ..base import ModelModule, ModelSpec, layout_of, warn_of_copying
from ..heads.language_model import LanguageModel
from ..initialization import Glorot, Initialization
from .attention import Bahdanau
from .decoder import Context, DecoderState, DecoderWidths, RecurrentDecoder
from .deep import BottomAttention, Connections, DeepEncoder
from .encoder import EncodedSource, RecurrentEncoder
from .initialization import Uniform  # noqa: F401  # registers the scheme

Depth = Field(default=1, gt=0, le=512)


class Recurrent(ModelSpec, kind="recurrent"):
    """Configuration of a recurrent encoder–decoder; symbols are the papers' symbols.

    d_e:        width of embeddings, E (or m) in the papers.
    d_h:        width of the encoder's states in each direction. d_s: of the decoder's.
    cell:       rnn, gru or lstm; `decoder_cell` if the decoder has another.
    directions: 2 reads the source forward and backward, and h_j is 2 · d_h wide. `reverse` reads it only backward.
    context:    how the decoder reads the source: `final-state`, `fixed-context`, `bahdanau` or `luong`.
    connections: of deep stacks, `residual` or `fast-forward`, with the context `bottom-attention`; None for plain layers.
    dropout:    of embeddings, between layers, and of the head's input.
    tie_embeddings: source and target share one embedding table; the head's `tied` shares it with the output.
    """

    vocab_size: int = Field(gt=0)
    source_vocab_size: int | None = Field(default=None, gt=0)
    d_e: int = Field(gt=0)
    d_h: int = Field(gt=0)
    d_s: int = Field(gt=0)
    cell: Cell = "gru"
    decoder_cell: Cell | None = None
    directions: Literal[1, 2] = 2
    encoder_layers: int = Depth
    decoder_layers: int = Depth
    reverse: bool = False
    context: Context = Bahdanau()
    connections: Connections | None = None
    dropout: float = Field(default=0.0, ge=0, lt=1)
    tie_embeddings: bool = False
    head: LanguageModel = LanguageModel(tied=False, bias=True)
    initialization: Initialization = Glorot()

    @model_validator(mode="after")
    def _consistent(self) -> Recurrent:
        if self.reverse and self.directions == 2:
            raise ValueError("reverse is for one direction; directions=2 reads the source backward already")
        if self.connections is not None and (self.reverse or not isinstance(self.context, BottomAttention)):
            what = "reverse" if self.reverse else f"context={self.context.kind}"
            raise ValueError(
                f"connections={self.connections.kind} do not go with {what}; leave out reverse, and give "
                "context=bottom-attention"
            )
        if self.tie_embeddings and self.source_vocab_size not in (None, self.vocab_size):
            raise ValueError(
                f"tie_embeddings shares one table, but source_vocab_size is {self.source_vocab_size} and vocab_size "
                f"{self.vocab_size}; set tie_embeddings to false or give one vocabulary"
            )
        if self.head.tied and self.head.width(self.d_o) != self.d_e:
            raise ValueError(
                f"a tied head needs embeddings as wide as what it reads, {self.d_o}, not {self.d_e}; untie it"
            )
        self.context.check(self.widths)
        return self

    @property
    def widths(self) -> DecoderWidths:
        """The sizes that the decoder depends on."""
        cell = self.decoder_cell or self.cell
        shapes = ((self.cell, self.d_h, self.encoder_layers), (cell, self.d_s, self.decoder_layers))
        fits = self.directions == 1 and shapes[0] == shapes[1]
        d_m, deep = self.directions * self.d_h, self.connections
        if deep is not None:
            d_m = deep.memory(self.cell, self.d_h, self.encoder_layers, self.directions)
        return DecoderWidths(cell, self.d_e, self.d_s, d_m, self.d_h, self.decoder_layers, self.dropout, fits, deep)

    @property
    def is_encoder_decoder(self) -> bool:
        return True

    @property
    def max_positions(self) -> None:
        """None: a recurrence has no longest context."""
        return None

    @property
    def n_layers(self) -> int:
        return max(self.encoder_layers, self.decoder_layers)

    @property
    def d_o(self) -> int:
        """Width of the head's input."""
        return self.context.width(self.widths)

    @property
    def d_model(self) -> int:
        """Width of the smaller matrix products, by which a precision is chosen."""
        return min(self.d_h, self.d_s)

    @property
    def embedding(self) -> Embedding:
        return Embedding(dropout=self.dropout)

    def module(self) -> RecurrentModel:
        return RecurrentModel(self)

    def parts(self, tokens: int = 0, source: int = 0) -> dict[str, Cost]:
        """Cost of one sentence by part; the sum is `cost`."""
        encoder = (self.cell, self.d_e, self.d_h, self.encoder_layers, self.directions)
        tables = self.d_e * (self.vocab_size + self.source_vocabulary * (not self.tie_embeddings))
        read = Cost(rnn_parameters(*encoder), rnn_flops(*encoder) * source)
        if self.connections is not None:
            read = DeepEncoder.cost(self.connections, *encoder, source)
        return {
            "encoder": read,
            **self.context.cost(self.widths, tokens, source),
            "embedding tables": Cost(tables),
            "head": self.head.cost(self.d_o, self.vocab_size, tokens),
        }

    @property
    def source_vocabulary(self) -> int:
        return self.source_vocab_size or self.vocab_size

    def cost(self, tokens: int = 0, source: int = 0) -> Cost:
        return sum(self.parts(tokens, source).values(), Cost())


class RecurrentModel(ModelModule):
    """The module of `Recurrent`, with the interface of a Transformer; `qkv.build(spec)` makes and initializes one."""

    def __init__(self, spec: Recurrent) -> None:
        super().__init__(spec)
        self.source_embedding = spec.embedding.module(spec.source_vocabulary, spec.d_e)
        self.embedding = spec.embedding.module(spec.vocab_size, spec.d_e)
        sizes = (spec.cell, spec.d_e, spec.d_h, spec.encoder_layers, spec.directions, spec.dropout)
        self.encoder: RecurrentEncoder | DeepEncoder = (
            RecurrentEncoder(*sizes, spec.reverse)
            if spec.connections is None
            else DeepEncoder(spec.connections, *sizes)
        )
        self.decoder: RecurrentDecoder = spec.context.module(spec.widths)
        self.head = spec.head.module(spec.d_o, spec.vocab_size)
        self.tie()

    def tie(self) -> None:
        """Share tied embeddings, and make the weights of each fused kernel one block of memory."""
        if self.spec.tie_embeddings:
            self.embedding.weight = self.source_embedding.weight  # files have the first name
        if self.spec.head.tied:
            self.head.weight = self.embedding.weight
        for module in self.modules():
            if isinstance(module, Recurrence):
                module.rnn.flatten_parameters()

    # -- forward ------------------------------------------------------------------------------------------------

    def read(self, ids: Int[Tensor, "B S"], layout: Layout | None = None, mask: Tensor | None = None) -> EncodedSource:
        """Encode a source for the decoder. Raises ValueError for a source without tokens."""
        layout = layout_of(ids, layout, mask)
        x = self.source_embedding(ids, None)
        return self.decoder.prepare(self.encoder(x, layout, self.decoder.wants_finals))

    def hidden(
        self,
        ids: Int[Tensor, "B S"],
        target: Int[Tensor, "B T"] | None = None,
        *,
        layout: Layout | None = None,
        target_layout: Layout | None = None,
        attention_mask: Tensor | None = None,
        target_mask: Tensor | None = None,
    ) -> Float[Tensor, "B T W"]:
        """Return the head's input at every token of the target."""
        if target is None:
            raise ValueError("an encoder–decoder takes the source ids and the target (decoder input) ids")
        memory = self.read(ids, layout, attention_mask)
        rows = PaddedRows.of(layout_of(target, target_layout, target_mask), len(target))
        return self._decode(target, rows, memory, self.decoder.begin(memory), finals=False)[0]

    def _decode(
        self, ids: Tensor, rows: PaddedRows | None, memory: EncodedSource, state: DecoderState, finals: bool
    ) -> Any:
        x = self.embedding(ids if rows is None else rows.gather(ids), None)
        out, state = self.decoder(x, rows, memory, state, finals)
        out = out if rows is None else rows.spread(out)
        return dropout(out, self.spec.dropout, self.training), state

    def forward(
        self,
        ids: Int[Tensor, "B S"] | None = None,
        target: Int[Tensor, "B T"] | None = None,
        *,
        labels: Int[Tensor, "B T"] | None = None,
        label_smoothing: float = 0.0,
        z_loss: float = 0.0,
        **layouts: Any,
    ) -> Float[Tensor, "B T V"] | LossSums:
        """Return logits (B, T, V), or with `labels` the sums of the loss; a label of −100 does not count.

        `layouts` are the layouts or masks that `hidden` takes.
        """
        if ids is None:
            raise wrong_call(self.forward, layouts)
        warn_of_copying(self, ids if target is None else target, labels)
        hidden = self.hidden(ids, target, **layouts)
        return self.head(hidden) if labels is None else self.head.loss(hidden, labels, label_smoothing, z_loss)

    # -- decoding -----------------------------------------------------------------------------------------------

    def start(
        self,
        batch_size: int | None = None,
        *,
        source: Int[Tensor, "B S"] | None = None,
        source_layout: Layout | None = None,
        capacity: int | None = None,
        cache: CacheKind | Mapping[str, Any] | str | None = None,
    ) -> Cache:
        """Encode the source and return the cache of decoder states before the first token, to `step` with.

        Its size does not grow, so `capacity` has no effect, and another kind of `cache` raises ValueError.
        """
        if source is None:
            raise ValueError("an encoder–decoder starts from source ids; give `source`")
        how = named(cache)
        if how.kind != "full":
            raise ValueError(
                f"a recurrent model has states and no keys, so it has no {how.kind} cache; leave `cache` out"
            )
        memory = self.read(source, source_layout)
        state = RecurrentState()
        state.values = self.decoder.begin(memory)

        def layer(slot_tables: SlotTables, capacity: int | None) -> LayerState:
            return state

        dtype = str(self.dtype).removeprefix("torch.")

        def about() -> dict[str, Any]:
            return {"model": self.spec.to_dict(), "dtype": dtype}

        started = Cache(len(source), [layer], memory.keys is not None, about=about, device=self.device)
        if memory.keys is not None and memory.projected is not None:
            values = torch.cat([memory.states, memory.projected], -1)[:, :, None]
            started.cross[0].fill(memory.keys, values, memory.layout)
        return started

    def step(
        self, ids: Int[Tensor, "B T"], cache: Cache, layout: Layout | None = None, all_positions: bool = False
    ) -> Tensor:
        """Feed the next T tokens of every row; return logits of the last column (B, V), or of all (B, T, V)."""
        if len(ids) != cache.batch_size:
            raise ValueError(f"the cache holds {cache.batch_size} rows, and {len(ids)} were fed to it")
        (state,) = cache.layers
        assert isinstance(state, RecurrentState)
        rows = PaddedRows.of(cache.admit(layout, ids.shape[1], ids.device), len(ids))
        hidden, state.values = self._decode(ids, rows, self._memory(cache), state.values, finals=True)
        return self.head(hidden) if all_positions else self.head(hidden[:, -1:]).squeeze(1)

    def _memory(self, cache: Cache) -> EncodedSource:
        if not cache.cross:
            return EncodedSource(self.embedding.weight.new_empty(0), Layout.full(0))
        keys, values = cache.cross[0].keys_values
        d_m = self.spec.widths.d_m
        states, projected = values[:, :, 0, :d_m], values[:, :, 0, d_m:]
        return EncodedSource(states, cache.cross[0].layout, keys=keys, projected=projected)
