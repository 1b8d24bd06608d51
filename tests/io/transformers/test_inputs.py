"""Masks and positions of transformers as layouts."""

from __future__ import annotations

import pytest
import torch

from qkv.io.transformers.inputs import layout_of, refuse_others, token_loss

IDS = torch.arange(8).view(2, 4)


def test_rows_without_a_mask_are_full() -> None:
    layout = layout_of(IDS, None, None)
    assert layout is not None and layout.padding == "none" and layout.start == 0


def test_positions_count_real_tokens_unless_they_are_given() -> None:
    mask = torch.tensor([[0, 1, 1, 1], [1, 1, 1, 1]])
    layout = layout_of(IDS, mask, None)
    assert layout is not None and layout.positions[..., 0].tolist() == [[-1, 0, 1, 2], [0, 1, 2, 3]]
    layout = layout_of(IDS, mask, torch.tensor([[1, 5, 6, 7], [0, 1, 2, 3]]))
    assert layout is not None and layout.positions[..., 0].tolist() == [[-1, 5, 6, 7], [0, 1, 2, 3]]


def test_positions_that_start_again_divide_a_row() -> None:
    layout = layout_of(IDS, None, torch.tensor([[0, 1, 0, 1]]))
    assert layout is not None and layout.segments is not None
    assert layout.segments.tolist() == [[0, 0, 1, 1]] * 2 and not layout.one_segment


def test_tokens_after_a_cache_continue_rows_unless_some_are_padding() -> None:
    assert layout_of(IDS, None, None, before=3) is None
    assert layout_of(IDS, torch.ones(2, 7), None, before=3) is None
    mask = torch.tensor([[0, 1, 1, 0, 1, 1, 1], [1, 1, 1, 1, 1, 1, 1]])
    layout = layout_of(IDS, mask, None, before=3)
    assert layout is not None and layout.positions[..., 0].tolist() == [[-1, 2, 3, 4], [3, 4, 5, 6]]


def test_other_masks_and_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match=r"an attention mask is \(batch, length\) here, not \(2, 1, 4, 4\)"):
        layout_of(IDS, torch.ones(2, 1, 4, 4), None)
    with pytest.raises(ValueError, match="the attention mask has 5 columns for 0 \\+ 4 tokens"):
        layout_of(IDS, torch.ones(2, 5), None)
    with pytest.raises(ValueError, match="a qkv model takes no 'inputs_embeds' in transformers"):
        refuse_others({"inputs_embeds": IDS})
    refuse_others({"cu_seq_lens_q": IDS}, IDS)
    with pytest.raises(ValueError, match="'cu_seq_lens_q' needs position_ids, which start again with each text"):
        refuse_others({"cu_seq_lens_q": IDS})
    with pytest.raises(ValueError, match="a qkv model takes no 'head_mask' in transformers"):
        refuse_others({"head_mask": IDS, "return_dict": True})


def test_the_loss_is_a_mean_or_a_share_of_all_labels() -> None:
    logits, labels = torch.randn(2, 3, 5), torch.tensor([[1, -100, 2], [-100, 4, 0]])
    mean = torch.nn.functional.cross_entropy(logits.view(-1, 5), labels.view(-1))
    torch.testing.assert_close(token_loss(logits, labels), mean)
    torch.testing.assert_close(token_loss(logits, labels, 8), mean / 2)
