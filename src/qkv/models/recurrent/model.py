"""Recurrent encoder–decoders, what attention was invented for: one fixed vector, Bahdanau's attention, Luong's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, Self

import torch
from jaxtyping import Float, Int
from pydantic import Field, model_validator
from torch import Tensor

from ...core.layout import Layout
from ...core.spec import Cost
from ...kv_cache.cache import Cache
from ...kv_cache.full import LayerState
from ...kv_cache.kinds import CacheKind, named
from ...kv_cache.recurrent import RecurrentState
from ...kv_cache.slot_table import SlotTables
from ...layers.dropout import dropout
from ...layers.embedding import Embedding
from ...layers.losses import LossSums
from ...layers.rnn import Cell, Recurrence, Rows, rnn_flops, rnn_parameters
from ..base import ModelModule, ModelSpec
from ..heads.text import LanguageModel
from ..initialization import Glorot, Initialization
from . import initialization as recurrent_initial  # noqa: F401  # so that its scheme is known wherever there are such models
from .attention import Bahdanau
from .decoder import Context, Decoder, Widths
from .encoder import Memory, RecurrentEncoder

Depth = Field(default=1, gt=0, le=512)


class Recurrent(ModelSpec, kind="recurrent"):
    """A recurrent encoder–decoder as a value; letters as in the papers.

    d_e:  width of embeddings, the papers' E (or m).
    d_h:  width of the encoder's states in each direction. d_s: of the decoder's.
    cell: rnn, gru or lstm; `decoder_cell` where the decoder's is another.
    directions: 2 reads the source both ways, and h_j is 2 · d_h wide. `reverse` reads it from its end alone.
    context: how the decoder gets at the source: `final-state`, `fixed-context`, `bahdanau`, `luong`.
    dropout: of embeddings, between layers, and of what the head reads.
    tie_embeddings: source and target share one table; the head's `tied` shares it with the output.
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
    dropout: float = Field(default=0.0, ge=0, lt=1)
    tie_embeddings: bool = False
    head: LanguageModel = LanguageModel(tied=False, bias=True)
    initialization: Initialization = Glorot()

    @model_validator(mode="after")
    def _consistent(self) -> Recurrent:
        if self.reverse and self.directions == 2:
            raise ValueError("reverse is for one direction; with directions=2 the source is read both ways already")
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
    def widths(self) -> Widths:
        cell = self.decoder_cell or self.cell
        fits = self.directions == 1 and (self.cell, self.d_h, self.encoder_layers) == (
            cell,
            self.d_s,
            self.decoder_layers,
        )
        d_m = self.directions * self.d_h
        return Widths(cell, self.d_e, self.d_s, d_m, self.d_h, self.decoder_layers, self.dropout, fits)

    @property
    def is_encoder_decoder(self) -> bool:
        return True

    @property
    def max_positions(self) -> None:
        """Nothing bounds a recurrence."""
        return None

    @property
    def n_layers(self) -> int:
        return max(self.encoder_layers, self.decoder_layers)

    @property
    def d_o(self) -> int:
        """The width of what the head reads."""
        return self.context.width(self.widths)

    @property
    def d_model(self) -> int:
        """The width that its products of matrices are of, by which a precision is chosen."""
        return min(self.d_h, self.d_s)

    @property
    def embedding(self) -> Embedding:
        return Embedding(dropout=self.dropout)

    def module(self) -> RecurrentModel:
        return RecurrentModel(self)

    def parts(self, tokens: int = 0, source: int = 0) -> dict[str, Cost]:
        """Of one sentence, by part; they sum to `cost`."""
        about = (self.cell, self.d_e, self.d_h, self.encoder_layers, self.directions)
        tables = self.d_e * (self.vocab_size + (self.source_vocab_size or self.vocab_size) * (not self.tie_embeddings))
        return {
            "encoder": Cost(rnn_parameters(*about), rnn_flops(*about) * source),
            **self.context.cost(self.widths, tokens, source),
            "embedding tables": Cost(tables),
            "head": self.head.cost(self.d_o, self.vocab_size, tokens),
        }

    def cost(self, tokens: int = 0, source: int = 0) -> Cost:
        return sum(self.parts(tokens, source).values(), Cost())


