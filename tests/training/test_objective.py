import pytest
import torch
from torch.nn import functional as F
from train_stand_in import Tiny, batch, train

import qkv
from qkv.core.batch import IGNORE, Batch, Term, Terms
from qkv.nn.layers.moe import MixtureOfExperts
from qkv.nn.models.heads.language_model import LanguageModel
from qkv.training.objective import NextToken, Objective, SequenceToSequence


def test_next_token_minimizes_the_smoothed_loss_and_reports_the_plain_one():
    model, one = Tiny().eval(), batch(0)
    term = NextToken(label_smoothing=0.2)(model, one)["loss"]
    plain = NextToken()(model, one)["loss"]
    assert term.count == one.counts["loss"] and term.weight == 1.0
    assert torch.equal(term.value, plain.sum) and not torch.equal(term.sum, plain.sum)


def test_sequence_to_sequence_wants_a_target_side_and_labels():
    with pytest.raises(ValueError, match="no target side"):
        SequenceToSequence()(Tiny(), batch(0))
    with pytest.raises(ValueError, match="needs batches with labels"):
        NextToken()(Tiny(), Batch({"ids": batch(0).inputs["ids"]}))
    one = batch(0)
    pair = Batch({**one.inputs, "target": one.inputs["ids"]}, one.labels, one.counts)
    assert SequenceToSequence()(Tiny(), pair)["loss"].count == one.counts["loss"]


@pytest.mark.parametrize("smoothing", [-0.1, 1.0])
def test_smoothing_out_of_range_is_refused(smoothing):
    with pytest.raises(ValueError, match="label_smoothing"):
        Objective.from_dict({"kind": "next-token", "label_smoothing": smoothing})


class Small(Objective, kind="small-weights-test"):
    """An objective from outside the package, with its own term."""

    def counts(self, batch: Batch) -> dict[str, int]:
        return {**batch.counts, "size": 1}

    def __call__(self, model, batch: Batch) -> Terms:
        terms = NextToken()(model, batch)
        return {**terms, "size": Term(model.layer.weight.square().sum(), count=1, weight=0.5)}


def test_a_new_objective_trains_and_its_terms_are_logged(tmp_path):
    from qkv.training.logging.metrics_file import read_metrics

    train(tmp_path, objective=Objective.from_dict({"kind": "small-weights-test"}))
    line = next(line for line in read_metrics(tmp_path / "metrics.jsonl") if line["type"] == "train")
    assert line["terms"].keys() == {"loss", "size"}
    assert line["loss"] == pytest.approx(line["terms"]["loss"] + 0.5 * line["terms"]["size"])


def test_a_term_without_a_count_known_before_is_refused(tmp_path):
    class Uncounted(Small, kind="uncounted-test"):
        def counts(self, batch: Batch) -> dict[str, int]:
            return batch.counts

    with pytest.raises(ValueError, match=r"'size' has no count before"):
        train(tmp_path, objective=Uncounted())


# -- z-loss, and what layers add ----------------------------------------------------------------------------------------


def language_model(**head) -> tuple[torch.nn.Module, Batch]:
    spec = qkv.preset("gpt2", vocab_size=13, d_model=16, n_layers=1, n_heads=2, max_positions=8, dropout=0.0)
    model = qkv.build(spec.replace(head=LanguageModel(**head)), dtype=torch.float64).train()
    torch.nn.init.normal_(model.decoder.embedding.weight)
    return model, batch(0)


