"""CTC's loss beside the sum over all alignments, alone and in a padded batch."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

from qkv.core.layout import Layout
from qkv.generation.ctc import collapsed
from qkv.nn.models.heads.ctc import CTC, CTCHead, frames_needed

SYMBOLS, WIDTH = 3, 4


def head(**changes: bool) -> CTCHead:
    torch.manual_seed(0)
    module = CTC(**changes).module(WIDTH, SYMBOLS).double()
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter)
    assert isinstance(module, CTCHead)
    return module


def exhaustive(log_probs: torch.Tensor, text: list[int], blank: int = 0) -> float:
    """−log of the sum of the probabilities of all alignments that become a text."""
    paths = itertools.product(range(log_probs.shape[1]), repeat=len(log_probs))
    total = sum(
        math.exp(sum(log_probs[t, symbol].item() for t, symbol in enumerate(path)))
        for path in paths
        if collapsed(path, blank) == text
    )
    return -math.log(total) if total else math.inf


@pytest.mark.parametrize("text", [[1], [1, 2], [2, 2], [1, 2, 1]])
def test_loss_is_the_sum_over_all_alignments(text: list[int]) -> None:
    module, hidden = head(), torch.randn(1, 4, WIDTH, dtype=torch.float64)
    sums = module.loss(hidden, torch.tensor([text], dtype=torch.int64).reshape(1, -1), layout=Layout.full(4))
    assert sums.loss.item() == pytest.approx(exhaustive(module(hidden)[0].log_softmax(-1), text), abs=1e-9)
    assert sums.n_labels.item() == len(text)


def test_a_padded_batch_has_the_loss_of_its_rows_alone() -> None:
    module, hidden = head(), torch.randn(2, 5, WIDTH, dtype=torch.float64)
    labels = torch.tensor([[1, 2, 2], [2, -100, -100]])
    alone = [
        module.loss(hidden[:1], labels[:1], layout=Layout.full(5)).loss,
        module.loss(hidden[1:, :2], labels[1:, :1], layout=Layout.full(2)).loss,
    ]
    batch = module.loss(hidden, labels, layout=Layout.from_lengths([5, 2])).loss
    masked = module.loss(hidden, labels, layout=Layout.from_mask(torch.tensor([[1] * 5, [1, 1, 0, 0, 0]]))).loss
    torch.testing.assert_close(batch, alone[0] + alone[1])
    torch.testing.assert_close(masked, batch)


def test_rows_without_symbols_are_ignored() -> None:
    module, hidden = head(), torch.randn(2, 4, WIDTH, dtype=torch.float64)
    both = module.loss(hidden, torch.tensor([[1, 2], [-100, -100]]), layout=Layout.full(4))
    one = module.loss(hidden[:1], torch.tensor([[1, 2]]), layout=Layout.full(4))
    torch.testing.assert_close(both.loss, one.loss)
    none = module.loss(hidden, torch.full((2, 2), -100), layout=Layout.full(4))
    assert (none.loss.item(), none.n_labels.item(), both.n_labels.item()) == (0, 0, 2)


def test_texts_longer_than_their_frames_cost_nothing_or_infinitely_much() -> None:
    hidden, labels = torch.randn(1, 3, WIDTH, dtype=torch.float64, requires_grad=True), torch.tensor([[1, 1, 2]])
    assert frames_needed([1, 1, 2]) == 4
    sums = head().loss(hidden, labels, layout=Layout.full(3))
    sums.loss.backward()
    assert sums.loss.item() == 0 and hidden.grad is not None and not hidden.grad.any()
    assert head(zero_infinity=False).loss(hidden, labels, layout=Layout.full(3)).loss.item() == math.inf


def test_labels_with_the_blank_and_padding_on_the_left_are_refused() -> None:
    module, hidden = head(), torch.randn(1, 3, WIDTH, dtype=torch.float64)
    with pytest.raises(ValueError, match="labels hold the blank, 0"):
        module.loss(hidden, torch.tensor([[1, 0]]), layout=Layout.full(3))
    with pytest.raises(ValueError, match="padded on the right"):
        module.loss(hidden, torch.tensor([[1]]), layout=Layout.from_lengths([2], 3, "left"))
    with pytest.raises(ValueError, match="label_smoothing"):
        module.loss(hidden, torch.tensor([[1]]), 0.1, layout=Layout.full(3))
    with pytest.raises(ValueError, match=r"head\.blank is 7"):
        CTC(blank=7).module(WIDTH, SYMBOLS)
