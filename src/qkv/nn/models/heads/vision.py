"""Heads for images: classes, pixels, masks of classes, and objects with their boxes."""

from __future__ import annotations

from typing import ClassVar, Literal, NamedTuple

import torch
from jaxtyping import Float, Int
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn import functional as F

from ....core.device import KeepsDtype
from ....core.layout import Grid, Layout
from ....core.spec import Cost
from ...layers.dropout import dropout_of_vectors
from ...layers.embedding import Input
from ...layers.linear import Linear
from ...layers.losses import LossSums, at_least_fp32, cross_entropy
from ...layers.norm import LayerNorm
from ...layers.patches import Patches, Size, States, image_layout, patches_of, patchify, shown_patches, unpatchify
from ..stack import Stack, StackModule
from .base import Head, HeadModule


class OfImages(Head):
    """Base class of heads that read the states of an image's tokens."""

    def check(self, seen: Input) -> None:
        if not isinstance(seen, Patches):
            raise ValueError(f"head {self.kind} reads images, so its stack needs an embedding of the kind patches")
        self.check_patches(seen)

    def check_patches(self, seen: Patches) -> None:
        """Raise ValueError if the head reads tokens that these patches lack."""


class ImageHead(HeadModule):
    """Base class of heads that need the places of tokens in the image: they are called with the layout too."""

    takes_layout = True


# -- one class for an image --------------------------------------------------------------------------------------------


class ImageClassifier(OfImages, kind="image-classifier"):
    """Scores of `labels` classes, W h + b, with h the class token's state (ViT) or the `mean` of the patches' states.

    `distilled` adds a second layer that reads the distillation token and learns a teacher's classes. The scores are the mean
    of both layers (DeiT, Touvron et al. 2021). Labels are (B,); with `distilled` they may be (B, 2), the true class and the
    teacher's. Numbers (B, labels) are shares of the classes, for example of mixed pictures.

    standardized: h is scaled to mean 0 and variance 1 over the pictures of a batch, in evaluation by running means of both.
                  This is batch norm without gains (Ioffe & Szegedy 2015). With it, one learning rate suits the states of any
                  frozen stack (He et al. 2022, appendix A.1).
    """

    labels: int = Field(default=1000, gt=0)
    pool: Literal["token", "mean"] = "token"
    distilled: bool = False
    standardized: bool = False
    dropout: float = Field(default=0.0, ge=0, lt=1)

    @property
    def class_tokens(self) -> int:
        """How many tokens before the patches it reads."""
        return 2 if self.distilled else int(self.pool == "token")

    def check_patches(self, seen: Patches) -> None:
        if seen.before < self.class_tokens:
            raise ValueError(f"the classifier reads {self.class_tokens} tokens: give patches that many `before`")

    def module(self, d_model: int, vocab_size: int) -> ImageClassifierHead:
        return ImageClassifierHead(self, d_model)

    def cost(self, d_model: int, vocab_size: int, tokens: int = 0) -> Cost:
        layers = 1 + self.distilled
        return Cost(layers * (d_model + 1) * self.labels, 2 * layers * d_model * self.labels * (tokens > 0))


class ImageClassifierHead(ImageHead):
    """The module of `ImageClassifier`."""

    def __init__(self, spec: ImageClassifier, d_model: int) -> None:
        super().__init__()
        self.pool, self.dropout = spec.pool, spec.dropout
        self.norm = Standardize(d_model) if spec.standardized else nn.Identity()
        self.out = Linear(d_model, spec.labels)
        self.teacher = Linear(d_model, spec.labels) if spec.distilled else None

    def forward(self, hidden: Float[Tensor, "B T M"], layout: Layout) -> Float[Tensor, "B labels"]:
        return self._scores(hidden, layout).mean(1)

    def loss(
        self,
        hidden: Float[Tensor, "B T M"],
        labels: Int[Tensor, " B"] | Int[Tensor, "B 2"] | Float[Tensor, "B labels"],
        label_smoothing: float = 0.0,
        z_loss: float = 0.0,
        *,
        layout: Layout,
    ) -> LossSums:
        scores = self._scores(hidden, layout)
        if labels.is_floating_point():
            return soft_cross_entropy(scores, labels, label_smoothing, z_loss)
        labels = labels[:, None].expand(-1, scores.shape[1]) if labels.ndim == 1 else labels
        return cross_entropy(scores, labels, label_smoothing, z_loss)

    def _scores(self, hidden: Tensor, layout: Layout) -> Float[Tensor, "B layers labels"]:
        x = self.norm(hidden[:, 0] if self.pool == "token" else hidden[:, patches_of(layout)].mean(1))
        scores = [self.out(dropout_of_vectors(x, self.dropout, self.training))]
        if self.teacher is not None:
            scores.append(self.teacher(dropout_of_vectors(hidden[:, 1], self.dropout, self.training)))
        return torch.stack(scores, 1)


