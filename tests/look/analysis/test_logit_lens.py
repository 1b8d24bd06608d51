"""The logit lens: the last layer is the model, and the embedding is the table's own prediction."""

from __future__ import annotations

import pytest
import torch

from qkv.io.families import preset
from qkv.look.analysis.logit_lens import logit_lens
from qkv.nn.models.build import build

IDS = torch.tensor([[3, 1, 4, 1, 5], [9, 2, 6, 5, 3]])
SMALL = {"vocab_size": 11, "d_model": 8, "n_layers": 3, "n_heads": 2}


@torch.no_grad()
def test_the_last_layer_predicts_what_the_model_does():
    model = build(preset("gpt2", **SMALL, max_positions=16), seed=0).eval()
    lens = logit_lens(model, IDS, top_k=3)
    logits = model(IDS).log_softmax(-1)
    top = logits.topk(3)
    assert [layer.name for layer in lens] == ["decoder.embedding", *(f"decoder.layers.{i}.output" for i in range(3))]
    assert torch.equal(lens[-1].top, top.indices)
    torch.testing.assert_close(lens[-1].probabilities, top.values.exp())
    assert not lens[-1].divergence.any() and not lens[-1].rank.any()


@torch.no_grad()
def test_a_middle_layer_is_the_norm_and_the_head_of_its_stream():
    model = build(preset("llama", **SMALL), seed=0).eval()
    lens = logit_lens(model, IDS)
    x = model.decoder.embedding(IDS, None)
    logs = model.head(model.decoder.norm(x)).log_softmax(-1)
    torch.testing.assert_close(lens[0].probabilities, logs.exp().topk(5).values)
    torch.testing.assert_close(lens[0].entropy, torch.distributions.Categorical(logits=logs).entropy())
    final = model(IDS).log_softmax(-1)
    kl = (final.exp() * (final - logs)).sum(-1)
    torch.testing.assert_close(lens[0].divergence, kl)
    answer = final.argmax(-1, keepdim=True)
    torch.testing.assert_close(lens[0].final, logs.exp().gather(-1, answer)[..., 0])
    assert torch.equal(lens[0].rank, (logs > logs.gather(-1, answer)).sum(-1))


def test_some_positions_alone():
    model = build(preset("gpt2", **SMALL, max_positions=16), seed=0)
    part, whole = logit_lens(model, IDS, positions=[4, 0]), logit_lens(model, IDS)
    torch.testing.assert_close(part[1].probabilities, whole[1].probabilities[:, [4, 0]])
    assert model.training


@pytest.mark.parametrize("name", ["bert-base", "transformer", "vit-base-16"])
def test_encoders_translators_and_classifiers_of_pictures(name: str):
    if name == "vit-base-16":
        model = build(
            preset("vit-base-16", image=(8, 8), patch=(4, 4), d_model=8, n_layers=2, n_heads=2, labels=7), seed=0
        )
        lens = logit_lens(model, torch.randn(2, 3, 8, 8))
        assert lens[-1].top.shape == (2, 1, 5)
    else:
        model = build(preset(name, **SMALL), seed=0)
        lens = logit_lens(model, *([IDS, IDS[:, :3]] if name == "transformer" else [IDS]))
        assert lens[-1].top.shape == (2, 3 if name == "transformer" else 5, 5)
    assert len(lens) == (3 if name == "vit-base-16" else 4)


def test_models_without_a_head():
    with pytest.raises(ValueError, match="applies the head of a Transformer"):
        logit_lens(build(preset("rnnsearch", vocab_size=11, d_e=6, d_h=6, d_s=6), seed=0), IDS, IDS)
