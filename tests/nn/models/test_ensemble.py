"""Ensembles of models: their probabilities against float64, their caches, and what is refused."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor

import qkv
from qkv.generation import generate
from qkv.nn.models.ensemble import EnsembleModel
from qkv.nn.models.fused_step.step import FusedStep
from qkv.nn.models.heads.sequence import SequenceClassifier
from qkv.nn.models.heads.text import Span, TokenClassifier
from qkv.nn.models.recurrent.model import Recurrent

SIZES: dict[str, Any] = {"vocab_size": 7, "d_model": 16, "n_heads": 2, "d_ff": 16}
WEIGHTS = [0.5, 0.3, 0.2]


def decoder(seed: int, n_layers: int = 1, dtype: torch.dtype = torch.float64) -> Any:
    return qkv.build(qkv.preset("gpt2", n_layers=n_layers, **SIZES), seed=seed, dtype=dtype).eval()


def translator(seed: int) -> Any:
    spec = qkv.preset("transformer", n_layers=1, **SIZES)
    return qkv.build(spec, seed=seed, dtype=torch.float64).eval()


def recurrent(seed: int) -> Any:
    spec = Recurrent(vocab_size=7, d_e=8, d_h=8, d_s=8)
    return qkv.build(spec, seed=seed, dtype=torch.float64).eval()


def mean(models: list[Any], mode: str, *inputs: Tensor) -> Tensor:
    """log p of every next token, from the equation."""
    p = [model(*inputs).softmax(-1) for model in models]
    if mode == "linear":
        return sum(w * one for w, one in zip(WEIGHTS, p, strict=False)).log()  # type: ignore[union-attr]
    product = torch.stack([one**w for w, one in zip(WEIGHTS, p, strict=False)]).prod(0)
    return (product / product.sum(-1, keepdim=True)).log()


@pytest.mark.parametrize("mode", ["linear", "log_linear"])
def test_the_mean_of_probabilities(mode: Any) -> None:
    models = [decoder(0), decoder(1, n_layers=2), decoder(2)]
    ids = torch.randint(7, (2, 5))
    expected = mean(models, mode, ids)
    ensemble = EnsembleModel(models, [5, 3, 2], mode)
    torch.testing.assert_close(ensemble(ids), expected)
    sums = ensemble(ids, labels=ids.masked_fill(ids == 3, -100))
    chosen = expected.gather(-1, ids[..., None]).squeeze(-1)[ids != 3]
    torch.testing.assert_close(sums.nll, -chosen.sum())


@pytest.mark.parametrize("mode", ["linear", "log_linear"])
def test_cached_steps_equal_a_full_pass(mode: Any) -> None:
    """A Transformer and a recurrent network together, each with its own cache."""
    models = [translator(0), recurrent(1)]
    ensemble = EnsembleModel(models, [0.5, 0.3], mode)
    source, target = torch.randint(7, (2, 4)), torch.randint(7, (2, 5))
    whole, cache = ensemble(source, target), ensemble.start(source=source, capacity=8)
    torch.testing.assert_close(ensemble.step(target[:, :2], cache, all_positions=True), whole[:, :2])
    for t in range(2, 5):
        torch.testing.assert_close(ensemble.step(target[:, t : t + 1], cache), whole[:, t])


@pytest.mark.parametrize("penalty", [0.0, 1.0])
def test_beams_find_the_best_of_all_outputs(penalty: float) -> None:
    """7 tokens, up to 3 of them: 49 beams lose none, so the search is exhaustive."""
    models, eos, source = [translator(seed) for seed in range(3)], 0, torch.tensor([[3, 5]])
    prefixes = torch.tensor([(1, a, b) for a in range(7) for b in range(7)])
    log_p = mean(models, "linear", source.expand(49, -1), prefixes).tolist()

    def score(output: tuple[int, ...]) -> float:
        a, b = (*output, 0, 0)[:2]
        return sum(log_p[7 * a + b][t][token] for t, token in enumerate(output)) / len(output) ** penalty

    complete = [
        (*body, last)
        for n in range(3)
        for body in itertools.product(range(1, 7), repeat=n)
        for last in ([eos] if n < 2 else range(7))
    ]
    best = sorted(complete, key=score, reverse=True)[:4]
    options: dict[str, Any] = {"num_beams": 49, "num_samples": 4, "max_new_tokens": 3, "early_stopping": "never"}
    ensemble = EnsembleModel(models, [0.5, 0.3, 0.2])
    out = generate(ensemble, [[3, 5]], bos_id=1, eos_id=eos, length_penalty=penalty, **options)
    assert [tuple(tokens) for tokens in out.sequences[0]] == best
    assert out.scores is not None and out.scores[0] == pytest.approx([score(one) for one in best], abs=1e-5)


def test_greedy_decoding_samples_and_speculation_follow_the_mean() -> None:
    models = [decoder(seed, dtype=torch.float32) for seed in range(3)]
    ensemble, ids = EnsembleModel(models), [2, 4]
    for _ in range(6):
        p = sum(model(torch.tensor([ids])).softmax(-1) for model in models)
        ids.append(int(p[0, -1].argmax()))  # type: ignore[index]
    plain = generate(ensemble, [[2, 4], [5]], max_new_tokens=6)
    assert plain.sequences[0][0] == ids[2:]
    assert generate(ensemble, [[2, 4], [5]], max_new_tokens=6, speculate="lookup").sequences == plain.sequences
    assert generate(ensemble, [[2, 4]], max_new_tokens=6, draft=models[0]).sequences[0] == plain.sequences[0]
    drawn = generate(ensemble, [[2]], max_new_tokens=1, num_samples=4000, temperature=1.0, seed=0)
    counts = torch.tensor([tokens[0] for tokens in drawn.sequences[0]]).bincount(minlength=7) / 4000
    torch.testing.assert_close(counts, ensemble(torch.tensor([[2]]))[0, -1].exp(), atol=0.04, rtol=0)


def test_each_models_steps_run_in_one_call_of_cpp_as_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    models = [decoder(seed, dtype=torch.float32) for seed in range(2)]
    run, used = FusedStep.__call__, set[int]()

    def counted(self: FusedStep, *args: Any, **more: Any) -> Any:
        used.add(id(self.stack))
        return run(self, *args, **more)

    monkeypatch.setattr(FusedStep, "__call__", counted)
    for model in models:
        generate(model, [[2, 4]], max_new_tokens=4)
    alone = set(used)
    used.clear()
    generate(EnsembleModel(models), [[2, 4]], max_new_tokens=4)
    assert used == alone


def test_tags_classes_yes_or_no_and_numbers() -> None:
    ids = torch.randint(7, (2, 4))

    def built(head: Any) -> list[Any]:
        spec = qkv.preset("bert-base", n_layers=1, **SIZES).replace({"head": head, "classification_head": None})
        return [qkv.build(spec, seed=seed, dtype=torch.float64).eval() for seed in range(2)]

    for head in (TokenClassifier(labels=3), SequenceClassifier(labels=3)):
        models = built(head)
        expected = sum(model(ids).softmax(-1) for model in models) / 2  # type: ignore[operator]
        torch.testing.assert_close(EnsembleModel(models)(ids).softmax(-1), expected)
    models = built(SequenceClassifier(labels=3))  # several classes at once
    expected = sum(model(ids).sigmoid() for model in models) / 2  # type: ignore[operator]
    torch.testing.assert_close(EnsembleModel(models, multi_label=True)(ids).sigmoid(), expected)
    numbers = built(SequenceClassifier(labels=1))
    torch.testing.assert_close(EnsembleModel(numbers, [3, 1])(ids), 0.75 * numbers[0](ids) + 0.25 * numbers[1](ids))


def test_what_can_not_be_averaged_is_refused() -> None:
    one = decoder(0)
    wider = qkv.build(qkv.preset("gpt2", n_layers=1, **SIZES | {"vocab_size": 9}))
    span = qkv.build(
        qkv.preset("bert-base", n_layers=1, **SIZES).replace({"head": Span(), "classification_head": None})
    )
    for models, options, message in [
        ([], {}, "at least one model"),
        ([one, wider], {}, "the same outputs, not 7 classes and 9 classes"),
        ([span, span], {}, "the head 'span' has none"),
        ([one, one], {"weights": [1]}, "1 weights for 2 models"),
        ([one, one], {"weights": [1, 0]}, "positive number, not 0"),
        ([one, one], {"mode": "log-linear"}, "did you mean 'log_linear'|log_linear"),
    ]:
        with pytest.raises(ValueError, match=message):
            EnsembleModel(models, **options)
    with pytest.raises(ValueError, match="no hidden states"):
        EnsembleModel([one, one]).hidden(torch.zeros(1, 2, dtype=torch.long))
