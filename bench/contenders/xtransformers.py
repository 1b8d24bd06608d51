"""x-transformers at the same sizes, with its flash attention: a decoder alone, and encoder with decoder."""

from __future__ import annotations

from torch import Tensor, nn
from x_transformers import AutoregressiveWrapper, Decoder, Encoder, TransformerWrapper

from .gpt import Shape
from .pairs import PairShape
from .plain import PlainStep


class TrainingStep(PlainStep):
    """The loss of its `AutoregressiveWrapper`, which shifts the labels itself and so has one fewer."""

    def __init__(self, shape: dict[str, int], precision: str, compiled: bool = False) -> None:
        sizes = Shape(**shape)
        layers = Decoder(
            dim=sizes.d_model,
            depth=sizes.n_layers,
            heads=sizes.n_heads,
            attn_dim_head=sizes.d_model // sizes.n_heads,
            attn_flash=True,
        )
        model = TransformerWrapper(
            num_tokens=sizes.vocab_size, max_seq_len=sizes.context, attn_layers=layers, tie_embedding=True
        )
        super().__init__(AutoregressiveWrapper(model), precision, compiled)
        self.ids = sizes.random_ids(sizes.context + 1)[:, :-1].contiguous()

    def loss(self) -> Tensor:
        return self.run(self.ids)


class Translator(nn.Module):
    """Its `XTransformer`, with the output tied to the one table of embeddings too, which that class has no setting for."""

    def __init__(self, shape: PairShape) -> None:
        super().__init__()
        layers = {
            "dim": shape.d_model,
            "depth": shape.n_layers,
            "heads": shape.n_heads,
            "attn_dim_head": shape.d_model // shape.n_heads,
            "attn_flash": True,
            "ff_mult": shape.d_ff / shape.d_model,
        }
        room = {"num_tokens": shape.vocab_size, "max_seq_len": max(shape.source, shape.target)}
        self.encoder = TransformerWrapper(**room, return_only_embed=True, attn_layers=Encoder(**layers))
        decoder = TransformerWrapper(**room, tie_embedding=True, attn_layers=Decoder(**layers, cross_attend=True))
        decoder.token_emb = self.encoder.token_emb
        self.decoder = AutoregressiveWrapper(decoder)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        return self.decoder(target, context=self.encoder(source, return_embeddings=True))


class FullRows(PlainStep):
    """A step on rows without padding."""

    def __init__(self, shape: dict[str, int], precision: str, compiled: bool = False) -> None:
        sizes = PairShape(**shape)
        super().__init__(Translator(sizes), precision, compiled)
        self.source, target = sizes.random_ids()
        self.target = target[:, :-1].contiguous()

    def loss(self) -> Tensor:
        return self.run(self.source, self.target)
