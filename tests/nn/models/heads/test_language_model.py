"""The head that predicts tokens, and its fused loss."""

from __future__ import annotations

import pytest
import torch

from qkv.nn.models.heads.language_model import LanguageModel

M, V = 6, 11


@pytest.mark.parametrize("options", [{}, {"bias": True}, {"scale": "rsqrt"}, {"softcap": 3.0, "bias": True}])
def test_logits_and_both_losses(options: dict) -> None:
    hidden, labels = torch.randn(2, 4, M, dtype=torch.float64, requires_grad=True), torch.randint(V, (2, 4))
    labels[0, 0] = -100
    results = []
    for fused in (True, False):
        torch.manual_seed(1)
        head = LanguageModel(tied=False, fused=fused, **options).module(M, V).double()
        for parameter in head.parameters():
            torch.nn.init.normal_(parameter)
        sums = head.loss(hidden, labels, 0.1)
        results.append((sums.loss, sums.nll, *torch.autograd.grad(sums.loss, [hidden, *head.parameters()])))
    torch.testing.assert_close(*results)
    z = hidden * (M**-0.5 if options.get("scale") else 1.0) @ head.weight.T
    z = z + head.bias if head.bias is not None else z
    torch.testing.assert_close(head(hidden), 3 * torch.tanh(z / 3) if options.get("softcap") else z)
    nll = -head(hidden).log_softmax(-1).gather(-1, labels.clamp(min=0)[..., None])[..., 0][labels >= 0].sum()
    torch.testing.assert_close(results[0][1], nll.detach())


@pytest.mark.parametrize("tied, bias, expected", [(True, False, 0), (True, True, V), (False, True, V * M + V)])
def test_what_the_head_adds(tied: bool, bias: bool, expected: int) -> None:
    assert LanguageModel(tied=tied, bias=bias).cost(M, V, 3).parameters == expected
    assert LanguageModel().cost(M, V, 3).flops == 2 * V * M * 3