class Standardize(KeepsDtype):
    """Batch norm without gains. It keeps running means alone, and no count of batches, which is no weight."""

    exact: ClassVar[tuple[str, ...]] = (
        "mean",
        "variance",
    )  # running means move by less than half precision tells apart

    mean: Tensor
    variance: Tensor

    def __init__(self, d: int) -> None:
        super().__init__()
        exact = at_least_fp32(torch.empty(0)).dtype
        self.register_buffer("mean", torch.zeros(d, dtype=exact))
        self.register_buffer("variance", torch.ones(d, dtype=exact))

    def forward(self, x: Float[Tensor, "B d"]) -> Float[Tensor, "B d"]:
        several = self.training and len(x) > 1  # one picture alone has no variance
        return F.batch_norm(x, self.mean, self.variance, training=several)


def soft_cross_entropy(
    scores: Float[Tensor, "B layers labels"],
    labels: Float[Tensor, "B labels"],
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
) -> LossSums:
    """−Σ q log p for each layer's scores, in fp32, where q are the shares of the classes, smoothed: (1 − ε) q + ε / labels.

    The plain value is without smoothing; ζ log² Z is added as it is in `layers.losses`.
    """
    if labels.shape != (len(scores), scores.shape[2]):
        shape = (len(scores), scores.shape[2])
        raise ValueError(f"shares of the classes are (batch, labels), here {shape}, not {tuple(labels.shape)}")
    exact = torch.promote_types(scores.dtype, torch.float32)
    log_p = scores.to(exact).log_softmax(-1)
    nll = -(labels[:, None] * log_p).sum()
    loss = (1 - label_smoothing) * nll - label_smoothing * log_p.mean(-1).sum() if label_smoothing else nll
    if z_loss:
        loss = loss + z_loss * scores.to(exact).logsumexp(-1).square().sum()
    return LossSums(loss, nll.detach(), torch.tensor(scores.shape[0] * scores.shape[1], device=scores.device))


# -- pixels ------------------------------------------------------------------------------------------------------------


