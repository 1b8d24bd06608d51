"""Drawing of a spectrogram: time to the right, pitch upward, louder is brighter."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from markupsafe import Markup

from ...look.pictures import draws
from ...look.pictures.bitmap import bitmap


@draws("spectrogram")
def spectrogram(picture: Mapping[str, Any]) -> Markup:
    """`values`: rows of mel bands, the lowest first, each over time."""
    values = np.asarray(picture["values"], np.float32)[::-1]
    low, high = np.quantile(values, [0.02, 0.995])
    share = ((values - low) / max(float(high - low), 1e-6)).clip(0, 1)
    dark, middle, bright = (np.array(color, np.float32) for color in ((13, 8, 135), (203, 71, 119), (240, 249, 33)))
    first, second = (share * 2).clip(0, 1)[..., None], (share * 2 - 1).clip(0, 1)[..., None]
    colors = dark + (middle - dark) * first + (bright - middle) * second
    return bitmap(colors.astype(np.uint8), "spectrogram", scale=4)
