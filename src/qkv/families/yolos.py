"""YOLOS (Fang et al. 2021): ViT with detection tokens after the patches, each of which finds an object or none."""

from __future__ import annotations

from typing import Any, Literal

from ..hub.family import Class, Family, Table
from ..hub.keys import ANY, Key, Labels, changed
from ..hub.names import Row
from ..hub.transforms import Chain, Joined, Shaped
from ..layers.feedforward import Activation
from ..layers.patches import GridPosition, Size
from ..models.heads.vision import Detector
from ..models.transformer import Transformer
from ..positions.base import Position
from .vit import ENCODER, PLACES, Sides, body, vit


def yolos(
    *,
    image: Size = (512, 864),
    patch: Size = (16, 16),
    channels: int = 3,
    d_model: int = 768,
    n_layers: int = 12,
    n_heads: int = 12,
    d_ff: int = 3072,
    activation: Activation = "gelu",
    dropout: float = 0.0,
    attention_dropout: float = 0.0,
    attention_bias: bool = True,
    eps: float = 1e-12,
    detections: int = 100,
    proposals: Literal["tokens", "patches"] = "tokens",
    stem: tuple[int, ...] = (),
    between: bool = True,
    position: Position | None = None,
    labels: int = 91,
    head: bool = True,
    pooler: bool = False,
) -> Transformer:
    """ViT that says a class of `labels`, or none, and a box for each of its `detections`.

    `between` gives every block positions of its own. With proposals "patches", every patch is a detection (`Detector`), and
    `detections` has to be 0. `stem`: widths of convolutions that make the patches (`layers.patches.Patches`).

    Raises ValueError where there are detection tokens beside the proposals of patches.
    """
    if detections and proposals == "patches":
        raise ValueError(
            f"every patch proposes an object, so {detections} detection tokens go unread; give detections=0"
        )
    spec = vit(
        image=image,
        patch=patch,
        channels=channels,
        d_model=d_model,
        n_layers=n_layers,
        n_heads=n_heads,
        d_ff=d_ff,
        activation=activation,
        dropout=dropout,
        attention_dropout=attention_dropout,
        attention_bias=attention_bias,
        eps=eps,
        after=detections,
        stem=stem,
        position=position or GridPosition(between=between),
        head=False,
        pooler=pooler,
    )
    return spec.replace({"head": Detector(labels=labels, proposals=proposals)}) if head else spec


SIZES: dict[str, dict[str, Any]] = {
    "yolos-tiny": {"image": (800, 1333), "between": False, "d_model": 192, "n_heads": 3, "d_ff": 768},
    "yolos-small": {"d_model": 384, "n_heads": 6, "d_ff": 1536},
    "yolos-base": {"image": (800, 1344)},
}


def names(spec: Transformer) -> Table:
    """Their one tensor holds the positions of all blocks after the first, which are tensors of their own here."""
    numbers = range(spec.output.n_layers - 1)
    tables = f"encoder.between.[{','.join(map(str, numbers))}].weight"
    apart = Chain(Shaped((len(numbers), 1, -1, spec.d_model)), Joined())
    return (
        *body(spec, "vit", "cls_token"),
        Row("vit.embeddings.detection_tokens", "encoder.embedding.after", Shaped((1, -1, spec.d_model))),
        Row("vit.encoder.mid_position_embeddings", tables, apart),
        Row("vit.encoder.interpolation.mid_position_embeddings", tables, apart),
        Row("class_labels_classifier.layers.{i}.*", "head.classes.layers.{i}.*"),
        Row("bbox_predictor.layers.{i}.*", "head.boxes.layers.{i}.*"),
    )


FAMILY = Family(
    model_type="yolos",
    make=yolos,
    classes={
        "YolosForObjectDetection": Class(),
        "YolosModel": Class({"head": False, "pooler": True}, bare=True, optional=("pooler",)),
    },
    prefix="vit.",
    fields=changed(
        ENCODER,
        Sides("image_size", "image", (512, 864), pair=True),
        Key("num_detection_tokens", "detections", 100),
        Key("use_mid_position_embeddings", "between", True),
        Labels(),
    ),
    places={
        **PLACES,
        "detections": "encoder.embedding.after",
        "between": "encoder.position.between",
    },
    names=names,
    # How a loss would match detections with objects, and weigh what it finds.
    harmless=dict.fromkeys(
        (
            *("auxiliary_loss", "class_cost", "bbox_cost", "giou_cost"),
            *("bbox_loss_coefficient", "giou_loss_coefficient", "eos_coefficient"),
        ),
        ANY,
    ),
)