class PixelDecoder(OfImages, kind="pixels"):
    """Pixels of every patch, by a light decoder that reads the encoder's outputs of the visible patches (MAE, He et al.
    2022, §3). The decoder's inputs are z = W h + b, and a learned mask token m in every hidden place. A linear layer
    turns its outputs into the pixels of a patch, (h, w, C).

    width:      of the decoder.
    decoder:    a stack over `States` of the image's grid.
    patch, channels: of the images.
    masked:     the share of patches that pre-training hides (`layers.patches.masked_layout`).
    normalized: targets are patches minus their mean, divided by their standard deviation.

    The loss is the mean squared error of the hidden patches, or of all patches if none is hidden. Labels are the pictures.
    """

    width: int = Field(default=512, gt=0)
    decoder: Stack
    patch: Size = (16, 16)
    channels: int = Field(default=3, gt=0)
    masked: float = Field(default=0.75, ge=0, lt=1)
    normalized: bool = False

    @model_validator(mode="after")
    def _has_a_grid(self) -> PixelDecoder:
        if not isinstance(self.decoder.embedding, States) or self.decoder.embedding.grid is None:
            raise ValueError(
                "the decoder of pixels reads states of an image: give its embedding the kind states and `of`"
            )
        return self

    @property
    def grid(self) -> Grid:
        grid = self.decoder.embedding.grid
        assert grid is not None
        return grid

    @property
    def pixels(self) -> int:
        return self.patch[0] * self.patch[1] * self.channels

    def check_patches(self, seen: Patches) -> None:
        ours, theirs = (self.grid, self.patch, self.channels), (seen.grid, seen.patch, seen.channels)
        if ours != theirs:
            raise ValueError(f"the decoder of pixels is for {ours}, and the images have {theirs}")

    def module(self, d_model: int, vocab_size: int) -> PixelDecoderHead:
        return PixelDecoderHead(self, d_model)

    def cost(self, d_model: int, vocab_size: int, tokens: int = 0) -> Cost:
        seen = self.grid.tokens if tokens else 0
        into, out = d_model * self.width, self.width * self.pixels
        own = Cost(into + 2 * self.width + out + self.pixels, 2 * into * tokens + 2 * out * seen)
        return own + self.decoder.cost(self.width, None, 0, seen)


class PixelDecoderHead(ImageHead):
    """The module of `PixelDecoder`."""

    def __init__(self, spec: PixelDecoder, d_model: int) -> None:
        super().__init__()
        self.spec = spec
        self.project = Linear(d_model, spec.width)
        self.mask = nn.Parameter(torch.empty(spec.width))
        self.decoder = StackModule(spec.decoder, 0, spec.width, None, "head.decoder")
        self.out = Linear(spec.width, spec.pixels)

    def forward(self, hidden: Float[Tensor, "B T M"], layout: Layout) -> Float[Tensor, "B N P"]:
        assert layout.grid is not None
        full = image_layout(layout.grid, hidden.device)
        x = self.decoder(self._restored(self.project(hidden), layout), full)
        return self.out(x[:, patches_of(full)])

    def _restored(self, x: Float[Tensor, "B S W"], layout: Layout) -> Float[Tensor, "B T W"]:
        """Tokens at their places in the image, and the mask token at the places without one."""
        assert layout.grid is not None
        if layout.shape[1] == layout.grid.tokens:
            return x
        places = layout.positions[..., 0].expand(len(x), -1)[..., None].expand_as(x)
        return self.mask.to(x.dtype).expand(len(x), layout.grid.tokens, -1).scatter(1, places, x)

    def loss(
        self,
        hidden: Float[Tensor, "B T M"],
        labels: Float[Tensor, "B C H W"],
        label_smoothing: float = 0.0,
        z_loss: float = 0.0,
        *,
        layout: Layout,
    ) -> LossSums:
        targets = self.targets(labels)
        pixels = self(hidden, layout)
        if pixels.shape != targets.shape:
            raise ValueError(
                f"labels are pictures like the inputs, of {pixels.shape[1]} patches, not {targets.shape[1]}"
            )
        error = (at_least_fp32(pixels) - at_least_fp32(targets)).square().mean(-1)
        hidden_ones = self.hidden_patches(layout).expand(len(error), -1)
        loss = (error * hidden_ones).sum()
        return LossSums(loss, loss.detach(), hidden_ones.sum())

    def targets(self, pixels: Float[Tensor, "B C H W"]) -> Float[Tensor, "B N P"]:
        """The pixels to predict for each patch."""
        targets = patchify(pixels, self.spec.patch, "last")
        if not self.spec.normalized:
            return targets
        mean, variance = targets.mean(-1, keepdim=True), targets.var(-1, keepdim=True)
        return (targets - mean) / (variance + 1e-6).sqrt()

    @staticmethod
    def hidden_patches(layout: Layout) -> Int[Tensor, "B N"]:
        """1 for patches that count in the loss: hidden ones, or all if none was hidden."""
        assert layout.grid is not None
        shown = shown_patches(layout)
        ones = torch.ones(len(shown), layout.grid.patches, dtype=torch.int64, device=shown.device)
        return ones if shown.shape[1] == layout.grid.patches else ones.scatter(1, shown, 0)