class RecurrentModel(ModelModule):
    """The module of `Recurrent`; `qkv.build(spec)` makes and initializes one. It is used as a Transformer is."""

    def __init__(self, spec: Recurrent) -> None:
        super().__init__(spec)
        w = spec.widths
        self.source_embedding = spec.embedding.module(spec.source_vocab_size or spec.vocab_size, spec.d_e)
        self.embedding = spec.embedding.module(spec.vocab_size, spec.d_e)
        about = (spec.cell, spec.d_e, spec.d_h, spec.encoder_layers, spec.directions, spec.dropout, spec.reverse)
        self.encoder = RecurrentEncoder(*about)
        self.decoder: Decoder = spec.context.module(w)
        self.head = spec.head.module(spec.d_o, spec.vocab_size)
        self.tie()
        self.register_load_state_dict_post_hook(_tie_again)

    def tie(self) -> None:
        """Make shared tables one parameter, and the fused kernels' weights one block of memory; again after anything that
        replaces parameters."""
        if self.spec.tie_embeddings:
            self.embedding.weight = self.source_embedding.weight  # the first one, whose name files have
        if self.spec.head.tied:
            self.head.weight = self.embedding.weight
        for module in self.modules():
            if isinstance(module, Recurrence):
                module.rnn.flatten_parameters()

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        super()._apply(fn, recurse)
        self.tie()
        return self

    # -- forward ------------------------------------------------------------------------------------------------

    def read(self, ids: Int[Tensor, "B S"], layout: Layout | None = None, mask: Tensor | None = None) -> Memory:
        """What the decoder gets of a source. Raises ValueError for a source without a token."""
        layout = _layout(ids, layout, mask)
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
        """What the head reads at every token of the target."""
        if target is None:
            raise ValueError("an encoder–decoder takes the source ids and the target (decoder input) ids")
        memory = self.read(ids, layout, attention_mask)
        rows = Rows.of(_layout(target, target_layout, target_mask), len(target))
        return self._decode(target, rows, memory, self.decoder.begin(memory), finals=False)[0]

    def _decode(self, ids: Tensor, rows: Rows | None, memory: Memory, held: dict[str, Tensor], finals: bool) -> Any:
        x = self.embedding(ids if rows is None else rows.gather(ids), None)
        out, held = self.decoder(x, rows, memory, held, finals)
        out = out if rows is None else rows.spread(out)
        return dropout(out, self.spec.dropout, self.training), held

    def forward(
        self,
        ids: Int[Tensor, "B S"],
        target: Int[Tensor, "B T"] | None = None,
        *,
        layout: Layout | None = None,
        target_layout: Layout | None = None,
        attention_mask: Tensor | None = None,
        target_mask: Tensor | None = None,
        labels: Int[Tensor, "B T"] | None = None,
        label_smoothing: float = 0.0,
        z_loss: float = 0.0,
    ) -> Float[Tensor, "B T V"] | LossSums:
        """Logits (B, T, V); with `labels`, aligned with the output and −100 where none counts, the loss sums instead."""
        hidden = self.hidden(
            ids,
            target,
            layout=layout,
            target_layout=target_layout,
            attention_mask=attention_mask,
            target_mask=target_mask,
        )
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
        """What is remembered before the first token, to `step` with; the source is read here, once.

        It is as large after many tokens as after one, so there is no `capacity` to give and no other kind of `cache`: one
        raises ValueError.
        """
        if source is None:
            raise ValueError("an encoder–decoder starts from source ids; a decoder alone from a batch size")
        how = named(cache)
        if how.kind != "full":
            raise ValueError(f"a recurrent model has states and no keys to keep, so there is no {how.kind} cache of it")
        memory = self.read(source, source_layout)
        state = RecurrentState()
        state.values = self.decoder.begin(memory)

        def layer(slot_tables: SlotTables, capacity: int | None) -> LayerState:
            return state

        about = {"model": self.spec.to_dict(), "dtype": str(self.dtype).removeprefix("torch.")}
        started = Cache(len(source), [layer], memory.keys is not None, about=about, device=self.device)
        if memory.keys is not None and memory.folded is not None:
            values = torch.cat([memory.states, memory.folded], -1)[:, :, None]
            started.cross[0].fill(memory.keys, values, memory.layout)
        return started

    def step(
        self, ids: Int[Tensor, "B T"], cache: Cache, layout: Layout | None = None, all_positions: bool = False
    ) -> Tensor:
        """Feed the next T tokens of every row: logits of the last column (B, V), or of all (B, T, V)."""
        if len(ids) != cache.batch_size:
            raise ValueError(f"the cache holds {cache.batch_size} rows, and {len(ids)} were fed to it")
        (state,) = cache.layers
        assert isinstance(state, RecurrentState)
        rows = Rows.of(cache.admit(layout, ids.shape[1], ids.device), len(ids))
        hidden, state.values = self._decode(ids, rows, self._remembered(cache), state.values, finals=True)
        return self.head(hidden) if all_positions else self.head(hidden[:, -1:]).squeeze(1)

    def _remembered(self, cache: Cache) -> Memory:
        if not cache.cross:
            return Memory(self.embedding.weight.new_empty(0), Layout.full(0))
        keys, values = cache.cross[0].keys_values
        states, folded = values[:, :, 0].split([self.spec.widths.d_m, values.shape[-1] - self.spec.widths.d_m], -1)
        return Memory(states, cache.cross[0].layout, keys=keys, folded=folded)


def _layout(ids: Tensor, layout: Layout | None, mask: Tensor | None) -> Layout:
    if ids.ndim != 2:
        raise ValueError(f"ids are (batch, length), not {tuple(ids.shape)}")
    if layout is not None and mask is not None:
        raise ValueError("give a layout or an attention mask, not both: a layout says what a mask does, and more")
    if mask is not None:
        return Layout.from_mask(mask)
    return Layout.full(ids.shape[1], device=ids.device) if layout is None else layout


def _tie_again(model: RecurrentModel, keys: object) -> None:
    """After `load_state_dict`, which may have assigned new parameters."""
    model.tie()
