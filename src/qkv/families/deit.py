"""DeiT (Touvron et al. 2021): ViT with a second token before the patches, which learns what a teacher says."""

from __future__ import annotations

from functools import partial
from typing import Any

from ..hub.family import Class, Family, Table
from ..hub.names import Row
from ..models.transformer import Transformer
from .vit import FIELDS, HARMLESS, PLACES, body, vit

deit = partial(vit, before=2)

SIZES: dict[str, dict[str, Any]] = {
    "deit-tiny-distilled": {"distilled": True, "d_model": 192, "n_heads": 3, "d_ff": 768},
    "deit-small-distilled": {"distilled": True, "d_model": 384, "n_heads": 6, "d_ff": 1536},
    "deit-base-distilled": {"distilled": True},
}


def names(spec: Transformer) -> Table:
    """With a teacher there are two classifiers, and the first is called otherwise."""
    return (
        *body(spec, "deit", "cls_token", "distillation_token"),
        Row("cls_classifier.*" if getattr(spec.head, "distilled", False) else "classifier.*", "head.out.*"),
        Row("distillation_classifier.*", "head.teacher.*"),
    )


FAMILY = Family(
    model_type="deit",
    make=deit,
    classes={
        "DeiTForImageClassification": Class(),
        "DeiTForImageClassificationWithTeacher": Class({"distilled": True}),
        "DeiTModel": Class({"head": False, "pooler": True}, bare=True, optional=("pooler",)),
    },
    prefix="deit.",
    fields=FIELDS,
    places=PLACES,
    names=names,
    harmless=HARMLESS,
)