# -- a class for every pixel ---------------------------------------------------------------------------------------------


class MaskTokens(OfImages, kind="mask-tokens"):
    """A mask for every class, by one learned token each (Segmenter, Strudel et al. 2021, §3.2):

    [p, c] = decoder([W h + b, classes]);  scores = s · norm(⟨p V_p / |p V_p|, c V_c / |c V_c|⟩),
    the norm being over the classes of each patch h.

    Scores are (B, labels, rows, columns); the loss resizes them to labels of (B, H, W), bilinearly.

    finer: into how many rows and columns each patch is parted, whose scores V_p makes apart; 1 in the paper.
    scale: s. In the paper it is 1, and how sure a model can be grows with the norm's gain alone, which takes long.
    """

    labels: int = Field(default=150, gt=0)
    width: int = Field(default=768, gt=0)
    decoder: Stack
    finer: int = Field(default=1, gt=0)
    scale: float = Field(default=1.0, gt=0, allow_inf_nan=False)

    @model_validator(mode="after")
    def _reads_states(self) -> MaskTokens:
        if not isinstance(self.decoder.embedding, States):
            raise ValueError("the decoder of masks reads states: give its embedding the kind states")
        return self

    def module(self, d_model: int, vocab_size: int) -> MaskTokensHead:
        return MaskTokensHead(self, d_model)

    def cost(self, d_model: int, vocab_size: int, tokens: int = 0) -> Cost:
        seen = tokens + self.labels if tokens else 0
        into, square, parts = d_model * self.width, self.width * self.width, self.finer**2
        parameters = into + self.width + self.labels * self.width + (parts + 1) * square
        of_patches = parts * (square + self.labels * self.width) * tokens
        flops = 2 * (into * tokens + of_patches + square * (seen - tokens))
        norm = LayerNorm().cost(self.labels, parts * tokens)
        return Cost(parameters, flops) + norm + self.decoder.cost(self.width, None, 0, seen)


class MaskTokensHead(ImageHead):
    """The module of `MaskTokens`."""

    def __init__(self, spec: MaskTokens, d_model: int) -> None:
        super().__init__()
        self.finer, self.scale = spec.finer, spec.scale
        self.project = Linear(d_model, spec.width)
        self.classes = nn.Parameter(torch.empty(spec.labels, spec.width))
        self.decoder = StackModule(spec.decoder, 0, spec.width, None, "head.decoder")
        self.of_patches = Linear(spec.width, spec.finer**2 * spec.width, bias=False)
        self.of_classes = Linear(spec.width, spec.width, bias=False)
        self.norm = LayerNorm().module(spec.labels)

    def forward(self, hidden: Float[Tensor, "B T M"], layout: Layout) -> Float[Tensor, "B labels rows columns"]:
        assert layout.grid is not None
        patches = self.project(hidden[:, patches_of(layout)])
        x = torch.cat([patches, self.classes.expand(len(hidden), -1, -1)], 1)
        x = self.decoder(x, Layout.full(x.shape[1], device=x.device))
        patches, classes = x.split((patches.shape[1], len(self.classes)), 1)
        parts = self.of_patches(patches).unflatten(-1, (self.finer**2, -1)).flatten(1, 2)
        scores = self.norm(F.normalize(parts, dim=-1) @ F.normalize(self.of_classes(classes), dim=-1).mT)
        of_each = scores.unflatten(1, (-1, self.finer**2)).mT.flatten(2)
        return self.scale * unpatchify(of_each, layout.grid, (self.finer, self.finer))

    def output_loss(
        self,
        outputs: Float[Tensor, "B labels rows columns"],
        labels: Int[Tensor, "B H W"],
        label_smoothing: float,
        z_loss: float,
    ) -> LossSums:
        scores = F.interpolate(at_least_fp32(outputs), size=labels.shape[1:], mode="bilinear", align_corners=False)
        return cross_entropy(scores.movedim(1, -1), labels, label_smoothing, z_loss)


