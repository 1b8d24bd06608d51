"""`DualEncoder`: two towers, one for images and one for texts, whose vectors are compared (CLIP, SigLIP)."""

from __future__ import annotations

import math
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Float, Int
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn import functional as F

from ....core.layout import Layout
from ....core.spec import Cost, brief
from ...layers.embedding import Embedding
from ...layers.losses import at_least_fp32
from ...layers.patches import Patches
from ..base import ModelModule, ModelSpec, layout_of
from ..initialization import Glorot, Initialization
from ..stack import Recompute
from ..transformer import Transformer, TransformerModel


class DualEncoder(ModelSpec, kind="dual-encoder"):
    """Two towers: a Transformer that reads an image and one that reads a text, each with a head that gives one vector. With
    the vectors u and v scaled to length 1, the score of an image and a text is

        s ⟨u, v⟩ + b,    s = exp(logit_scale),

    where s and b are learned (Radford et al. 2021, CLIP; Zhai et al. 2023, SigLIP). Any stack may be a tower.

    image, text: the towers. A head `projection` maps both to one width.
    temperature: 1/s at the beginning of training.
    bias:        b at the beginning; None for no b. SigLIP begins with −10, since most pairs don't belong together.
    end:         the token whose first occurrence ends a text, for ids without a layout; "largest" for the token with the
                 largest id of a row, which is what the first checkpoints of CLIP do. None: all ids are the text.
    fills:       texts are filled with padding tokens up to `text.max_positions`, which the tower reads like other tokens
                 (SigLIP).
    """

    image: Transformer
    text: Transformer
    temperature: float = Field(default=0.07, gt=0, allow_inf_nan=False)
    bias: float | None = Field(default=None, allow_inf_nan=False)
    end: int | Literal["largest"] | None = None
    fills: bool = False
    initialization: Initialization = Glorot()

    @model_validator(mode="after")
    def _fit(self) -> DualEncoder:
        for name, tower in self.towers():
            if tower.is_encoder_decoder:
                raise ValueError(f"{name} has an encoder and a decoder, and a tower is one stack; leave one out")
            if vector_of(tower) is None:
                has = "no head" if tower.head is None else f"the head {tower.head.kind}"
                raise ValueError(
                    f"{name} has {has}, and a tower gives one vector: give it the head projection, attention-pooling or "
                    "sentence-vector"
                )
        if not isinstance(self.image.output.embedding, Patches):
            raise ValueError(f"image reads {self.image.output.embedding.kind}, and the tower of images reads patches")
        if not isinstance(self.text.output.embedding, Embedding):
            raise ValueError(f"text reads {self.text.output.embedding.kind}, and the tower of texts reads tokens")
        if vector_of(self.image) != vector_of(self.text):
            raise ValueError(
                f"the vectors of image and text are {vector_of(self.image)} and {vector_of(self.text)} wide, so they "
                "can't be compared; give the head projection of one the width of the other"
            )
        if self.fills and self.text.max_positions is None:
            raise ValueError("fills needs text.max_positions, up to which texts are filled")
        if isinstance(self.end, int) and not 0 <= self.end < self.text.vocab_size:
            raise ValueError(f"end={self.end} is no token of the vocabulary of texts, which has {self.text.vocab_size}")
        return self

    def towers(self) -> list[tuple[str, Transformer]]:
        """The towers by name."""
        return [("image", self.image), ("text", self.text)]

    @property
    def vocab_size(self) -> int:
        return self.text.vocab_size

    def with_vocabulary(self, size: int) -> DualEncoder:
        return self.replace({"text.vocab_size": size})

    @property
    def d_model(self) -> int:
        """The width of the vectors that are compared."""
        width = vector_of(self.text)
        assert width is not None
        return width

    @property
    def max_positions(self) -> int | None:
        """The longest text."""
        return self.text.max_positions

    @property
    def is_encoder_decoder(self) -> bool:
        return False

    @property
    def predicts_tokens(self) -> bool:
        return False

    @property
    def labels_sequences(self) -> bool:
        return True

    @property
    def n_layers(self) -> int:
        return max(tower.n_layers for _, tower in self.towers())

    @property
    def image_tokens(self) -> int:
        """The tokens of an image of the usual size."""
        grid = self.image.output.embedding.grid
        assert grid is not None
        return grid.tokens

    def module(self) -> DualEncoderModel:
        return DualEncoderModel(self)

    def parts(self, tokens: int = 0, source: int = 0) -> dict[str, Cost]:
        """The costs of the towers: one image of the usual size with `tokens` > 0, and a text of so many tokens."""
        return {
            "image": self.image.cost(self.image_tokens if tokens else 0),
            "text": self.text.cost(tokens),
            "similarity": Cost(1 + (self.bias is not None), 2 * self.d_model * bool(tokens)),
        }

    def cost(self, tokens: int = 0, source: int = 0) -> Cost:
        return sum(self.parts(tokens, source).values(), Cost())


