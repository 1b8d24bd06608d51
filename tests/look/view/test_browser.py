"""Pages in a real browser: their script runs without errors and draws what the figure holds."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import run_untrained

from qkv.runs.inference.run import Run

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(BROWSER is None, reason="there is no Chromium")

TEXT = "a</script><script>document.title = 'stolen'</script>b"


def opened(page: Path, address: str = "", folder: str = "profile", width: int = 1280) -> tuple[str, str]:
    """The page's elements besides scripts after its only script ran, and what the browser's console says."""
    assert BROWSER is not None
    command = [BROWSER, "--headless=new", "--no-sandbox", "--disable-gpu", f"--window-size={width},1000"]
    command += [f"--user-data-dir={page.parent / folder}", "--enable-logging=stderr", "--virtual-time-budget=4000"]
    done = subprocess.run(
        [*command, "--dump-dom", f"{page.as_uri()}{address}"], capture_output=True, text=True, timeout=120
    )
    console = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    assert len(re.findall(r"<script(?! type)", done.stdout)) == 1
    return re.sub(r"<script.*?</script>", "", done.stdout, flags=re.DOTALL), "\n".join(console)


@pytest.fixture(scope="module")
def translator() -> Run:
    return run_untrained.of("transformer", run_untrained.words(), "translate", n_layers=2)


def test_a_translator_is_drawn_and_its_text_stays_a_text(translator: Run, tmp_path: Path) -> None:
    page = translator.look(TEXT, target="xy", word="b").save(tmp_path / "look.html")
    elements, console = opened(page)
    assert console == "" and "<title>this run · attention · qkv</title>" in elements
    assert elements.count('data-at="') == 4 and elements.count('class="column left"') == 1
    assert "stolen" in elements
    tabs = re.findall(r'role="tab"[^>]*>([a-z ]+)<', elements)
    assert tabs == ["encoder", "decoder", "cross", "encoder rollout", "decoder rollout"]
    assert 'class="token on"' in elements and "Inside a score" in elements and "Logit lens" in elements


def test_a_live_page_begins_with_what_the_server_was_given(translator: Run, tmp_path: Path) -> None:
    change = {"part": "cross", "layer": 1, "head": 0, "factor": 0.5}
    begin = {"target": "", "neuron": "0.3", "patch": TEXT, "changes": [change]}
    page = tmp_path / "live.html"
    page.write_text(translator.look("abc", target="xy").html(live=begin), encoding="utf-8")
    elements, console = opened(page)
    assert console == "" and "cross, layer 1, head 0: × 0.5 ✕" in elements
    assert re.findall(r"<label><span>([a-z ]+)</span>", elements) == ["output", "neuron", "patch into"]
    assert "<option" in elements and "feed-forward of layer 0" in elements


def test_an_address_opens_a_head_of_cross_attention_on_a_phone(translator: Run, tmp_path: Path) -> None:
    page = translator.look("abc", target="xy").save(tmp_path / "look.html")
    elements, console = opened(page, "#kind=cross&layer=1&heads=1&mode=map", width=390)
    assert console == "" and "heat map of layer 1, head 1" in elements
    assert re.search(r'aria-label="layer 1, head 1"[^>]*data-at="1,1"', elements)


def test_rotary_positions_and_interventions_are_steps_of_a_score(tmp_path: Path) -> None:
    run = run_untrained.of("llama", run_untrained.words(), "continue", n_layers=2)
    elements, console = opened(
        run.look("abcd", changes={"*.attention.scores": lambda scores: scores + 0.25}).save(tmp_path / "look.html")
    )
    assert console == "" and "without rotation" in elements and "rotation adds" in elements
    assert "<dt>intervention</dt><dd>0.250, so the score is" in elements
    content, term, scaled = (
        float(re.search(pattern, elements)[1])  # type: ignore[index]
        for pattern in (
            r"<dt>without rotation</dt><dd>(-?[\d.]+)",
            r"<dt>rotation adds</dt><dd>(-?[\d.]+)",
            r"= (-?[\d.]+)</dd>",
        )
    )
    assert abs(content + term - scaled) < 0.002


def test_texts_of_a_neuron_are_tinted_and_numbered(tmp_path: Path) -> None:
    run = run_untrained.of("gpt2", run_untrained.words(), "continue", n_layers=2)
    figure = run.look([], neuron="1.5", texts=["abc", TEXT])
    elements, console = opened(figure.save(tmp_path / "look.html"))
    assert console == "" and "Neuron 5 of decoder layer 1" in elements and "<title>this run" in elements
    assert elements.count('class="excited at"') == 2 and 'style="opacity: ' in elements
    largest = figure.views[0].panels[0]["rows"][0]
    assert f"<small>{largest['values'][largest['at']]:.2f}</small>" in elements
