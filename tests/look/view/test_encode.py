"""Encoded arrays: weights within 1/255 of their row's largest, masks and vectors as they were."""

from __future__ import annotations

import base64

import numpy as np
import torch

from qkv.look.view.encode import Arrays, bits, quantized


def test_weights_are_within_a_255th_of_the_largest_of_their_row() -> None:
    weights = torch.rand(3, 4, 5).softmax(-1)
    weights[0, 0] = 0
    levels, largest = quantized(weights)
    back = torch.tensor(np.frombuffer(levels, np.uint8).copy()).view(3, 4, 5) / 255
    top = torch.tensor(np.frombuffer(largest, np.float32).copy()).view(3, 4, 1)
    assert ((back * top - weights).abs() <= top / 510 + 1e-7).all()
    assert not back[0, 0].any()


def test_masks_are_bits_from_the_highest() -> None:
    assert bits(torch.tensor([[[True, False, False], [False, False, True]]])) == bytes([0b10000100])


def test_equal_arrays_are_kept_once() -> None:
    arrays = Arrays()
    assert [arrays.add(data) for data in (b"abc", b"de", b"abc")] == [0, 1, 0]
    assert arrays.texts == [base64.b64encode(b"abc").decode(), base64.b64encode(b"de").decode()]
    assert arrays.size == sum(map(len, arrays.texts))
