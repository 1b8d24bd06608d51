"""Minimum-risk training and REINFORCE: rewards by hand, gradients against all outputs in float64, and what is refused."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from small_recipes import prepare
from torch import Tensor

import qkv
from qkv.core.batch import Batch
from qkv.core.layout import Layout
from qkv.training.objective import Objective, SequenceToSequence
from qkv.training.sequence_risk import GLEU, Exact, MinimumRisk, Reinforce, Reward, SentenceBLEU

BOS, EOS, WORDS = 0, 1, (2, 3, 4)
REFERENCE = [2, 3, EOS]


class Twos(Reward, kind="twos-for-test"):
    """A reward from outside: the share of an output's tokens that are 2."""

    def __call__(self, output: Any, reference: Any) -> float:
        return list(output).count(2) / max(len(output), 1)


def model() -> Any:
    spec = qkv.preset("transformer", vocab_size=5, d_model=8, n_layers=1, n_heads=2, d_ff=8, dropout=0.0)
    return qkv.build(spec, dtype=torch.float64).train()


def pair(rows: int = 1) -> Batch:
    """The same pair `rows` times, with padding in the source."""
    source, target = torch.tensor([[3, 4, 0]] * rows), torch.tensor([[BOS, *REFERENCE[:-1]]] * rows)
    layouts = {"layout": Layout.from_lengths([2] * rows, 3), "target_layout": Layout.from_lengths([3] * rows)}
    labels = torch.tensor([REFERENCE] * rows)
    return Batch({"ids": source, "target": target, **layouts}, labels, {"loss": 3 * rows})


def log_p(one: Any, outputs: list[list[int]]) -> Tensor:
    """log p of outputs, each by a forward pass alone."""
    source, values = torch.tensor([[3, 4]]), []
    for output in outputs:
        logits = one(source, torch.tensor([[BOS, *output[:-1]]]))[0].log_softmax(-1)
        values.append(logits[range(len(output)), output].sum())
    return torch.stack(values)


def gradient(one: Any, loss: Tensor) -> Tensor:
    one.zero_grad()
    loss.backward()
    return torch.cat([p.grad.flatten() for p in one.parameters() if p.grad is not None])


def test_rewards_by_hand() -> None:
    gleu, bleu = GLEU(), SentenceBLEU()
    assert gleu([2, 3, 4], [2, 3, 4]) == bleu([2, 3, 4, 2], [2, 3, 4, 2]) == 1.0
    assert gleu([2, 3], [2, 3, 4]) == 3 / 6  # 2, 3 and 2 3 of the reference's 3 + 2 + 1 n-grams
    assert gleu([], [2]) == bleu([], [2]) == bleu([4], [2]) == 0.0 and gleu([], []) == 1.0
    # Precisions 3/3, (1 + 1) / (2 + 1), (0 + 1) / (1 + 1), (0 + 1) / (0 + 1), and one token is missing of four.
    assert bleu([2, 3, 2], [2, 3, 4, 2]) == pytest.approx(math.exp(-1 / 3) * (2 / 3 * 1 / 2) ** 0.25)
    assert Exact()([2], (2,)) == 1.0 and Exact()([2, 3], [2]) == 0.0


def test_the_risk_of_a_sample_and_its_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    one, outputs = model(), [[2, EOS], [3, 4, 3], [2, EOS], [4, EOS]]

    sampled = SimpleNamespace(sequences=[outputs])
    monkeypatch.setattr("qkv.training.sequence_risk.generate", lambda *args, **more: sampled)
    objective = MinimumRisk(alpha=0.3, samples=4, reward=Twos())
    term = objective(one, pair())["risk"]
    distinct = [REFERENCE, [2, EOS], [3, 4, 3], [4, EOS]]
    q = (0.3 * log_p(one, distinct)).softmax(0)
    expected = (q * (1 - torch.tensor([1 / 2, 1, 0, 0], dtype=q.dtype))).sum()
    torch.testing.assert_close(term.sum, expected)
    torch.testing.assert_close(gradient(one, objective(one, pair())["risk"].sum), gradient(one, expected))
    reinforce, rewards = Reinforce(samples=4, reward=Twos()), torch.tensor([1.0, 0, 1, 0], dtype=q.dtype)
    terms = reinforce(one, pair())
    torch.testing.assert_close(terms["risk"].sum, -((rewards - 0.5) * log_p(one, outputs)).mean())
    assert terms["loss"].weight == 0.017 and float(terms["reward"].sum) == 0.5


def test_reinforce_climbs_the_expected_reward_of_all_outputs() -> None:
    """All outputs of at most 2 tokens; the mean of many samples' gradients is that of the expectation."""
    one, batch = model(), pair(8)
    objective = Reinforce(samples=400, reward=Twos(), max_ratio=0.1)
    object.__setattr__(objective, "max_ratio", -8 / 3)  # 10 + (−8): outputs of 2 tokens
    every = [[EOS], *([a, b] for a in (BOS, *WORDS) for b in range(5))]
    exact_log_p = log_p(one, every)
    p = exact_log_p.detach().exp()
    assert float(p.sum()) == pytest.approx(1)
    rewards = torch.tensor([Twos()(y[:-1] if y[-1] == EOS else y, ()) for y in every], dtype=torch.float64)
    exact = gradient(one, -(exact_log_p.exp() * rewards).sum())
    terms = objective(one, batch)
    assert terms["risk"].count == terms["reward"].count == 8 and objective.counts(batch)["risk"] == 8
    sampled = gradient(one, terms["risk"].sum / 8)
    assert float(torch.cosine_similarity(sampled, exact, 0)) > 0.97
    assert float(terms["reward"].sum) / 8 == pytest.approx(float((p * rewards).sum()), abs=0.03)


@pytest.mark.parametrize("kind", ["minimum-risk", "reinforce"])
def test_training_raises_the_reward(kind: str) -> None:
    one, batch = model(), pair(2)
    settings = {"alpha": 1.0, "reference": False} if kind == "minimum-risk" else {"ml_weight": 0.0}
    objective = Objective.from_dict(
        {"kind": kind, "reward": "twos-for-test", "samples": 8, "max_ratio": 0.01, **settings}
    )
    optimizer, rewards = torch.optim.Adam(one.parameters(), lr=0.02), []
    for _ in range(12):
        optimizer.zero_grad()
        terms = objective(one, batch)
        rewards.append(float(terms["reward"].sum) / 2)
        terms["risk"].sum.backward()
        optimizer.step()
    assert sum(rewards[-3:]) / 3 > sum(rewards[:3]) / 3 + 0.2, rewards


def test_evaluation_is_that_of_cross_entropy() -> None:
    one = model().eval()
    terms, plain = MinimumRisk()(one, pair()), SequenceToSequence(label_smoothing=0.0)(one, pair())
    assert terms.keys() == plain.keys() and torch.equal(terms["loss"].sum, plain["loss"].sum)


def test_what_it_needs_is_said() -> None:
    batch = pair()
    packed = Batch({**batch.inputs, "layout": Layout.packed([[1, 2]])}, batch.labels, batch.counts)
    with pytest.raises(ValueError, match=r"set batching\.packing to false"):
        Reinforce()(model(), packed)
    with pytest.raises(ValueError, match="needs an encoder–decoder"):
        prepare("reverse", ["data.train=40", "model.preset=gpt", "objective=reinforce"])
    with pytest.raises(ValueError, match="there is no reward"):
        Objective.from_dict({"kind": "reinforce", "reward": "chrff"})
