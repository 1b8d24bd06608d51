"""YOLOS: detection tokens."""

from __future__ import annotations

import pytest

from qkv.io.families import preset


def test_detection_tokens_beside_proposals_would_go_unread() -> None:
    with pytest.raises(ValueError, match="100 detection tokens go unread; give detections=0"):
        preset("yolos-tiny", proposals="patches")
