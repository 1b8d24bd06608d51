import pytest
import torch
from train_stand_in import Tiny, batch, train

from qkv.core.batch import Batch, Term, Terms
from qkv.train.objective import NextToken, Objective, SequenceToSequence


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
    """An objective from outside the package, with a term of its own."""

    def counts(self, batch: Batch) -> dict[str, int]:
        return {**batch.counts, "size": 1}

    def __call__(self, model, batch: Batch) -> Terms:
        terms = NextToken()(model, batch)
        return {**terms, "size": Term(model.layer.weight.square().sum(), count=1, weight=0.5)}


def test_a_new_objective_trains_and_its_terms_are_logged(tmp_path):
    from qkv.train.metrics import read_metrics

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
