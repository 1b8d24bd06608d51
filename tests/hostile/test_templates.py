"""Hostile chat templates end soon, in little memory, in a text or in one sentence."""

from __future__ import annotations

import sys
from pathlib import Path

import psutil
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from templates import MOST_SECONDS, TEMPLATES, outcome

from qkv.data.tokenizers.chat.process import CHILD
from qkv.data.tokenizers.chat.sandbox import MOST_MEMORY
from qkv.data.tokenizers.chat.template import ChatTemplate

QUICK = [
    *(
        "shared-list-print",
        "kept-center",
        "kept-list",
        "contains-itself",
        "loops-thirty",
        "macro-twice",
    ),
    *(
        "brackets-deep",
        "round-digits",
        "date-width",
        "doubling-join-by",
        "escape-namespace",
        "escape-dict",
        "range-huge",
    ),
]


@pytest.mark.parametrize("name", QUICK)
def test_a_hostile_template_ends_in_one_sentence(name: str) -> None:
    found = outcome(name)
    assert found.how in ("text", "refused") and found.seconds < MOST_SECONDS, found


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in TEMPLATES if name not in QUICK])
def test_every_hostile_template_ends_in_one_sentence(name: str) -> None:
    found = outcome(name)
    assert found.how in ("text", "refused") and found.seconds < MOST_SECONDS, found
    assert "object at 0x" not in found.said and "subclasses" not in found.said


@pytest.mark.parametrize("name", [pytest.param("shared-list-print", marks=pytest.mark.slow), "kept-list"])
def test_after_a_hostile_template_ordinary_ones_still_work(name: str) -> None:
    ordinary = ChatTemplate("{{ messages[0].content }}")
    assert outcome(name).how == "refused"
    assert ordinary.render([{"role": "user", "content": "hi"}]) == "hi"


@pytest.mark.skipif(
    not hasattr(psutil.Process, "rlimit"), reason="the limits of other processes are seen on Linux only"
)
def test_the_process_that_runs_templates_is_limited() -> None:
    ChatTemplate("x").render([])
    assert CHILD._process is not None
    process = psutil.Process(CHILD._process.pid)
    most, _ = process.rlimit(psutil.RLIMIT_AS)
    assert 0 < most <= process.memory_info().vms + MOST_MEMORY + (64 << 20)
    assert process.rlimit(psutil.RLIMIT_FSIZE) == (0, 0)
    seconds, _ = process.rlimit(psutil.RLIMIT_CPU)
    assert 0 < seconds < 60
