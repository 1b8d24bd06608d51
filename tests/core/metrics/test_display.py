"""How metrics are displayed is registered with each metric."""

import pytest

import qkv.runs.tasks.forecasting.metric
import qkv.runs.tasks.music.metric  # noqa: F401  (registers its metrics)
from qkv.core.metrics.display import display_of, errors, qualities, register


def test_every_metric_says_which_way_is_better() -> None:
    assert {"accuracy", "map", "miou", "spearman", "bleu"} <= set(qualities())
    assert {"loss", "perplexity", "wer", "mse", "frame_nll"} <= set(errors())
    assert qualities().index("exact") < qualities().index("bleu"), "fractions stand before points"
    assert "entity_recall" not in qualities(), "a part of a metric is no headline"


def test_a_metric_that_nobody_registered_is_a_number_without_a_direction() -> None:
    found = display_of("odd_ratio")
    assert (found.title, found.scale, found.higher_is_better) == ("Odd ratio", "number", None)


def test_a_name_is_registered_once() -> None:
    register("accuracy", scale="fraction", higher_is_better=True)  # the same again is no conflict
    with pytest.raises(ValueError, match="'accuracy' is already registered"):
        register("accuracy", "Share of hits")