# -- objects -------------------------------------------------------------------------------------------------------------


class Objects(NamedTuple):
    """The detections: scores of each class and, last, of "no object"; boxes as (center x, center y, width, height), each a
    share of the image."""

    logits: Float[Tensor, "B n labels"]
    boxes: Float[Tensor, "B n 4"]


class Detector(OfImages, kind="detector"):
    """A class and a box for every detection, by two networks f of `layers` linear layers with ReLU.

    proposals: which tokens are detections. "tokens", those after the patches, whose box is σ(f(h)) (YOLOS, Fang et al. 2021;
               DETR, Carion et al. 2020); or "patches", each of which proposes an object near itself, at

                   σ(f(h) + σ⁻¹((column + ½) / columns, (row + ½) / rows, size, size)),

               like the encoder of two-stage Deformable DETR (Zhu et al. 2021, appendix A.4). The model then need not learn
               where an object is, only its offset from the patch, for which a few hundred pictures are enough.
    size:      initial size of a proposal, as a share of the picture.
    """

    labels: int = Field(default=91, gt=0)
    layers: int = Field(default=3, gt=0)
    proposals: Literal["tokens", "patches"] = "tokens"
    size: float = Field(default=0.1, gt=0, lt=1)

    def check_patches(self, seen: Patches) -> None:
        if self.proposals == "tokens" and not seen.after:
            raise ValueError(
                "a detector reads detection tokens: give patches some `after` them, or take their proposals"
            )

    def module(self, d_model: int, vocab_size: int) -> DetectorHead:
        return DetectorHead(self, d_model)

    def cost(self, d_model: int, vocab_size: int, tokens: int = 0) -> Cost:
        """FLOPs of detection tokens are left out: there are a hundred, whatever the image."""
        square = 2 * (self.layers - 1) * (d_model + 1) * d_model
        parameters = square + (d_model + 1) * (self.labels + 1 + 4)
        return Cost(parameters, 2 * parameters * tokens * (self.proposals == "patches"))


class DetectorHead(ImageHead):
    """The module of `Detector`."""

    def __init__(self, spec: Detector, d_model: int) -> None:
        super().__init__()
        self.classes = Perceptron(d_model, spec.labels + 1, spec.layers)
        self.boxes = Perceptron(d_model, 4, spec.layers)
        self.proposals, self.size = spec.proposals, spec.size

    def forward(self, hidden: Float[Tensor, "B T M"], layout: Layout) -> Objects:
        patches = patches_of(layout)
        if self.proposals == "tokens":
            states = hidden[:, patches.stop :]
            return Objects(self.classes(states), self.boxes(states).sigmoid())
        states = hidden[:, patches]
        offsets = proposed(layout, self.size).logit()
        return Objects(self.classes(states), (self.boxes(states) + offsets).sigmoid())

    def output_loss(self, outputs: Objects, labels: Tensor, label_smoothing: float, z_loss: float) -> LossSums:
        raise ValueError("a detector has no loss without a matching of detections with objects; call it without labels")


def proposed(layout: Layout, size: float) -> Float[Tensor, "B n 4"]:
    """The box (center x, center y, width, height) that each patch begins with: around its own middle, of one size."""
    assert layout.grid is not None
    row, column = layout.positions[:, patches_of(layout), 1:].unbind(-1)
    x, y = (column + 0.5) / layout.grid.columns, (row + 0.5) / layout.grid.rows
    return torch.stack([x, y, torch.full_like(x, size), torch.full_like(x, size)], -1)


class Perceptron(nn.Module):
    """Linear layers as wide as their input, with ReLU between them."""

    def __init__(self, d_in: int, d_out: int, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Linear(d_in, d_in if i < layers - 1 else d_out) for i in range(layers))

    def forward(self, x: Float[Tensor, "B T M"]) -> Float[Tensor, "B T out"]:
        for layer in self.layers[:-1]:
            x = layer(x).relu()
        return self.layers[-1](x)
