"""YOLOS (Fang et al. 2021): ViT with detection tokens after the patches, each of which finds an object or none."""

from __future__ import annotations

from typing import Any, Literal

from ...nn.layers.patches import GridPosition
from ...nn.models.heads.vision import Detector
from ...nn.models.transformer import Transformer
from ..hub.family import Class, Family, Table
from ..hub.keys import ANY, Key, LabelCount, changed
from ..hub.names import Row
from ..hub.transforms import Joined, Shaped, TransformChain
from .classes import POOLED
from .factories import based_on
from .vit import ENCODER, PLACES, Sides, body, vit


@based_on(vit, without=("before", "after", "distilled"), image=(512, 864), labels=91)
def yolos(
    *, detections: int = 100, proposals: Literal["tokens", "patches"] = "tokens", between: bool = True, **sizes: Any
) -> Transformer:
    """ViT that predicts a class of `labels`, or none, and a box for each of its `detections`.

    `between` gives every block its own positions. With proposals "patches", every patch is a detection (`Detector`), and
    `detections` has to be 0.

    Raises ValueError if there are detection tokens beside the proposals of patches.
    """
    if detections and proposals == "patches":
        raise ValueError(
            f"every patch proposes an object, so {detections} detection tokens go unread; give detections=0"
        )
    position = sizes["position"] or GridPosition(between=between)
    spec = vit(**{**sizes, "position": position, "head": False}, after=detections)
    return spec.replace({"head": Detector(labels=sizes["labels"], proposals=proposals)}) if sizes["head"] else spec


SIZES: dict[str, dict[str, Any]] = {
    "yolos-tiny": {"image": (800, 1333), "between": False, "d_model": 192, "n_heads": 3, "d_ff": 768},
    "yolos-small": {"d_model": 384, "n_heads": 6, "d_ff": 1536},
    "yolos-base": {"image": (800, 1344)},
}


def names(spec: Transformer) -> Table:
    """Their one tensor holds the positions of all blocks after the first, which are separate tensors here."""
    numbers = range(spec.output.n_layers - 1)
    tables = f"encoder.between.[{','.join(map(str, numbers))}].weight"
    apart = TransformChain(Shaped((len(numbers), 1, -1, spec.d_model)), Joined())
    return (
        *body(spec, "vit", "cls_token"),
        Row("vit.embeddings.detection_tokens", "encoder.embedding.after", Shaped((1, -1, spec.d_model))),
        Row("vit.encoder.mid_position_embeddings", tables, apart),
        Row("vit.encoder.interpolation.mid_position_embeddings", tables, apart),
        Row("class_labels_classifier.layers.{i}.*", "head.classes.layers.{i}.*"),
        Row("bbox_predictor.layers.{i}.*", "head.boxes.layers.{i}.*"),
    )


# fmt: off
FAMILY = Family(
    model_type="yolos",
    make=yolos,
    classes={"YolosForObjectDetection": Class(), "YolosModel": POOLED},
    prefix="vit.",
    fields=changed(
        ENCODER,
        Sides("image_size", "image", (512, 864), pair=True),
        Key("num_detection_tokens", "detections", 100),
        Key("use_mid_position_embeddings", "between", True),
        LabelCount(),
    ),
    places={**PLACES, "detections": "encoder.embedding.after", "between": "encoder.position.between"},
    names=names,
    # How a loss would match detections with objects, and weigh what it finds.
    harmless=dict.fromkeys(
        (
            "auxiliary_loss", "class_cost", "bbox_cost", "giou_cost",
            "bbox_loss_coefficient", "giou_loss_coefficient", "eos_coefficient",
        ),
        ANY,
    ),
)
# fmt: on
