"""Drawing of a masked picture, the model's reconstruction, and the original."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from markupsafe import Markup

from ...look.pictures import draws
from ...look.pictures.bitmap import beside

_SHOWN = (("seen", "seen"), ("reconstructed", "made"), ("truth", "truth"))


@draws("patches")
def patches(picture: Mapping[str, Any]) -> Markup:
    """`seen`, `made` and `truth` are PNGs in base64; what was not seen is gray in `seen`."""
    return beside(((name, picture[key]) for name, key in _SHOWN), widest=150)
