"""Token embeddings: each part of dropout(norm(scale · E[token] + position + type)), and the projection."""

from __future__ import annotations

import pytest
import torch

from qkv.nn.layers.embedding import Embedding, TokenEmbedding
from qkv.nn.layers.norm import LayerNorm, RMSNorm

IDS = torch.tensor([[1, 4, 1], [0, 2, 2]])
TYPES = torch.tensor([[0, 0, 1], [1, 0, 1]])


def made(spec: Embedding, d_model: int = 8) -> TokenEmbedding:
    module = TokenEmbedding(spec, 5, d_model).double()
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter)
    return module.eval()


@pytest.mark.parametrize("width", [None, 8, 4])
@pytest.mark.parametrize("scale", ["none", "sqrt"])
@pytest.mark.parametrize("token_types", [0, 2])
@pytest.mark.parametrize("norm", ["none", "layernorm"])
def test_outputs_match_the_equation(width: int | None, scale: str, token_types: int, norm: str) -> None:
    spec = Embedding.from_dict({"width": width, "scale": scale, "token_types": token_types, "norm": norm})
    module, w = made(spec), width or 8
    position = torch.randn(1, 3, w, dtype=torch.float64)
    out = module(IDS, position, TYPES if token_types else None)
    x = module.weight[IDS] * (w**0.5 if scale == "sqrt" else 1.0) + position
    if module.types is not None:
        x = x + module.types[TYPES]
    x = module.norm(x)
    expected = x if w == 8 else x @ module.project.weight.T + module.project.bias  # type: ignore[union-attr, operator]
    torch.testing.assert_close(out, expected)
    own = sum(p.numel() for n, p in module.named_parameters() if n != "weight")
    assert spec.cost(8, 5).parameters == own


def test_no_token_types_given_means_the_first() -> None:
    module = made(Embedding(token_types=2))
    assert torch.equal(module(IDS, None), module(IDS, None, torch.zeros_like(IDS)))
    assert not torch.equal(module(IDS, None), module(IDS, None, TYPES))


def test_where_there_is_one_type_all_tokens_are_of_it() -> None:
    """RoBERTa's way, whichever types a pair of texts comes with."""
    module = made(Embedding(token_types=1))
    assert torch.equal(module(IDS, None, TYPES), module(IDS, None))


def test_positions_keep_the_models_dtype() -> None:
    module = made(Embedding(norm=RMSNorm())).bfloat16()
    assert module(IDS, torch.randn(1, 3, 8)).dtype == torch.bfloat16


def test_dropout_comes_after_the_norm() -> None:
    module = made(Embedding(norm=LayerNorm(), dropout=0.5)).train()
    out, whole = module(IDS, None), module.norm(module.weight[IDS])
    kept = out != 0
    assert 5 < kept.sum() < 43
    torch.testing.assert_close(out[kept], 2 * whole[kept])


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (IDS + 3, "token ids range from 3 to 7, and the vocabulary has 5; give ids from 0 to 4"),
        (IDS - 2, "token ids range from -2 to 2, and the vocabulary has 5; give ids from 0 to 4"),
        (IDS.float(), r"token ids are integers, not float32; use .long\(\)"),
        (IDS.tolist(), "token ids are a tensor of integers, not list"),
    ],
)
def test_ids_without_a_row_are_refused_in_one_sentence(ids: torch.Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        made(Embedding())(ids, None)


def test_token_types_without_a_row_or_for_other_tokens_are_refused() -> None:
    module = made(Embedding(token_types=2))
    with pytest.raises(ValueError, match="token types range from 0 to 2, and the table of token types has 2"):
        module(IDS, None, TYPES * 2)
    with pytest.raises(ValueError, match=r"token types have the shape \(2, 2\) and the ids \(2, 3\)"):
        module(IDS, None, TYPES[:, :2])


def test_a_projection_costs_its_products_and_adds_its_bias_to_the_parameters_alone() -> None:
    spec = Embedding(width=4)
    assert spec.cost(8, 10, tokens=3).flops == 3 * 2 * 4 * 8
    assert (
        spec.cost(8, 10).parameters == sum(p.numel() for p in made(spec).parameters()) - 4 * made(spec).weight.shape[0]
    )
