"""x-transformers' decoder at the same sizes, with its flash attention."""

from __future__ import annotations

from torch import Tensor
from x_transformers import AutoregressiveWrapper, Decoder, TransformerWrapper

from .gpt import PlainStep, Shape


class TrainingStep(PlainStep):
    """The loss of its `AutoregressiveWrapper`, which shifts the labels itself."""

    def __init__(self, shape: dict[str, int], precision: str) -> None:
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
        super().__init__(AutoregressiveWrapper(model), precision)
        self.ids = sizes.random_ids(sizes.context + 1)[:, :-1].contiguous()

    def loss(self) -> Tensor:
        return self.model(self.ids)
