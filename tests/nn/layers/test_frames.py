"""Frames of sound as an input: the equation, padding, cost and what is refused."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

import qkv
from qkv.core.layout import Layout
from qkv.io.families.whisper import whisper
from qkv.nn.layers.frames import FrameEmbedding, Frames
from qkv.nn.layers.waveform import Waveform

SIZES = {"vocab_size": 11, "mels": 5, "frames": 24, "d_model": 8, "n_layers": 1, "n_heads": 2, "d_ff": 8}


def embedding(strides: tuple[int, ...] = (1, 2)) -> FrameEmbedding:
    torch.manual_seed(0)
    made = Frames(mels=5, frames=24, strides=strides).module(0, 8)
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter)
    return made.double()


def test_convolutions_over_time_with_gelu() -> None:
    made, x = embedding((1, 3)), torch.randn(2, 5, 17, dtype=torch.float64)
    wanted = x
    for convolution, stride in zip(made.convolutions, (1, 3), strict=True):
        weight = convolution.weight.view(8, -1, 3)
        wanted = F.gelu(F.conv1d(wanted, weight, convolution.bias, stride=stride, padding=1))
    torch.testing.assert_close(made(x, None), wanted.mT)
    assert made.spec.tokens_of(17) == wanted.shape[2] == 6


@pytest.mark.parametrize("strides", [(1, 2), (2, 2, 1), (3,)])
def test_a_padded_sound_gives_what_it_gives_alone(strides: tuple[int, ...]) -> None:
    made = embedding(strides)
    stride = torch.tensor(strides).prod().item()
    lengths = (4, 2)
    x = torch.randn(2, 5, 4 * stride, dtype=torch.float64)
    together = made(x, None, layout=Layout.from_lengths(lengths))
    alone = made(x[1:, :, : 2 * stride], None)
    torch.testing.assert_close(together[1:, :2], alone)
    torch.testing.assert_close(together[:1], made(x[:1], None))


def test_the_cost_counts_the_parameters() -> None:
    spec = whisper(**SIZES)
    assert spec.n_parameters == sum(p.numel() for p in qkv.build(spec).parameters())


@pytest.mark.parametrize(
    "shape, message",
    [
        ((1, 4, 24), r"sounds are \(batch, 5 mel bands, frames\), not \(1, 4, 24\)"),
        ((1, 5), "sounds are"),
        ((1, 5, 0), "0 frames doesn't fit: this model reads 1 to 24"),
        ((1, 5, 26), "26 frames doesn't fit: this model reads 1 to 24; cut it"),
    ],
)
def test_other_inputs_are_refused_in_one_sentence(shape: tuple[int, ...], message: str) -> None:
    model = qkv.build(whisper(**SIZES))
    with pytest.raises(ValueError, match=message):
        model(torch.zeros(shape), torch.zeros(1, 2, dtype=torch.int64))
    with pytest.raises(ValueError, match="24 frames make 12 tokens, and the layout has 24"):
        model(torch.zeros(1, 5, 24), torch.zeros(1, 2, dtype=torch.int64), layout=Layout.full(24))


def test_a_mask_of_frames_is_a_layout_of_tokens() -> None:
    model, ids = qkv.build(whisper(**SIZES)), torch.zeros(2, 2, dtype=torch.int64)
    features, mask = torch.randn(2, 5, 24), torch.arange(24) < torch.tensor([[24], [9]])
    wanted = model(features, ids, layout=Layout.from_lengths([12, 5]))
    torch.testing.assert_close(model(features, ids, attention_mask=mask), wanted)


def test_masks_of_sounds_have_their_shape_and_end_in_padding() -> None:
    """The same for frames and for samples."""
    frames = Frames(mels=5, frames=24, strides=(2,)).module(0, 8)
    samples = Waveform(widths=(8,), kernels=(2,), strides=(2,), positions=2, groups=1).module(0, 8)
    for module, inputs in ((frames, torch.zeros(2, 5, 24)), (samples, torch.zeros(2, 24))):
        mask = torch.arange(24) < torch.tensor([[24], [9]])
        assert module.lay(inputs, None, mask)[1].lengths in ((12, 5), (12, 4))
        with pytest.raises(ValueError, match=r"a mask is \(batch, (frames|samples)\), \(2, 24\), not \(2, 20\)"):
            module.lay(inputs, None, mask[:, :20])
        with pytest.raises(ValueError, match="sounds are padded on the right; this mask has padding elsewhere"):
            module.lay(inputs, None, mask.flip(1))
