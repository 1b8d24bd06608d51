"""Figures: pages without requests, small and escaped, and files of every format."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import pytest
import run_untrained
import torch
from PIL import Image

from qkv.runs.inference.run import Run


@pytest.fixture(scope="module")
def run() -> Run:
    return run_untrained.of("gpt2", run_untrained.words(), "continue", n_layers=2, max_positions=256)


def test_a_page_makes_no_request_and_runs_one_script(run: Run) -> None:
    page = run.look("abc").html().replace("image.src = key().picture;", "")  # a `data:` address
    assert "default-src 'none'" in page and "script-src 'sha256-" in page and "connect-src" not in page
    assert not re.search(r"(src|href)\s*=|url\(|@import|https?://(?!www\.w3\.org/2000/svg)", page)
    assert "connect-src 'self'" in run.look("abc").html(live={})


def test_texts_are_escaped_wherever_they_stand(run: Run) -> None:
    text = "</script><script>alert(1)</script><!--"
    figure = run.look(text)
    page = figure.html()
    assert page.count("<script") == 2 and "<!--" not in page and "alert(1)" not in page.replace("\\u003c", "<")[:2000]
    assert json.loads(page.split('id="data">')[1].split("</script>")[0])["views"][0]["text"] == text
    assert "<script" not in figure.drawing().svg()
    assert figure._repr_html_().count("<") == 2


def test_a_page_of_144_heads_on_64_tokens_is_below_3_megabytes() -> None:
    sizes = {"d_model": 768, "n_layers": 12, "n_heads": 12, "d_ff": 16, "max_positions": 128}
    large = run_untrained.of("gpt2", run_untrained.words(), "continue", **sizes)
    figure = large.look("ab cd ef " * 12)
    layers = figure.views[0].groups[0].layers
    assert len(layers) == 12 and layers[0].weights.shape == (12, 64, 64)
    assert 1_000_000 < len(figure.html().encode()) < 3_000_000


def test_files_of_every_format(run: Run, tmp_path: Path) -> None:
    figure = run.look("hello")
    for name in ("a.html", "a.json", "a.svg", "a.png", "a.pdf"):
        assert figure.save(tmp_path / name).stat().st_size > 500
    picture = Image.open(io.BytesIO((tmp_path / "a.png").read_bytes()))
    drawing = figure.drawing(layer=1, head=0)
    assert picture.width == figure.drawing().width * 2 and "decoder, layer 1, head 0" in drawing.title
    assert (tmp_path / "a.svg").read_text(encoding="utf-8").startswith("<svg")
    exact = json.loads((tmp_path / "a.json").read_text())["views"][0]["attention"][0]["layers"][0]
    torch.testing.assert_close(torch.tensor(exact["weights"][1]), figure.weights(0, 1), atol=1e-6, rtol=0)
    with pytest.raises(ValueError, match=r"a figure is saved as \.html, \.json, \.svg, \.png or \.pdf, not '\.gif'"):
        figure.save(tmp_path / "a.gif")
    assert repr(figure) == "Figure(this run, 'hello': decoder, decoder rollout)"


def test_several_inputs_are_views_of_one_page(run: Run) -> None:
    figure = run.look(["abc", "de"])
    assert [view.text for view in figure.views] == ["abc", "de"]
    data = figure.page_data()
    assert len(data["views"]) == 2 and figure.weights(0, 0, view=1).shape == (3, 3)
    with pytest.raises(ValueError, match="there is no attention 'cross'; this figure has decoder, decoder rollout"):
        figure.weights(0, 0, "cross")
