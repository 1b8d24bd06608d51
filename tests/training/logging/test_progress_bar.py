import io

import pytest
from rich.console import Console

from qkv.training.logging.progress_bar import ProgressBar, span


def display(terminal: bool, **limits) -> tuple[ProgressBar, io.StringIO]:
    out = io.StringIO()
    console = Console(file=out, force_terminal=terminal, width=120)
    return ProgressBar(console, limits.get("max_steps"), limits.get("max_time"), shown=limits.get("shown", True)), out


LINE = {"step": 10, "loss": 1.25, "lr": 1e-3, "tokens_per_s": 12345.6, "mfu": 0.413, "elapsed": 20.0}


def test_a_terminal_gets_a_bar_with_the_numbers():
    shown, out = display(True, max_steps=100)
    with shown:
        shown.at(1, 1.0)
        shown.train(LINE)
        shown.at(10, 10.0)
    text = out.getvalue()
    assert "step 10 of 100" in text and "loss 1.2500" in text and "tokens/s 12,346" in text
    assert "MFU 41%" in text and "1m30s left" in text


def test_elsewhere_there_are_lines_but_few():
    shown, out = display(False, max_steps=100)
    with shown:
        for step in range(10, 60, 10):
            shown.at(step, step)
            shown.train({**LINE, "step": step})
        shown.evaluation(50, {"loss": 2.0}, "(best)")
    assert len(out.getvalue().splitlines()) == 2
    assert "step 50 of 100  evaluation: loss 2  (best)" in out.getvalue()


def test_a_nan_is_shown_and_what_was_not_measured_is_not():
    shown, out = display(False)
    shown.train({**LINE, "loss": float("nan"), "mfu": None, "tokens_per_s": None})
    assert "loss nan" in out.getvalue() and "MFU" not in out.getvalue()


def test_other_ranks_are_silent():
    shown, out = display(False, shown=False)
    with shown:
        shown.train(LINE)
    assert out.getvalue() == ""


def test_how_far_and_how_long():
    both, _ = display(False, max_steps=100, max_time=50.0)
    both.at(0, 0.0)
    assert both.done(10, 25.0) == 0.5 and both.left(10, 25.0) == 25.0
    resumed, _ = display(False, max_steps=100)
    resumed.at(80, 1000.0)  # what earlier sessions took says nothing of this one's pace
    assert resumed.left(90, 1010.0) == pytest.approx(10.0)
    assert display(False)[0].left(5, 5.0) is None


def test_how_far_by_epochs():
    out = io.StringIO()
    shown = ProgressBar(Console(file=out, width=120), None, None, shown=True, max_epochs=4)
    shown.at(10, 0.0, 1.0)
    shown.at(20, 10.0, 2.0)
    assert shown.done(20, 10.0) == 0.5 and shown.left(20, 10.0) == pytest.approx(20.0)
    shown.evaluation(20, {"loss": 2.0}, "")
    assert "step 20, epoch 2.0 of 4  evaluation: loss 2" in out.getvalue()


def test_spans_are_told_in_readable_units():
    assert [span(s) for s in (41.6, 425, 12_000)] == ["42s", "7m05s", "3h20m"]


def test_a_resumed_run_is_shown_from_where_it_is():
    shown, out = display(True, max_steps=100)
    shown.begins_at(214)
    with shown:
        shown.at(214, 1.0)
    assert "step 214" in out.getvalue() and "of 100" not in out.getvalue() and "step 0" not in out.getvalue()


class Closed(io.StringIO):
    """A terminal that is gone."""

    def write(self, text):
        raise OSError(5, "Input/output error")


@pytest.mark.parametrize("terminal", [True, False])
def test_a_terminal_that_was_closed_does_not_end_a_run(terminal):
    shown = ProgressBar(Console(file=io.StringIO(), force_terminal=terminal), 100, None, shown=True)
    with shown:
        shown.console.file = Closed()
        shown.at(1, 1.0)
        shown.train(LINE)
        shown.say("still here")
