import json
import math

import pytest
import torch

from qkv.training.logging.step_metrics import StepMetrics, StepRecord


def add(meter: StepMetrics, step: int, count: int, loss: float, bad: float = 0.0) -> None:
    tensors = [torch.tensor(x) for x in (loss, 2.0 * loss, bad)]
    meter.add(StepRecord(step, count, {"next": step}), *tensors, {"loss": torch.tensor(loss + 1)})


def test_a_line_is_the_mean_weighed_by_what_was_counted():
    meter = StepMetrics()
    add(meter, 1, 10, 1.0)
    add(meter, 2, 30, 2.0)
    assert [step.step for step in meter.synchronize()] == [1, 2] and meter.synchronize() == []
    meter.time(100, 4.0)
    line = meter.line()
    assert line["loss"] == pytest.approx(1.75) and line["nll"] == pytest.approx(2.75)
    assert line["grad_norm"] == pytest.approx(3.0) and line["tokens_per_s"] == 25.0 and "terms" not in line
    assert meter.empty and meter.line()["loss"] is None and meter.line()["tokens_per_s"] is None


def test_one_nan_in_the_window_shows():
    meter = StepMetrics()
    add(meter, 1, 10, 1.0)
    add(meter, 2, 10, math.nan, bad=1.0)
    assert [step.bad for step in meter.synchronize()] == [False, True]
    assert math.isnan(meter.line()["loss"])


def test_sums_survive_a_checkpoint_and_times_do_not():
    meter, resumed = StepMetrics(), StepMetrics()
    add(meter, 1, 10, 0.1)
    meter.synchronize()
    meter.time(1000, 1e-9)
    resumed.load(json.loads(json.dumps(meter.state(), allow_nan=False)))
    for one in (meter, resumed):
        add(one, 2, 7, math.inf)
        one.synchronize()
        one.time(20, 2.0)
    line, wanted = resumed.line(), meter.line()
    assert line.pop("tokens_per_s") == 10.0 and wanted.pop("tokens_per_s") > 500.0
    assert line == wanted
