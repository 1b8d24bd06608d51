"""Frames of sound as an input: the equation, padding, cost and what is refused."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

import qkv
from qkv.core.layout import Layout
from qkv.io.families.whisper import whisper
from qkv.nn.layers.frames import FrameEmbedding, Frames
from qkv.nn.layers.norm import LayerNorm
from qkv.nn.layers.waveform import Waveform

SIZES = {"vocab_size": 11, "mels": 5, "frames": 24, "d_model": 8, "n_layers": 1, "n_heads": 2, "d_ff": 8}


def embedding(strides: tuple[int, ...] = (1, 2), stem: tuple[int, ...] = ()) -> FrameEmbedding:
    torch.manual_seed(0)
    made = Frames(mels=5, frames=24, strides=strides, stem=stem).module(0, 8)
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


def test_a_stem_convolves_bands_and_frames() -> None:
    made, x = embedding((2, 3), (4, 6)), torch.randn(2, 5, 17, dtype=torch.float64)
    wanted = x[:, None]
    for convolution, d_in, stride in zip(made.convolutions, (1, 4), (2, 3), strict=True):
        weight = convolution.weight.view(-1, d_in, 3, 3)
        wanted = F.conv2d(wanted, weight, stride=(2, stride), padding=1)
        norm = convolution.norm
        wanted = F.layer_norm(wanted.movedim(1, -1), (len(weight),), norm.weight, norm.bias, 1e-5).movedim(-1, 1).relu()
    assert made.project is not None and wanted.shape == (2, 6, 2, 3) and made.spec.bands == (5, 3, 2)
    wanted = F.linear(wanted.transpose(1, 3).transpose(2, 3).flatten(2), made.project.weight, made.project.bias)
    torch.testing.assert_close(made(x, None), wanted)


@pytest.mark.parametrize("strides, stem", [((1, 2), ()), ((2, 2, 1), ()), ((3,), ()), ((1, 2), (4, 6)), ((3,), (4,))])
def test_a_padded_sound_gives_what_it_gives_alone(strides: tuple[int, ...], stem: tuple[int, ...]) -> None:
    made = embedding(strides, stem)
    stride = torch.tensor(strides).prod().item()
    lengths = (4, 2)
    x = torch.randn(2, 5, 4 * stride, dtype=torch.float64)
    together = made(x, None, layout=Layout.from_lengths(lengths))
    alone = made(x[1:, :, : 2 * stride], None)
    torch.testing.assert_close(together[1:, :2], alone)
    torch.testing.assert_close(together[:1], made(x[:1], None))


def test_the_cost_counts_the_parameters_and_the_flops_of_a_stem() -> None:
    for spec in (whisper(**SIZES), whisper(**SIZES).replace({"encoder.embedding.stem": (3, 4)})):
        assert spec.n_parameters == sum(p.numel() for p in qkv.build(spec).parameters())
    made = embedding((2, 2), (3, 4))
    cost = made.spec.cost(8, 0, 6)
    with FlopCounterMode(display=False) as counter:
        made(torch.randn(1, 5, 24, dtype=torch.float64), None)
    assert counter.get_total_flops() == cost.flops - LayerNorm().cost(3, 36).flops - LayerNorm().cost(4, 12).flops


def test_a_stem_of_another_number_of_convolutions_is_refused() -> None:
    with pytest.raises(ValueError, match=r"a stem has one width for each stride: 2 for strides \[1, 2\], not 1"):
        Frames(stem=(8,))


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
