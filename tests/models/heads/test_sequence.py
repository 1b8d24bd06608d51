"""Heads for whole sequences, and what earlier versions called them."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import qkv
from qkv import load, preset
from qkv.core.layout import Layout
from qkv.models.heads.sequence import SequenceClassifier, pool
from qkv.training.checkpoints.weights import load_model, model_tensors, with_new_names

M, V = 6, 11
NAMES = {"pooler.dense": "classification_head.dense", "classifier.out": "classification_head.out"}
SMALL: dict[str, Any] = {"vocab_size": V, "d_model": M, "n_layers": 1, "n_heads": 1, "d_ff": 4, "max_positions": 8}


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("method", ["mean", "max", "first", "last"])
def test_pooling_counts_real_tokens_only(method: str, side: str) -> None:
    hidden, lengths = torch.randn(3, 5, M), [2, 5, 1]
    pooled = pool(hidden, Layout.from_lengths(lengths, side=side), method)  # type: ignore[arg-type]
    for row, n in enumerate(lengths):
        real = hidden[row, :n] if side == "right" else hidden[row, 5 - n :]
        expected = {"mean": real.mean(0), "max": real.amax(0), "first": real[0], "last": real[-1]}[method]
        torch.testing.assert_close(pooled[row], expected)


def test_pooling_an_empty_row_is_no_nan_and_a_wrong_method_is_named() -> None:
    for method in ("mean", "max"):
        assert pool(torch.randn(2, 3, M), Layout.from_lengths([0, 3]), method)[0].count_nonzero() == 0
    with pytest.raises(ValueError, match="pooling is mean, max, first or last, not 'min'"):
        pool(torch.randn(2, 3, M), Layout.full(3), "min")


def test_the_dense_pooler_is_berts() -> None:
    spec = SequenceClassifier(labels=None)
    module, hidden = spec.module(M), torch.randn(2, 3, M)
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter)
    assert module.dense is not None and module.dense.bias is not None
    expected = torch.tanh(hidden[:, 0] @ module.dense.weight.T + module.dense.bias)
    torch.testing.assert_close(module(hidden, Layout.full(3)), expected)
    torch.testing.assert_close(module.pooled(hidden, Layout.full(3)), expected)
    assert spec.cost(M).parameters == M * M + M
    assert SequenceClassifier(labels=None, activation=None).cost(M).parameters == 0
    with pytest.raises(ValueError, match="vectors of texts have no labels"):
        module.loss(hidden, torch.zeros(2, dtype=torch.int64), layout=Layout.full(3))


@pytest.mark.parametrize("activation", ["tanh", "relu", None])
@pytest.mark.parametrize("method", ["first", "last"])
def test_a_classifier_of_sequences_reads_one_real_token(method: str, activation: str | None) -> None:
    spec = SequenceClassifier(labels=3, pool=method, activation=activation, bias=method == "first")  # type: ignore[arg-type]
    head = spec.module(M, V)
    for parameter in head.parameters():
        torch.nn.init.normal_(parameter)
    assert spec.cost(M, V).parameters == sum(p.numel() for p in head.parameters())
    hidden, lengths = torch.randn(3, 5, M), [2, 5, 1]
    scores = {side: head(hidden, Layout.from_lengths(lengths, side=side)) for side in ("left", "right")}  # type: ignore[arg-type]
    for row, n in enumerate(lengths):
        for side, found in scores.items():
            alone = hidden[row : row + 1, :n] if side == "right" else hidden[row : row + 1, 5 - n :]
            torch.testing.assert_close(found[row : row + 1], head(alone, Layout.full(n)))


def test_a_classifier_of_sequences_takes_classes_with_smoothing() -> None:
    head, hidden, layout = SequenceClassifier(labels=3).module(M, V), torch.randn(4, 5, M), Layout.full(5)
    for parameter in head.parameters():
        torch.nn.init.normal_(parameter)
    labels = torch.tensor([2, -100, 0, 1])
    sums = head.loss(hidden, labels, 0.1, layout=layout)  # type: ignore[call-arg]
    expected = torch.nn.functional.cross_entropy(head(hidden, layout), labels, reduction="sum", label_smoothing=0.1)
    torch.testing.assert_close(sums.loss, expected)
    assert int(sums.n_labels) == 3


# -- earlier versions --------------------------------------------------------------------------------------------------


def bert(**sizes: Any) -> Any:
    return preset("bert-base", **SMALL, **sizes)


def before(tree: dict[str, Any], pooler: Any, classifier: Any) -> dict[str, Any]:
    rest = {key: value for key, value in tree.items() if key != "classification_head"}
    return {**rest, "pooler": pooler, "classifier": classifier}


@pytest.mark.parametrize(
    "pooler, classifier, head",
    [
        ({"kind": "pooler", "method": "first", "dense": True}, None, {"labels": None}),
        ({"dense": False, "method": "mean"}, None, {"labels": None, "pool": "mean", "activation": None}),
        ("pooler", {"kind": "classifier", "labels": 3, "dropout": 0.5}, {"labels": 3, "dropout": 0.5}),
        ({}, {}, {"labels": 2}),
    ],
)
def test_a_pooler_and_a_classifier_are_read_as_one_head(pooler: Any, classifier: Any, head: dict[str, Any]) -> None:
    spec = bert(pooler=False, labels=0)
    with pytest.warns(UserWarning, match="now one field, 'classification_head'") as told:
        old = type(spec).from_dict(before(spec.to_dict(), pooler, classifier))
    assert len(told) == 1 and old.classification_head == SequenceClassifier(**head)
    with pytest.warns(UserWarning, match="now one field, 'classification_head'") as told:
        assert spec.replace({"pooler": pooler, "classifier": classifier}) == old
    assert len(told) == 1
    assert type(spec).from_dict(json.loads(old.to_json())) == old


def test_a_spec_without_either_is_read_without_a_warning() -> None:
    spec = bert(pooler=False, labels=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert type(spec).from_dict(before(spec.to_dict(), None, None)) == spec
        assert bert().replace({"pooler": None, "classifier": None}) == spec


@pytest.mark.parametrize(
    "change, head",
    [
        ({"classifier.labels": 5}, {"labels": 5}),
        ({"classifier": None}, {"labels": None}),
        ({"pooler.method": "mean", "classifier.dropout": 0.1}, {"labels": 2, "pool": "mean", "dropout": 0.1}),
        ({"pooler.dense": False}, {"labels": 2, "activation": None}),
    ],
)
@pytest.mark.filterwarnings("ignore:transformer. 'pooler'")
def test_old_paths_change_the_head(change: dict[str, Any], head: dict[str, Any]) -> None:
    assert bert().replace(change).classification_head == SequenceClassifier(**head)


@pytest.mark.filterwarnings("ignore:transformer. 'pooler'")
def test_what_does_not_fit_together_is_told() -> None:
    spec = bert(pooler=False, labels=0)
    with pytest.raises(ValueError, match="a classifier reads what a pooler gives"):
        spec.replace({"classifier": {"labels": 2}})
    with pytest.raises(ValueError, match="'pooler' is an old name of 'classification_head', and both are given"):
        spec.replace({"pooler": {}, "classification_head": None})
    with pytest.raises(ValueError, match="size"):
        spec.replace({"pooler": {"size": 3}})
    with pytest.raises(ValueError, match="labels=2: the classifier of sequences reads what a pooler gives"):
        bert(pooler=False, labels=2)


def old_names(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    renamed = {}
    for name, tensor in tensors.items():
        for old, new in NAMES.items():
            name = name.replace(new, old)
        renamed[name] = tensor
    return renamed


def test_tensors_of_earlier_versions_are_found() -> None:
    model, other, third = (qkv.build(bert(), seed=seed) for seed in range(3))
    tensors = old_names(model_tensors(model))
    assert {"pooler.dense.weight", "classifier.out.bias"} <= tensors.keys()
    other.load_state_dict(old_names(dict(model.state_dict())))
    load_model(third, tensors)
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, other.state_dict()[name]) and torch.equal(tensor, third.state_dict()[name])
    states = with_new_names(model, {"classifier.out.weight/exp_avg": tensors["classifier.out.weight"]})
    assert list(states) == ["classification_head.out.weight/exp_avg"]


def test_a_directory_of_an_earlier_version_loads(tmp_path: Path) -> None:
    model = qkv.build(bert())
    model.save(tmp_path / "new", "qkv")
    config = json.loads((tmp_path / "new" / "config.json").read_text())
    spec = config["qkv"]
    config["qkv"] = before(spec, {"kind": "pooler"}, {"kind": "classifier", "labels": 2})
    (tmp_path / "new" / "config.json").write_text(json.dumps(config))
    path = tmp_path / "new" / "model.safetensors"
    save_file(old_names(load_file(path)), path)
    with pytest.warns(UserWarning, match="now one field, 'classification_head'"):
        run = load(tmp_path / "new", device="cpu")
    assert run.model.spec == model.spec
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, run.model.state_dict()[name])


@pytest.mark.parametrize("name", ["Pooler", "Classifier"])
def test_old_classes_say_what_replaced_them(name: str) -> None:
    with pytest.raises(AttributeError, match=rf"qkv.{name} is now qkv.SequenceClassifier\(labels="):
        getattr(qkv, name)


@pytest.mark.filterwarnings("ignore:transformer. 'pooler'")
@pytest.mark.parametrize("name", ["pooler", "classifier"])
def test_an_old_field_that_is_no_mapping_is_refused(name: str) -> None:
    spec = preset("bert-base", vocab_size=11, d_model=16, n_layers=1, n_heads=4)
    with pytest.raises(ValueError, match=f"{name}: it is a mapping, such as"):
        spec.replace({name: 5})