def vector_of(tower: Transformer) -> int | None:
    """The width of the vectors of a tower; None if it gives none."""
    return None if tower.head is None else tower.head.vector(tower.d_model)


class Similarities(NamedTuple):
    """What a dual encoder gives: vectors of length 1 in fp32, those of the images, of the texts or of both, and the learned
    s and b of scores s ⟨u, v⟩ + b."""

    image: Float[Tensor, "N M"] | None
    text: Float[Tensor, "B M"] | None
    scale: Float[Tensor, ""]
    bias: Float[Tensor, ""] | None

    @property
    def logits_per_image(self) -> Float[Tensor, "N B"]:
        """The score of each image (row) with each text (column)."""
        assert self.image is not None and self.text is not None
        scores = self.scale * self.image @ self.text.mT
        return scores if self.bias is None else scores + self.bias


class DualEncoderModel(ModelModule):
    """The module of `DualEncoder`."""

    def __init__(self, spec: DualEncoder) -> None:
        super().__init__(spec)
        self.image, self.text = TransformerModel(spec.image), TransformerModel(spec.text)
        self.logit_scale = nn.Parameter(torch.empty(1))
        self.logit_bias = None if spec.bias is None else nn.Parameter(torch.empty(1))

    def initial(self, name: str) -> float | None:
        """The first values of s and b."""
        return {"logit_scale": -math.log(self.spec.temperature), "logit_bias": self.spec.bias}.get(name)

    def tie(self) -> None:
        for tower in (self.image, self.text):
            tower.tie()

    def recompute(self, policy: str) -> None:
        for tower in (self.image, self.text):
            tower.recompute(_as_policy(policy))

    def encode_image(self, pixels: Float[Tensor, "N C H W"]) -> Float[Tensor, "N M"]:
        """The vectors of images, of any length."""
        return self.image(pixels)

    def encode_text(
        self, ids: Int[Tensor, "B T"], layout: Layout | None = None, attention_mask: Tensor | None = None
    ) -> Float[Tensor, "B M"]:
        """The vectors of texts, of any length. Without layout, a text ends where the spec's `end` says, also within what an
        attention mask shows."""
        if layout is None and self.spec.end is not None and ids.ndim == 2:
            layout, attention_mask = self._ending(ids, layout_of(ids, None, attention_mask)), None
        return self.text(ids, layout=layout, attention_mask=attention_mask)

    def _ending(self, ids: Int[Tensor, "B T"], shown: Layout) -> Layout:
        """The layout of texts that end with the first token `end`, or for "largest" with the first token of the largest id.
        A row without the token ends with its first one, as it does for transformers."""
        real = shown.valid.expand(ids.shape)
        wanted = ids.masked_fill(~real, -1).amax(1, keepdim=True) if self.spec.end == "largest" else self.spec.end
        is_end = real & (ids == wanted)
        last = torch.where(is_end.any(1), is_end.int().argmax(1), real.int().argmax(1))
        return Layout.from_mask(real & (torch.arange(ids.shape[1], device=ids.device) <= last[:, None]))

    def forward(
        self,
        ids: Int[Tensor, "B T"] | None = None,
        pixels: Float[Tensor, "N C H W"] | None = None,
        *,
        layout: Layout | None = None,
        attention_mask: Tensor | None = None,
    ) -> Similarities:
        """The vectors of texts and images, of length 1, and what makes scores of them. Either may be left out."""
        if ids is None and pixels is None:
            raise ValueError("a dual encoder compares images and texts: give ids, pixels or both")
        image = None if pixels is None else unit(self.encode_image(pixels))
        text = None if ids is None else unit(self.encode_text(ids, layout, attention_mask))
        bias = None if self.logit_bias is None else at_least_fp32(self.logit_bias)[0]
        return Similarities(image, text, at_least_fp32(self.logit_scale)[0].exp(), bias)


def unit(vectors: Float[Tensor, "B M"]) -> Float[Tensor, "B M"]:
    """Vectors scaled to length 1, in fp32 or wider."""
    return F.normalize(at_least_fp32(vectors), dim=-1)


def _as_policy(policy: Any) -> Recompute:
    if policy not in ("none", "alternate", "blocks"):
        raise ValueError(f"recompute is none, alternate or blocks, not {brief(policy)}")
    return policy
