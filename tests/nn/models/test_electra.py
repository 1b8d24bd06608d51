from __future__ import annotations

from pathlib import Path

import pytest
import torch

import qkv
from qkv.core.batch import IGNORE
from qkv.core.layout import Layout
from qkv.io.directories.build import build
from qkv.io.families.electra import electra
from qkv.nn.models.electra import ReplacedTokens, ReplacedTokensHead, published, sample
from qkv.nn.models.replace import replace
from qkv.nn.models.transformer import TransformerModel
from qkv.runs.inference.run import Run, load

VOCAB = 50


def spec(**head: float) -> qkv.Transformer:
    made = electra(vocab_size=VOCAB, embedding_size=12, d_model=32, n_layers=2, n_heads=4, d_ff=48, max_positions=16)
    return made.replace(head=ReplacedTokens.from_dict(head))


def head_of(model: TransformerModel) -> ReplacedTokensHead:
    assert isinstance(model.head, ReplacedTokensHead)
    return model.head


def test_the_generator_is_a_share_of_the_model_and_shares_its_tables() -> None:
    made = spec(generator=0.5)
    model = build(made)
    generator = head_of(model).generator
    assert generator.spec.d_model == 16 and generator.spec.vocab_size == VOCAB
    assert generator.encoder is not None and model.encoder is not None
    assert generator.encoder.embedding.weight is model.encoder.embedding.weight is generator.head.weight  # type: ignore[union-attr]
    assert generator.encoder.position.weight is model.encoder.position.weight
    assert made.n_parameters == sum(p.numel() for p in model.parameters())
    assert qkv.Transformer.from_json(made.to_json()) == made


@pytest.mark.parametrize("share", [0.25, 0.5, 1.0])
def test_parameters_are_counted_whatever_its_size(share: float) -> None:
    made = spec(generator=share)
    assert made.n_parameters == sum(p.numel() for p in build(made).parameters())


def test_tables_stay_shared_when_parameters_are_replaced() -> None:
    model = build(spec()).double()
    model.load_state_dict({k: v.clone() for k, v in model.state_dict().items()}, assign=True)
    generator = head_of(model).generator
    assert generator.encoder.embedding.weight is model.encoder.embedding.weight  # type: ignore[union-attr]


def test_what_the_generator_hits_is_real() -> None:
    model = build(spec()).eval()
    ids = torch.randint(5, VOCAB, (3, 10), generator=torch.Generator().manual_seed(0))
    labels = torch.full_like(ids, IGNORE)
    labels[:, 2:7] = ids[:, 2:7]
    masked = ids.where(labels == IGNORE, 4)
    inputs = {"ids": masked, "layout": Layout.full(10)}
    with torch.no_grad():
        generator = head_of(model).generator
        assert generator.head is not None
        generator.head.bias[7] = 100.0  # it always says 7
        made = head_of(model).replace(inputs, labels)
        again = head_of(model).replace(inputs, labels)
    assert (made.ids[:, 2:7] == 7).all() and torch.equal(made.ids, again.ids)
    assert torch.equal(made.replaced, (made.ids != ids)) and torch.equal(made.ids[:, 7:], ids[:, 7:])
    assert int(made.sums.n_labels) == 15


def test_words_are_drawn_from_the_softmax() -> None:
    logits = torch.tensor([0.5, 0.3, 0.2]).log().expand(30_000, 3)
    shares = torch.bincount(sample(logits, 1), minlength=3) / 30_000
    assert (shares - torch.tensor([0.5, 0.3, 0.2])).abs().max() < 0.02


def test_the_discriminator_is_what_other_libraries_get(tmp_path: Path) -> None:
    model = build(spec()).eval()
    kept = published(model)
    assert kept.spec == model.spec.replace(head=model.spec.head.kept())  # type: ignore[union-attr]
    ids = torch.randint(5, VOCAB, (2, 9))
    Run(kept, None, task="read").save(tmp_path, to="hub")
    again = load(tmp_path, device="cpu").model
    torch.testing.assert_close(again(ids), model(ids))
    theirs = pytest.importorskip("transformers").ElectraForPreTraining.from_pretrained(tmp_path).eval()
    with torch.no_grad():
        torch.testing.assert_close(theirs(ids).logits, model(ids)[..., 0], atol=1e-5, rtol=1e-5)


def test_another_head_has_no_generator() -> None:
    changed = replace(build(spec()), {"head": {"kind": "sequence-classifier", "labels": 3}})
    assert all(name.startswith("head.") for name in changed.gone)
    assert any(name.startswith("head.generator") for name in changed.gone)
    assert all(name.startswith("head.") for name in changed.new)


def test_decoders_have_none() -> None:
    made = qkv.preset("gpt", vocab_size=VOCAB, d_model=16, n_layers=1, n_heads=2, max_positions=8)
    with pytest.raises(ValueError, match="is for encoders of tokens"):
        build(made.replace(head=ReplacedTokens()))
