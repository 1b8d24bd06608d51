"""PSNR and SSIM beside scikit-image, whose values are written down too."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter

from qkv.core.metrics.pictures import psnr, ssim


def pair(channels: int, height: int, width: int) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    random = np.random.default_rng(7)
    truth = gaussian_filter(random.uniform(0, 255, (channels, height, width)), (0, 2, 2))
    truth = (truth - truth.min()) * 255 / (truth.max() - truth.min())
    noisy = truth + 20 * random.standard_normal(truth.shape)
    return noisy.clip(0, 255).astype(np.uint8), truth.astype(np.uint8)


# skimage.metrics 0.26: peak_signal_noise_ratio, and structural_similarity with gaussian_weights=True, sigma=1.5,
# use_sample_covariance=False, data_range=255, channel_axis=0.
PUBLISHED = {(1, 28, 28): (21.84376121, 0.59119682), (3, 20, 33): (22.15037471, 0.58433853)}


@pytest.mark.parametrize("shape", PUBLISHED)
def test_they_are_scikit_images(shape: tuple[int, int, int]) -> None:
    assert (psnr(*pair(*shape)), ssim(*pair(*shape))) == pytest.approx(PUBLISHED[shape], abs=1e-6)


@pytest.mark.parametrize("shape", [*PUBLISHED, (1, 11, 11), (2, 64, 12)])
def test_they_are_those_of_the_installed_scikit_image(shape: tuple[int, int, int]) -> None:
    metrics = pytest.importorskip("skimage.metrics")
    made, truth = pair(*shape)
    assert psnr(made, truth) == pytest.approx(metrics.peak_signal_noise_ratio(truth, made, data_range=255))
    weighted = {"gaussian_weights": True, "sigma": 1.5, "use_sample_covariance": False}
    expected = metrics.structural_similarity(made, truth, data_range=255, channel_axis=0, **weighted)
    assert ssim(made, truth) == pytest.approx(expected)


def test_values_by_hand() -> None:
    black, gray = np.zeros((1, 16, 16), np.uint8), np.full((1, 16, 16), 51, np.uint8)
    assert psnr(gray, black) == pytest.approx(20 * math.log10(5))  # every pixel is off by a fifth of white
    assert psnr(black, black) == pytest.approx(10 * math.log10(255**2 * 256))
    c1 = (0.01 * 255) ** 2
    assert ssim(gray, black) == pytest.approx(c1 / (51**2 + c1))  # flat pictures differ in luminance alone
    assert ssim(gray, gray) == pytest.approx(1)
    stripes = np.tile(np.uint8([0, 255]), (1, 16, 8))
    assert ssim(stripes, 255 - stripes) < -0.9


@pytest.mark.parametrize("side", [1, 2, 8, 10])
def test_small_pictures_have_a_smaller_window(side: int) -> None:
    made, truth = pair(1, 32, 32)
    made, truth = made[:, :side, :side], truth[:, :side, :side]
    assert ssim(truth, truth) == pytest.approx(1) and -1 <= ssim(made, truth) < 1


def test_pictures_of_other_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match="both of one shape"):
        psnr(np.zeros((1, 4, 4)), np.zeros((1, 4, 5)))
    with pytest.raises(ValueError, match=r"\(C, H, W\)"):
        ssim(np.zeros((4, 4)), np.zeros((4, 4)))
