"""Makes this room's helpers importable, gives each contract its combinations, and prints the summary of them."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import summary


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "contract(contract): run for the combinations of a `selection.Contract`")
    if not config.pluginmanager.has_plugin(summary.NAME):
        config.pluginmanager.register(summary, summary.NAME)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    marker = metafunc.definition.get_closest_marker("contract")
    if marker is not None:
        slow = "not slow" not in metafunc.config.option.markexpr  # a product nobody will run is not even listed
        metafunc.parametrize("case", list(marker.args[0].parameters(slow, metafunc.definition.nodeid)))


# What this backend refuses is skipped, with its reason: it has no float64, for one. The others serve all.
REFUSED = re.compile(r"backend 'flash' can't serve this request: ([^;]*)")


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Iterator[Any]:
    try:
        return (yield)
    except ValueError as error:
        if refused := REFUSED.match(str(error)):
            pytest.skip(refused[1])
        raise
