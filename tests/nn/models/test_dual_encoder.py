"""Dual encoders: vectors, scores, ends of texts, costs, and towers that don't fit."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import qkv
from qkv.core.layout import Layout
from qkv.nn.models.dual_encoder import DualEncoder

SIZES: dict[str, Any] = {"vocab_size": 20, "image": (8, 8), "patch": (4, 4), "d_model": 8, "n_layers": 1, "n_heads": 2}
TEXT: dict[str, Any] = {"d_ff": 12, "text_d_model": 12, "text_layers": 2, "text_heads": 3, "text_d_ff": 8}
SPEC: DualEncoder = qkv.preset("clip", width=6, max_positions=10, **SIZES, **TEXT)
PIXELS = torch.randn(3, 3, 8, 8)


def model(**changes: Any) -> Any:
    return qkv.build(SPEC.replace(changes), seed=3).eval()


def test_scores_are_scaled_cosines_of_the_towers_vectors() -> None:
    made, ids = model(bias=-4.0, temperature=0.5), torch.randint(0, 20, (2, 5))
    out = made(ids, PIXELS)
    u, v = made.encode_image(PIXELS), made.encode_text(ids)
    cosines = torch.cosine_similarity(u[:, None], v[None], dim=-1)
    torch.testing.assert_close(out.logits_per_image, 2 * cosines - 4)
    torch.testing.assert_close(out.image.norm(dim=-1), torch.ones(3))
    assert made(ids).image is None and made(pixels=PIXELS).text is None
    with pytest.raises(ValueError, match="give ids, pixels or both"):
        made()


def test_a_text_ends_with_its_first_end() -> None:
    made = model(end=7)
    ids = torch.tensor([[1, 2, 7, 7, 9], [3, 7, 4, 5, 6], [1, 2, 3, 4, 7]])
    for row, n in zip(ids, (3, 2, 5), strict=True):
        alone = made.encode_text(row[None, :n])
        torch.testing.assert_close(made.encode_text(ids)[ids.tolist().index(row.tolist())], alone[0])
    largest = model(end="largest")
    torch.testing.assert_close(
        largest.encode_text(torch.tensor([[1, 9, 3, 9]])), largest.encode_text(torch.tensor([[1, 9]]))
    )


def test_a_text_without_an_end_ends_with_its_first_token() -> None:
    made = model(end=7)
    torch.testing.assert_close(made.encode_text(torch.tensor([[4, 5, 6]])), made.encode_text(torch.tensor([[4]])))


@pytest.mark.parametrize("side", ["left", "right"])
def test_an_attention_mask_counts_beside_the_end(side: str) -> None:
    """Hidden tokens are no part of a text, wherever they stand, and ends among them end nothing."""
    made = model(end=7)
    text, filler = [1, 2, 3, 7], [7, 7]
    row, shown = (filler + text, [0, 0, 1, 1, 1, 1]) if side == "left" else (text + filler, [1, 1, 1, 1, 0, 0])
    alone = made.encode_text(torch.tensor([text]))
    masked = made.encode_text(torch.tensor([row]), attention_mask=torch.tensor([shown]))
    torch.testing.assert_close(masked, alone)
    cut = made.encode_text(torch.tensor([[1, 7, 3, 4]]), attention_mask=torch.tensor([[1, 1, 1, 1]]))
    torch.testing.assert_close(cut, made.encode_text(torch.tensor([[1, 7]])))
    with pytest.raises(ValueError, match="True/False or 1/0"):
        made.encode_text(torch.tensor([text]), attention_mask=torch.tensor([[0.0, -1e9, 0.0, 0.0]]))


def test_a_layout_says_where_texts_end_whatever_the_end() -> None:
    made = model(end=7)
    ids = torch.tensor([[1, 7, 3, 4]])
    torch.testing.assert_close(
        made.encode_text(ids, Layout.full(4)), made.text(ids, layout=Layout.full(4)), rtol=0, atol=0
    )


def test_parameters_are_counted_and_begin_as_the_spec_says() -> None:
    made = model(bias=-10.0, temperature=0.07)
    assert made.spec.n_parameters == sum(p.numel() for p in made.parameters())
    assert made.logit_scale.exp().item() == pytest.approx(1 / 0.07) and made.logit_bias.item() == -10
    assert made.spec.image_tokens == 5 and made.spec.d_model == 6 and made.spec.n_layers == 2


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"text.head.width": 5}, "the vectors of image and text are 6 and 5 wide"),
        ({"text.head": None}, "text has no head, and a tower gives one vector"),
        ({"image": SPEC.text}, "image reads embedding, and the tower of images reads patches"),
        ({"text": SPEC.image}, "text reads patches, and the tower of texts reads tokens"),
        ({"end": 20}, "end=20 is no token of the vocabulary of texts, which has 20"),
        (
            {"fills": True, "text.encoder.position": "rotary", "text.max_positions": None},
            "fills needs text.max_positions",
        ),
    ],
)
def test_towers_that_do_not_fit_are_told(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        SPEC.replace(changes)


def test_a_policy_of_recomputing_that_does_not_exist_is_told() -> None:
    with pytest.raises(ValueError, match="recompute is none, alternate or blocks, not 'some'"):
        model().recompute("some")
