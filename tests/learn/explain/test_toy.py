"""The models of worked examples: weights that a reader can write down, the same on every machine."""

from __future__ import annotations

import torch

from qkv.learn.explain.toy import language_model, round_weights, translator


def test_weights_are_multiples_of_a_fifth_between_minus_one_and_one() -> None:
    layer = torch.nn.Linear(4, 3)
    round_weights(layer)
    # ((7 row + 3 column + row column) mod 11 − 5) / 5
    wanted = torch.tensor([[-5, -2, 1, 4], [2, -5, -1, 3], [-2, 3, -3, 2]]) / 5
    assert torch.equal(layer.weight, wanted)


def test_examples_read_words_that_they_know() -> None:
    torch.manual_seed(1)
    for subject in (language_model(), translator(), translator(written=4)):
        assert subject.words is not None and [subject.words[i] for i in subject.ids] == list(subject.tokens)
        for parameter in subject.model.parameters():
            if parameter.ndim > 1:
                assert torch.equal((5 * parameter).round() / 5, parameter) and parameter.abs().max() <= 1
    assert len(translator(written=4).target_tokens or ()) == 5
    one, other = language_model().model, language_model().model
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))
