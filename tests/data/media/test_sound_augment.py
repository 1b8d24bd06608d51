"""What augmentation does to sounds: tones where they should be, noise as loud as it should be, the same by seed."""

from __future__ import annotations

import numpy as np
import pytest

from qkv.data.media.audio import Wave
from qkv.data.media.mel_spectrogram import mel_filters
from qkv.data.media.sound_augment import (
    Gain,
    SoundAugmentation,
    SpeedChange,
    VocalTract,
    WhiteNoise,
    faster,
    masked_stretch,
)

RATE = 8000
EVERY = [SpeedChange(), VocalTract(), WhiteNoise(), Gain()]


def tone(hertz: float, seconds: float = 1.0) -> Wave:
    return (0.5 * np.sin(2 * np.pi * hertz * np.arange(int(seconds * RATE)) / RATE)).astype(np.float32)


def pitch(wave: Wave) -> float:
    return float(np.abs(np.fft.rfft(wave * np.hanning(len(wave)))).argmax() * RATE / len(wave))


@pytest.mark.parametrize("factor", [0.8, 0.97, 1.1, 1.3])
def test_a_faster_sound_is_shorter_and_higher(factor: float) -> None:
    wave = faster(tone(1000), factor)
    assert len(wave) == round(RATE / factor) and wave.dtype == np.float32
    assert pitch(wave) == pytest.approx(1000 * factor, abs=2)
    assert np.sqrt(2 * np.square(wave[200:-200]).mean()) == pytest.approx(0.5, abs=2e-3)


def test_what_would_be_above_the_nyquist_frequency_is_left_out() -> None:
    assert np.abs(faster(tone(3600), 1.2)[200:-200]).max() < 0.01


def test_speeds_are_those_of_the_range() -> None:
    random = np.random.default_rng(0)
    lengths = [len(SpeedChange(by=0.2)(tone(500), random)) for _ in range(60)]
    assert round(RATE / 1.2) <= min(lengths) < 7000 and 9400 < max(lengths) <= round(RATE / 0.8)


def test_a_warped_filter_bank_reads_other_frequencies() -> None:
    plain, warped = mel_filters(30, 400, RATE), mel_filters(30, 400, RATE, warp=1.1)
    peaks, moved = plain.argmax(1).float(), warped.argmax(1).float()
    low = peaks < 0.75 * 200  # bins below the knee
    assert ((moved - 1.1 * peaks).abs() <= 1)[low].all() and low.sum() > 20
    assert (moved[1:] > moved[:-1]).all() and moved[-1] < 200
    assert (mel_filters(30, 400, RATE, warp=1.0) == plain).all()


def test_noise_is_as_far_below_a_sound_as_its_range_says() -> None:
    wave, random = tone(500), np.random.default_rng(0)
    ratios = []
    for _ in range(40):
        noise = WhiteNoise(below=(10, 20))(wave, random) - wave
        ratios.append(10 * np.log10(np.square(wave).mean() / np.square(noise).mean()))
    assert 9.5 < min(ratios) < 12 and 18 < max(ratios) < 20.5


def test_loudness_changes_by_the_decibels() -> None:
    random, wave = np.random.default_rng(0), tone(500)
    factors = [float(Gain(decibels=6)(wave, random).max() / wave.max()) for _ in range(40)]
    assert 0.5 < min(factors) < 0.6 and 1.6 < max(factors) < 2


@pytest.mark.parametrize("change", EVERY, ids=lambda change: change.kind)
def test_the_same_seed_gives_the_same_sound_and_p_0_changes_nothing(change: SoundAugmentation) -> None:
    wave = tone(500, 0.3)
    first, again = (
        (change(wave, random), change.warp(random)) for random in (np.random.default_rng(3), np.random.default_rng(3))
    )
    assert np.array_equal(first[0], again[0]) and first[1] == again[1]
    assert not np.array_equal(first[0], wave) or first[1] != 1.0
    never, random = change.replace(p=0.0), np.random.default_rng(0)
    assert np.array_equal(never(wave, random), wave) and never.warp(random) == 1.0
    assert len(change(np.zeros(0, np.float32), random)) == 0


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_masked_stretches_lie_inside_and_have_every_width_alike(axis: int) -> None:
    random, widths = np.random.default_rng(0), []
    for _ in range(600):
        *before, stretch = masked_stretch(axis, 10, 3, random)
        assert before == [slice(None)] * axis and 0 <= stretch.start <= stretch.stop <= 10
        widths.append(stretch.stop - stretch.start)
    assert all(120 < widths.count(width) < 180 for width in range(4)) and max(widths) == 3
    assert all(masked_stretch(axis, 2, 9, random)[-1].stop <= 2 for _ in range(20))
