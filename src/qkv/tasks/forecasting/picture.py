"""Drawing of a forecast beside the truth, after its history."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from markupsafe import Markup

from ...look.chart import Series, line_chart
from ...look.pictures import draws


@draws("forecast")
def forecast(picture: Mapping[str, Any]) -> Markup:
    """`past`, `truth` and `made` (values); time 0 is the last of the history."""
    past, shown = picture["past"], []
    for name, values in (("history", past), ("truth", picture["truth"]), ("forecast", picture["made"])):
        start = 1 - len(past) if name == "history" else 1
        shown.append(Series(name, [(start + i, value) for i, value in enumerate(values)]))
    return line_chart("", shown, x_label="time")
