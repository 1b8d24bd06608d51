"""The Transformer: an encoder, a decoder, or both, from one spec; forward, hidden states, and decoding step by step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Never, Self

import torch
from jaxtyping import Float, Int
from pydantic import Field, model_validator
from torch import Tensor, nn

from ...core.extras import Extras
from ...core.layout import Layout
from ...core.several import shown, worded, wrong_call
from ...core.spec import Cost
from ..kv_cache.cache import Cache
from ..kv_cache.kinds import CacheKind, named
from ..layers.embedding import Embedding, wrapped
from ..layers.losses import LossSums
from ..patterns.documents import places_of, placing
from ..positions.absolute import Learned
from .base import ModelSpec, tie_again, warn_of_copying
from .heads.base import Head, HeadModule
from .heads.language_model import LanguageModel
from .heads.sequence import SequenceClassifier, SequenceClassifierHead
from .initialization import Glorot, Initialization
from .joint import Joint, JointEmbedding, JointIds, MediaInputs
from .stack import Recompute, Stack, StackModule, about_cache


class Transformer(ModelSpec, kind="transformer"):
    """The spec of a Transformer: an encoder, a decoder, or both, with a head.

    With only a `decoder` it is a GPT, with only an `encoder` a BERT, with both the original Transformer. `vocab_size` is
    the output vocabulary, `source_vocab_size` the encoder's if it differs. `tie_embeddings` shares the table between both
    stacks; the head's `tied` shares it with the output. `max_positions` is the longest context, None for no limit. A model
    that reads only images has no vocabulary, and its `vocab_size` is 0.

    `classification_head` is a second head, beside `head`: BERT's next-sentence classifier, or with labels=None a pooler.
    """

    vocab_size: int = Field(default=0, ge=0)
    source_vocab_size: int | None = Field(default=None, gt=0)
    d_model: int = Field(gt=0)
    max_positions: int | None = Field(default=None, gt=0)
    encoder: Stack | None = None
    decoder: Stack | None = None
    tie_embeddings: bool = True
    head: Head | None = LanguageModel()
    classification_head: SequenceClassifier | None = None
    initialization: Initialization = Glorot()

    @model_validator(mode="after")
    def _consistent(self) -> Transformer:
        if self.encoder is None and self.decoder is None:
            raise ValueError("a Transformer needs an encoder, a decoder or both")
        self._check_vocabulary()
        if self.head is not None:
            self.head.check(self.output.embedding)
        for name, stack in self.stacks():
            if isinstance(stack.embedding, Joint) and name == "decoder" and self.encoder is not None:
                raise ValueError("decoder.embedding: an encoder–decoder reads media in its encoder; make that joint")
            if isinstance(stack.position, Learned) and self.max_positions is None:
                raise ValueError(f"{name}.position: learned positions need max_positions, the most tokens of an input")
            for i, block in enumerate(stack.blocks):
                block.attention.heads(self.d_model)
                crosses = name == "decoder" and self.encoder is not None
                if block.cross is not None and not crosses:
                    raise ValueError(f"{name}.blocks.{i}.cross has no encoder to attend to; leave it out")
        if self.encoder is not None and self.decoder is not None:
            if all(block.cross is None for block in self.decoder.blocks):
                raise ValueError("no decoder block attends to the encoder: give `cross` to one at least")
            if self.shares_table and self.source_vocab_size not in (None, self.vocab_size):
                raise ValueError(
                    f"tie_embeddings shares one table, but source_vocab_size is {self.source_vocab_size} and vocab_size "
                    f"{self.vocab_size}; set tie_embeddings to false or give one vocabulary"
                )
        widths = {stack.embedding.table_width(self.d_model) for _, stack in self.stacks()}
        if self.shares_table and len(widths) > 1:
            raise ValueError(
                f"tie_embeddings shares one table, but the stacks' embeddings have widths {sorted(widths)}"
            )
        width = self.output.embedding.table_width(self.d_model)
        if isinstance(self.head, LanguageModel) and self.head.tied and width != self.head.width(self.d_model):
            named = "d_model" if self.head.width(self.d_model) == self.d_model else "its transform's width"
            raise ValueError(
                f"a tied head needs embeddings as wide as {named}={self.head.width(self.d_model)}, not {width}; untie it, "
                "or give it a transform of that width"
            )
        return self

    def _check_vocabulary(self) -> None:
        reads = [name for name, stack in self.stacks() if stack.embedding.table(1, self.d_model)]
        if isinstance(self.head, LanguageModel):
            reads.append("head")
        if reads and not self.vocab_size:
            raise ValueError(f"vocab_size: input should be greater than 0, not 0, as {reads[0]} is one of tokens")
        tied = isinstance(self.head, LanguageModel) and self.head.tied
        if tied and not self.output.embedding.table(1, self.d_model):
            raise ValueError("a tied head needs a table of tokens in its stack, which reads none; untie it")

    def stacks(self) -> list[tuple[str, Stack]]:
        return [(n, s) for n, s in (("encoder", self.encoder), ("decoder", self.decoder)) if s is not None]

    @property
    def output(self) -> Stack:
        """The stack whose states the head reads."""
        stack = self.decoder or self.encoder
        assert stack is not None
        return stack

    @property
    def is_encoder_decoder(self) -> bool:
        return self.encoder is not None and self.decoder is not None

    @property
    def n_layers(self) -> int:
        return max(stack.n_layers for _, stack in self.stacks())

    def module(self) -> TransformerModel:
        return TransformerModel(self)

    @property
    def source_vocabulary(self) -> int:
        return self.source_vocab_size or self.vocab_size

    @property
    def predicts_tokens(self) -> bool:
        return self.head is None or self.head.predicts_tokens

    @property
    def labels_sequences(self) -> bool:
        return self.head is not None and self.head.labels_sequences

    @property
    def token_types(self) -> int:
        first = (self.encoder or self.output).embedding
        return first.token_types if isinstance(first, Embedding) else 0

    @property
    def shares_table(self) -> bool:
        """Whether two stacks read one table of tokens."""
        return self.tie_embeddings and all(isinstance(stack.embedding, Embedding) for _, stack in self.stacks())

    def cost(self, tokens: int = 0, source: int = 0) -> Cost:
        """Parameters, and the FLOPs of one forward pass over `tokens` (and `source` tokens for an encoder beside it)."""
        total = Cost()
        tables = 0
        for name, stack in self.stacks():
            length = source if name == "encoder" and self.decoder is not None else tokens
            vocab = self._vocabulary(name)
            memory = source if name == "decoder" and self.encoder is not None else 0
            total += stack.cost(self.d_model, self.max_positions, vocab, length, memory)
            if not (tables and self.shares_table):
                tables += stack.embedding.table(vocab, self.d_model)
        if self.head is not None:
            total += self.head.cost_for(self, tokens)
        if self.classification_head is not None:
            total += self.classification_head.cost(self.d_model)
        return total + Cost(tables)

    def _vocabulary(self, stack: str) -> int:
        apart = stack == "encoder" and self.decoder is not None and self.source_vocab_size is not None
        return self.source_vocab_size if apart and self.source_vocab_size else self.vocab_size


class TransformerModel(nn.Module):
    """The module of `Transformer`; `qkv.build(spec)` makes and initializes one. `origin` is what a directory of the Hub said
    beside the spec of a loaded model; changed copies keep it."""

    origin: Any = None
    labels_seen = False  # whether the first labels were compared with the ids

    def __init__(self, spec: Transformer) -> None:
        super().__init__()
        self.spec = spec
        # The longest context of the output stack; None if nothing bounds it, as with dynamic NTK.
        self.max_positions = spec.output.bound(spec.max_positions)
        for name in ("encoder", "decoder"):
            stack = getattr(spec, name)
            module = stack and StackModule(stack, spec._vocabulary(name), spec.d_model, spec.max_positions, name)
            self.add_module(name, module)
        self.head = None if spec.head is None else spec.head.module_for(spec)
        second = spec.classification_head
        self.classification_head = None if second is None else second.module(spec.d_model)
        self.tie()
        self.register_load_state_dict_post_hook(tie_again)

    encoder: StackModule | None
    decoder: StackModule | None
    head: HeadModule | None
    classification_head: SequenceClassifierHead | None

    def tie(self) -> None:
        """Make shared tables one parameter; again after anything that replaces parameters."""
        for stack in (self.encoder, self.decoder):
            if stack is not None:
                stack.tie()
        if self.encoder is not None and self.decoder is not None and self.spec.shares_table:
            wrapped(self.decoder.embedding).weight = self.encoder.embedding.weight
        if self.head is not None:
            self.head.tie(self._output)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Casting, moving and emptying may replace parameters; what was shared stays so."""
        super()._apply(fn, recurse)
        self.tie()
        return self

    # -- what it is ---------------------------------------------------------------------------------------------

    @property
    def _output(self) -> StackModule:
        stack = self.decoder if self.decoder is not None else self.encoder
        assert stack is not None
        return stack

    @property
    def is_encoder_decoder(self) -> bool:
        return self.spec.is_encoder_decoder

    @property
    def vocab_size(self) -> int:
        return self.spec.vocab_size

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device

    @property
    def dtype(self) -> torch.dtype:
        return next(self.parameters()).dtype

    def recompute(self, policy: Recompute) -> None:
        """Activation checkpointing: `blocks` keeps only each block's input for backward, `alternate` every other's."""
        for stack in (self.encoder, self.decoder):
            if stack is not None:
                stack.recompute = policy

    # -- forward ------------------------------------------------------------------------------------------------

    def hidden(
        self,
        ids: Int[Tensor, "B S"] | Float[Tensor, "B C H W"],
        target: Int[Tensor, "B T"] | None = None,
        *,
        layout: Layout | None = None,
        target_layout: Layout | None = None,
        attention_mask: Tensor | None = None,
        target_mask: Tensor | None = None,
        token_types: Int[Tensor, "B S"] | None = None,
        media: MediaInputs | None = None,
        extras: Extras | None = None,
    ) -> Float[Tensor, "B T M"]:
        """The last hidden states: the decoder's when there are both stacks. `extras` collects what its layers say.

        Where the first stack reads patches, `ids` are pixels, and a layout names the patches that are shown; where it reads
        frames of sound, `ids` are (B, mels, frames). Where it is joint, `media` are the pictures, sounds … in the places of
        placeholder tokens, by name (`nn.models.joint`).
        """
        ids, layout = self._laid(ids, layout, attention_mask, media)
        if self.encoder is None or self.decoder is None:
            if target is not None:
                raise ValueError("a target is for encoder–decoders; this model has one stack and takes ids alone")
            return self._output(ids, layout, token_types=token_types, extras=extras)
        if target is None:
            raise ValueError("an encoder–decoder takes the source ids and the target (decoder input) ids")
        target_layout = self._layout(target, target_layout, target_mask)
        memory = self.encoder(ids, layout, token_types=token_types, extras=extras)
        return self.decoder(target, target_layout, memory, layout, extras=extras)

    def forward(
        self,
        ids: Int[Tensor, "B S"] | Float[Tensor, "B C H W"] | None = None,
        target: Int[Tensor, "B T"] | None = None,
        *,
        layout: Layout | None = None,
        target_layout: Layout | None = None,
        attention_mask: Tensor | None = None,
        target_mask: Tensor | None = None,
        token_types: Int[Tensor, "B S"] | None = None,
        media: MediaInputs | None = None,
        labels: Int[Tensor, "B T"] | None = None,
        classes: Int[Tensor, " B"] | None = None,
        label_smoothing: float = 0.0,
        z_loss: float = 0.0,
        **others: Never,
    ) -> Float[Tensor, "B T V"] | LossSums | tuple[LossSums, LossSums]:
        """Logits (B, T, V); with `labels`, aligned with the output and −100 if none counts, the loss sums instead.

        With `classes` of the sequences too, as BERT is pre-trained, the sums of the head and of the classification head.
        """
        if ids is None or others:
            raise wrong_call(self.forward, others)
        warn_of_copying(self, ids if target is None else target, labels)
        second = self.classification_head
        if classes is not None:
            if second is None or labels is None:
                raise ValueError(
                    "classes of sequences need labels of tokens too, and a model with a classification_head"
                )
            ids, layout = self._laid(ids, layout, attention_mask, media)
            attention_mask = media = None
        extras = Extras() if self.training and labels is not None else None
        inputs: dict[str, Any] = {}
        if self.head is not None and self.head.takes_layout:
            if target is not None:
                target_layout, target_mask = self._layout(target, target_layout, target_mask), None
                inputs = {"layout": target_layout}
            else:
                pixels = {"pixels": ids} if self.head.takes_pixels else {}
                ids, layout = self._laid(ids, layout, attention_mask, media)
                attention_mask, media, inputs = None, None, {"layout": layout, **pixels}
        hidden = self.hidden(
            ids,
            target,
            layout=layout,
            target_layout=target_layout,
            attention_mask=attention_mask,
            target_mask=target_mask,
            token_types=token_types,
            media=media,
            extras=extras,
        )
        if self.head is None:
            if labels is not None:
                raise ValueError("this model has no head, so labels mean nothing to it")
            return hidden
        if labels is None:
            return self.head(hidden, **inputs)
        given = layout if target is None else target_layout
        with placing(None if given is None or not self.training else places_of(given)):
            sums = self.head.loss(hidden, labels, label_smoothing, z_loss, **inputs)
        sums = sums if extras is None else sums._replace(extras=extras.terms())
        return sums if classes is None or second is None else (sums, second.loss(hidden, classes, layout=layout))

    def pooled(self, ids: Int[Tensor, "B T"] | Float[Tensor, "B C H W"], **inputs: Any) -> Float[Tensor, "B M"]:
        """One vector for each sequence, by the classification head. `inputs` as in `hidden`.

        Raises ValueError for a model without a classification head.
        """
        head, hidden, layout = self._sequences(ids, **inputs)
        return head.pooled(hidden, layout)

    def classify(self, ids: Int[Tensor, "B T"] | Float[Tensor, "B C H W"], **inputs: Any) -> Float[Tensor, "B labels"]:
        """Scores of every class for each sequence, by the classification head. `inputs` as in `hidden`.

        Raises ValueError for a model without a classification head, or one without labels.
        """
        head, hidden, layout = self._sequences(ids, **inputs)
        if head.out is None:
            raise ValueError("this model's classification head only pools: set classification_head.labels in its spec")
        return head(hidden, layout)

    def _sequences(
        self, ids: Tensor, *, layout: Layout | None = None, attention_mask: Tensor | None = None, **inputs: Any
    ) -> tuple[SequenceClassifierHead, Tensor, Layout]:
        """The classification head, and the hidden states and the layout that it reads."""
        if self.classification_head is None:
            raise ValueError(
                "this model has no classification head; give the spec one: "
                "classification_head=SequenceClassifier(labels=None), without labels to pool alone"
            )
        ids, layout = self._laid(ids, layout, attention_mask, inputs.pop("media", None))
        return self.classification_head, self.hidden(ids, layout=layout, **inputs), layout

    def _laid(
        self, ids: Any, layout: Layout | None, mask: Tensor | None, media: MediaInputs | None = None
    ) -> tuple[Any, Layout]:
        """What the first stack reads, and its layout: patches instead of pixels, ids with media in their places."""
        first = self.encoder if self.encoder is not None else self.decoder
        assert first is not None
        if isinstance(first.embedding, JointEmbedding):
            tokens = ids.ids if isinstance(ids, JointIds) else ids
            return first.embedding.lay_media(ids, self._layout(tokens, layout, mask), media)
        if media is not None:
            raise ValueError("this model reads no media: its embedding is not joint (nn.models.joint); leave media out")
        if not getattr(first.embedding, "lays", False):
            return ids, self._layout(ids, layout, mask)
        if layout is not None and mask is not None:
            raise ValueError("give a layout or an attention mask, not both: a layout says what a mask does, and more")
        return first.embedding.lay(ids, layout, mask)

    def _layout(self, ids: Tensor, layout: Layout | None, mask: Tensor | None) -> Layout:
        if not isinstance(ids, Tensor) or ids.ndim != 2:
            shape = tuple(ids.shape) if isinstance(ids, Tensor) else type(ids).__name__
            raise ValueError(f"ids are (batch, length), not {shape}")
        if layout is not None and mask is not None:
            raise ValueError("give a layout or an attention mask, not both: a layout says what a mask does, and more")
        if mask is not None:
            layout = Layout.from_mask(mask)
            if layout.shape[1] != ids.shape[1]:
                raise ValueError(
                    f"the attention mask is for {layout.shape[1]} tokens a row, and ids have {ids.shape[1]}"
                )
        if layout is None:
            layout = Layout.full(ids.shape[1], device=ids.device)
        try:
            start = layout.start or 0
        except AttributeError:
            raise ValueError(f"the layout has to be a Layout, not {shown(layout)}") from None
        context = self.max_positions
        if context is not None and ids.shape[1] + start > context and (longest := layout.longest()) > context:
            raise ValueError(f"{longest} tokens are more than this model's context of {context}; shorten or split them")
        return layout

    # -- decoding -----------------------------------------------------------------------------------------------

    @worded
    def start(
        self,
        batch_size: int | None = None,
        *,
        source: Int[Tensor, "B S"] | None = None,
        source_layout: Layout | None = None,
        capacity: int | None = None,
        cache: CacheKind | Mapping[str, Any] | str | None = None,
        prefix: Cache | None = None,
    ) -> Cache:
        """An empty cache to `step` with. An encoder–decoder reads its source here, once.

        `capacity`: how many tokens to make room for at the start; caches grow by themselves.
        `cache`: how keys and values are kept (`kv_cache.kinds`), a kind or its JSON form, such as "int8"; full by default.
        `prefix`: a cache with one row, a common beginning: all `batch_size` rows continue from there. It stays as it
        is; rows and cache share its pages if it has pages.

        Raises ValueError if a layer can't keep what it remembers in that form.
        """
        if prefix is not None:
            return self._continuing(prefix, batch_size or 1, source is not None or cache is not None)
        if self.decoder is None:
            raise ValueError("an encoder alone does not decode: it has no causal stack to step through")
        if self.is_encoder_decoder != (source is not None):
            raise ValueError("an encoder–decoder starts from source ids; a decoder alone from a batch size")
        rows = len(source) if source is not None else (batch_size or 1)
        started = self._empty(rows, capacity, named(cache))
        if source is not None and self.encoder is not None:
            source, layout = self._laid(source, source_layout, None)
            self.decoder.remember(self.encoder(source, layout), layout, started)
        return started

    def start_from(
        self,
        memory: Float[Tensor, "B S M"],
        layout: Layout,
        *,
        cache: CacheKind | Mapping[str, Any] | str | None = None,
    ) -> Cache:
        """An empty cache of an encoder–decoder to `step` with, whose source is in the encoder's output `memory`."""
        if not self.is_encoder_decoder or self.decoder is None:
            raise ValueError("only an encoder–decoder starts from the output of an encoder; call `start`")
        started = self._empty(len(memory), None, named(cache))
        self.decoder.remember(memory, layout, started)
        return started

    def _empty(self, rows: int, capacity: int | None, how: CacheKind) -> Cache:
        assert self.decoder is not None and self.spec.decoder is not None
        self.decoder.check_cache(how, self.max_positions)
        states = [partial(block.attention.held, how) for block in self.spec.decoder.layers]
        about = partial(about_cache, self.spec.decoder, self.spec.d_model, how, self.dtype, self.is_encoder_decoder)
        return Cache(rows, states, self.is_encoder_decoder, self.max_positions, capacity, about, self.device)

    @staticmethod
    def _continuing(prefix: Cache, rows: int, more: bool) -> Cache:
        several = prefix.batch_size != 1
        if several or more:
            given = f"one of {prefix.batch_size} rows" if several else "a source or another cache beside it"
            raise ValueError(f"a prefix is a cache of one row, which rows continue from as it is, and this has {given}")
        return prefix.fork(torch.zeros(rows, dtype=torch.int64, device=prefix.device))

    def step(
        self,
        ids: Int[Tensor, "B T"],
        cache: Cache,
        layout: Layout | None = None,
        all_positions: bool = False,
        layers: int | None = None,
        media: MediaInputs | None = None,
    ) -> Tensor:
        """Feed the next T tokens of every row: logits of the last column (B, V), or of all (B, T, V).

        With `layers`, only that many run before the head; remove the tokens (`Cache.rewind`) before a step of all layers.
        Without a layout each row continues at its own next position. Prompts of unequal length are padded on the left.
        `media` are in the places of placeholder tokens, as in `hidden`.
        """
        assert self.decoder is not None
        if self.head is None or self.head.takes_layout:
            raise ValueError("this model has no head that predicts a next token; give it a language-model head")
        if len(ids) != cache.batch_size:
            raise ValueError(f"the cache holds {cache.batch_size} rows, and {len(ids)} were fed to it")
        fed: Any = ids
        if media is not None or (cache.length == 0 and isinstance(self.decoder.embedding, JointEmbedding)):
            layout = cache.continued([ids.shape[1]] * len(ids), ids.device) if layout is None else layout
            fed, layout = self._laid(ids, layout, None, media)
        layout = cache.admit(layout, ids.shape[1], ids.device)
        hidden = self.decoder(fed, layout, cache=cache, layers=layers)
        return self.head(hidden) if all_positions else self.head(hidden[:, -1:]).squeeze(1)
