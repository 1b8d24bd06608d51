"""Feature maps: what φ is, that random ones estimate the soft-max kernel, and that a new one is one class."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from qkv.nn.attention.feature_maps import Elu1, Favor, FeatureMap, Features, Relu

D = 8


def vectors(count: int, size: float, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return size * torch.randn(1, count, 1, D, generator=generator, dtype=torch.float64)


def estimate(favor: Favor, q: Tensor, k: Tensor, name: str) -> Tensor:
    """φ(q)·φ(k)/m, what exp(q·k) is estimated by."""
    w = favor.directions(D, name)
    (a, a_log), (b, b_log) = favor.features(q, w), favor.features(k, w)
    return torch.einsum("bthr,bthr,bth,bth->bth", a, b, a_log.exp(), b_log.exp()) / favor.n_features


def test_fixed_maps_follow_their_formulas() -> None:
    x = vectors(20, 3.0)
    torch.testing.assert_close(Elu1().features(x).values, F.elu(x) + 1)
    torch.testing.assert_close(Relu().features(x).values, x.clamp(min=0))
    assert float(Elu1().features(torch.tensor(-40.0)).values) > 0  # although elu(x) + 1 rounds to 0


@pytest.mark.parametrize("orthogonal", [True, False])
def test_random_features_estimate_the_softmax_kernel(orthogonal: bool) -> None:
    q, k = vectors(16, 0.35), vectors(16, 0.35, seed=1)
    favor = Favor(n_features=64, orthogonal=orthogonal)
    runs = torch.stack([estimate(favor, q, k, f"layer {i}") for i in range(600)])
    wanted = torch.einsum("bthd,bthd->bth", q, k).exp()
    error = runs.std(0) / len(runs) ** 0.5
    assert bool(((runs.mean(0) - wanted).abs() < 5 * error).all()), "the estimate is biased"


def test_orthogonal_directions_have_less_variance() -> None:
    q, k = vectors(16, 0.5), vectors(16, 0.5, seed=1)
    spread = [
        torch.stack([estimate(Favor(n_features=D, orthogonal=o), q, k, f"{i}") for i in range(300)]).var(0).mean()
        for o in (True, False)
    ]
    assert spread[0] < 0.9 * spread[1]


def test_directions_are_orthogonal_with_random_lengths() -> None:
    favor = Favor(n_features=20)
    w = favor.directions(D, "decoder.blocks.0.attention")
    assert w.shape == (20, D) and w.dtype == torch.float32
    product = w[:D] @ w[:D].T
    torch.testing.assert_close(product, torch.diag(product.diagonal()), atol=1e-5, rtol=0)
    assert len(set(product.diagonal().tolist())) == D, "lengths are as of independent directions"
    assert torch.equal(w, favor.directions(D, "decoder.blocks.0.attention"))
    assert not torch.equal(w, favor.directions(D, "decoder.blocks.1.attention"))
    assert not torch.equal(w, favor.replace(seed=1).directions(D, "decoder.blocks.0.attention"))


def test_features_stay_within_range() -> None:
    """Vectors of length 50: e^(w·x − |x|²/2) itself is 0 in single precision."""
    favor = Favor(n_features=32)
    values, log = favor.features(vectors(5, 18.0).float(), favor.directions(D, ""))
    assert bool((values.amax(-1) == 1).all()) and bool((log < -200).all())


def test_a_new_map_is_one_class() -> None:
    class Squared(FeatureMap, kind="squared-relu-of-a-test"):
        def features(self, x: Tensor, directions: Tensor | None) -> Features:
            return Features(F.relu(x).square())

    try:
        assert FeatureMap.from_dict({"kind": "squared-relu-of-a-test"}) == Squared()
        assert Squared().width(16) == 16 and Squared().directions(16, "") is None
    finally:
        del FeatureMap.kinds["squared-relu-of-a-test"]


def test_wrong_values_are_refused() -> None:
    with pytest.raises(ValueError, match="n_features"):
        Favor(n_features=0)
    with pytest.raises(ValueError, match="did you mean 'favor'"):
        FeatureMap.from_dict({"kind": "favour"})
