"""DeiT (Touvron et al. 2021): ViT with a second token before the patches, which learns what a teacher says."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from ...nn.models.heads.vision import ImageClassifier
from ...nn.models.transformer import Transformer
from ..hub.family import Class, Table
from ..hub.names import Row
from .classes import POOLED
from .vit import FAMILY as VIT
from .vit import body, vit

deit = partial(vit, before=2)

SIZES: dict[str, dict[str, Any]] = {
    "deit-tiny-distilled": {"distilled": True, "d_model": 192, "n_heads": 3, "d_ff": 768},
    "deit-small-distilled": {"distilled": True, "d_model": 384, "n_heads": 6, "d_ff": 1536},
    "deit-base-distilled": {"distilled": True},
}


def names(spec: Transformer) -> Table:
    """The rows; with a teacher there are two classifiers, and the first has another name."""
    distilled = isinstance(spec.head, ImageClassifier) and spec.head.distilled
    return (
        *body(spec, "deit", "cls_token", "distillation_token"),
        Row("cls_classifier.*" if distilled else "classifier.*", "head.out.*"),
        Row("distillation_classifier.*", "head.teacher.*"),
    )


FAMILY = replace(
    VIT,
    model_type="deit",
    make=deit,
    classes={
        "DeiTForImageClassification": Class(),
        "DeiTForImageClassificationWithTeacher": Class({"distilled": True}),
        "DeiTModel": POOLED,
    },
    prefix="deit.",
    names=names,
)
