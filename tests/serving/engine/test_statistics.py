"""What the engine counts, as Prometheus' own parser reads it."""

from __future__ import annotations

import pytest

from qkv.serving.engine.statistics import Statistics


def test_prometheus_reads_counters_gauges_and_the_histogram() -> None:
    parser = pytest.importorskip("prometheus_client.parser")
    counted = Statistics()
    counted.new_tokens += 7
    counted.requests["/v1/chat", 200] += 2
    for seconds in (0.01, 0.3, 100.0):
        counted.first_token(seconds)
    text = "".join(counted.lines({"rows": ("Rows.", 3.0)}, crashes=1))
    families = {family.name: family for family in parser.text_string_to_metric_families(text)}
    assert families["qkv_generated_tokens"].samples[0].value == 7 and families["qkv_rows"].samples[0].value == 3
    assert families["qkv_engine_crashes"].samples[0].value == 1
    (request,) = families["qkv_requests"].samples
    assert request.labels == {"path": "/v1/chat", "status": "200"} and request.value == 2
    histogram = families["qkv_first_token_seconds"]
    below = {sample.labels["le"]: sample.value for sample in histogram.samples if "le" in sample.labels}
    assert (below["0.01"], below["0.25"], below["0.5"], below["+Inf"]) == (1, 1, 2, 3)
    assert {sample.value for sample in histogram.samples if sample.name.endswith("_sum")} == {100.31}
