"""Normalization of recognized texts before they are compared, by the rules of Whisper's authors."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from typing import Literal

Normalizer = Literal["none", "basic", "english"]
"""How texts are normalized: not at all, in any language, or in English (Radford et al. 2022, appendix C)."""


def normalizer(kind: Normalizer) -> Callable[[str], str]:
    """The function that normalizes a text."""
    return {"none": str, "basic": basic, "english": basic}[kind]


def basic(text: str) -> str:
    """A text of any language: lower case, without what stands in brackets, marks and punctuation replaced by spaces, in NFKC,
    and single spaces."""
    text = re.sub(r"[<\[][^>\]]*[>\]]", "", text.lower())
    text = re.sub(r"\(([^)]+?)\)", "", text)
    text = "".join(
        " " if unicodedata.category(c)[0] in "MSP" else c for c in unicodedata.normalize("NFKC", text)
    ).lower()
    return re.sub(r"\s+", " ", text).strip()
