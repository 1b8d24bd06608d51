import json
import math

import pytest
import torch

from qkv.training.logging.step_metrics import StepMetrics, StepRecord


def add(meter: StepMetrics, step: int, count: int, loss: float, bad: float = 0.0, tokens: int = 0) -> None:
    tensors = [torch.tensor(x) for x in (loss, 2.0 * loss, bad)]
    meter.add(StepRecord(step, count, {"next": step}, tokens=tokens), *tensors, {"loss": torch.tensor(loss + 1)})


def test_a_line_is_the_mean_weighed_by_what_was_counted():
    meter = StepMetrics()
    add(meter, 1, 10, 1.0, tokens=40)
    add(meter, 2, 30, 2.0, tokens=60)
    assert [step.step for step in meter.synchronize()] == [1, 2] and meter.synchronize() == []
    meter.time(4.0)
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
    add(meter, 1, 10, 0.1, tokens=1000)
    meter.synchronize()
    meter.time(1e-9)
    resumed.load(json.loads(json.dumps(meter.state(), allow_nan=False)))
    for one in (meter, resumed):
        add(one, 2, 7, math.inf, tokens=20)
        one.synchronize()
        one.time(2.0)
    line, wanted = resumed.line(), meter.line()
    assert line.pop("tokens_per_s") == 10.0 and wanted.pop("tokens_per_s") > 500.0
    assert line == wanted


def test_counts_that_the_device_knows_are_read_with_the_other_numbers_and_empty_steps_count_in_no_mean():
    meter = StepMetrics()
    for step, items in enumerate((10, 0, 30), 1):
        counted = torch.tensor([items, 2 * items], dtype=torch.float64)
        meter.add(StepRecord(step, 0, None), *[torch.tensor(float(step))] * 2, torch.tensor(0.0), {}, counted)
    assert [(done.count, done.tokens) for done in meter.synchronize()] == [(10, 20), (0, 0), (30, 60)]
    meter.time(2.0)
    line = meter.line()
    assert line["loss"] == pytest.approx(2.5) and line["tokens_per_s"] == 40.0
