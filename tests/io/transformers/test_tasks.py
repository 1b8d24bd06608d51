"""Classes of transformers with a head have its logits and losses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from auto_models import IDS, MASK, bert, config
from torch import nn

pytestmark = pytest.mark.slow  # importing transformers' models takes seconds


def test_other_classes_have_their_heads_and_losses(tmp_path: Path) -> None:
    import transformers

    import qkv.transformers

    transformers.AutoModelForMaskedLM.from_config(config(bert())).save_pretrained(tmp_path)
    labels = torch.tensor([0, 2, 1])
    classes: Any = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path, num_labels=3)
    out = classes(IDS, attention_mask=MASK, labels=labels)
    torch.testing.assert_close(out.loss, nn.functional.cross_entropy(out.logits, labels))
    tags: Any = transformers.AutoModelForTokenClassification.from_pretrained(tmp_path, num_labels=5)
    assert tags(IDS).logits.shape == (3, 7, 5)
    spans: Any = transformers.AutoModelForQuestionAnswering.from_pretrained(tmp_path)
    out = spans(IDS, start_positions=labels, end_positions=labels + 1)
    assert out.start_logits.shape == (3, 7) and out.loss > 0
    vit = qkv.preset("vit-base-16", image=(16, 16), patch=(8, 8), labels=4, d_model=32, n_layers=1, n_heads=2, d_ff=64)
    images: Any = transformers.AutoModelForImageClassification.from_config(config(vit)).eval()
    pixels = torch.randn(2, 3, 16, 16)
    torch.testing.assert_close(images(pixels).logits, qkv.build(vit, seed=0).eval()(pixels))
    assert isinstance(images, qkv.transformers.QkvForImageClassification) and images.config.num_labels == 4