@pytest.mark.parametrize("head", [{}, {"fused": False}, {"tied": False, "bias": True}, {"softcap": 3.0}], ids=str)
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_z_loss_is_the_plain_formula(head, smoothing):
    model, one = language_model(**head)
    terms = NextToken(z_loss=0.1, label_smoothing=smoothing)(model, one)
    terms["loss"].sum.backward()
    found = {name: p.grad.clone() for name, p in model.named_parameters()}
    model.zero_grad()
    logits, labels = model(**one.inputs).flatten(0, 1), one.labels.flatten()
    kept = labels != IGNORE
    smoothed = F.cross_entropy(logits[kept], labels[kept], reduction="sum", label_smoothing=smoothing)
    log_z = logits[kept].logsumexp(-1).square().sum()
    (smoothed + 0.1 * log_z).backward()
    torch.testing.assert_close(found, {name: p.grad for name, p in model.named_parameters()})
    torch.testing.assert_close(terms["loss"].sum, smoothed + 0.1 * log_z)
    torch.testing.assert_close(terms["loss"].value, F.cross_entropy(logits[kept], labels[kept], reduction="sum"))
    assert ("z" in terms) == (smoothing == 0)
    if "z" in terms:
        torch.testing.assert_close(terms["z"].sum, log_z.detach())
        assert terms["z"].weight == 0 and terms["z"].over == "loss"


def test_evaluation_knows_no_z_loss():
    model, one = language_model()
    assert NextToken(z_loss=0.1)(model.eval(), one).keys() == {"loss"}
    torch.testing.assert_close(NextToken(z_loss=0.1)(model, one)["loss"].sum, NextToken()(model, one)["loss"].sum)
    with pytest.raises(ValueError, match="z_loss"):
        NextToken(z_loss=-1.0)


def experts(**options) -> torch.nn.Module:
    layer = MixtureOfExperts(n_experts=4, d_ff=8, **options)
    spec = qkv.preset("gpt2", vocab_size=13, d_model=16, n_layers=2, n_heads=2, max_positions=8, dropout=0.0)
    return qkv.build(spec.replace({"decoder.blocks.*.feedforward": layer}), dtype=torch.float64).train()


def test_what_layers_add_becomes_terms_that_weigh_as_their_labels():
    model, one = experts(balance_weight=0.5, capacity=1.0), batch(0)
    terms, n = NextToken()(model, one), one.counts["loss"]
    extras = model(**one.inputs, labels=one.labels).extras
    assert terms.keys() == {"loss", "expert_load", "router_entropy", "expert_dropped", "balance"}
    assert terms["balance"].weight == 1 and terms["balance"].over == "loss"
    torch.testing.assert_close(terms["balance"].sum / n, extras["balance"].loss)
    torch.testing.assert_close(terms["balance"].value / n, extras["balance"].value)
    assert all(terms[name].weight == 0 for name in ("expert_load", "router_entropy", "expert_dropped"))
    assert NextToken()(model.eval(), one).keys() == {"loss"}


def test_balance_is_on_by_default_and_logged(tmp_path):
    from qkv.training.logging.metrics_file import read_metrics

    train(tmp_path, model=experts(router_z=0.01), objective=NextToken(), evaluate=None)
    line = next(line for line in read_metrics(tmp_path / "metrics.jsonl") if line["type"] == "train")
    assert line["terms"].keys() == {"loss", "expert_load", "router_entropy", "balance", "router_z"}
    assert 1.0 <= line["terms"]["expert_load"] <= 4.0 and line["nll"] == line["terms"]["loss"] < line["loss"]
    added = 2 * 0.01 * line["terms"]["balance"] + 2 * 0.01 * line["terms"]["router_z"]  # of two layers
    assert line["loss"] == pytest.approx(line["nll"] + added, rel=1e-5)


@pytest.mark.parametrize(
    ("given", "named"), [({"loss": torch.ones(())}, "values of type Tensor"), (torch.ones(()), "gives Tensor")]
)
def test_what_is_no_term_is_refused_with_what_is_wanted(tmp_path, given, named):
    class Odd(Objective, kind=f"odd-{type(given).__name__}-test"):
        def __call__(self, model, batch: Batch) -> Terms:
            return given

    with pytest.raises(ValueError, match=rf"objective 'odd-.*-test' .*{named}.*Term\(sum, count\)"):
        train(tmp_path, objective=Odd())
