"""The pictures of pages in docs/ are small, and the command that draws them runs."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
import run_tiny
from PIL import Image

from bench import pictures

DOCS = Path(__file__).resolve().parents[2] / "docs"
DRAWN = (
    "cost.svg",
    *(f"{page}{mode}.png" for page in ("look", "pruning", "report", "scaling") for mode in ("-dark", "")),
)


@pytest.mark.parametrize(
    "picture", [*sorted(DOCS.glob("*.png")), *sorted(DOCS.glob("*.svg"))], ids=lambda path: path.name
)
def test_pictures_are_small_and_fetch_nothing(picture: Path) -> None:
    data, fetches = picture.read_bytes(), (b"@font-face", b"@import", b"url(http", b'href="http')
    assert len(data) <= pictures.MOST_BYTES
    assert picture.suffix == ".png" or not any(word in data for word in fetches)


@pytest.mark.slow
def test_the_command_draws_every_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a tiny model, and a browser that shows whether a page is there."""

    def screenshot(page: Path, picture: Path, height: int, fragment: str = "", dark: bool = False) -> None:
        assert "</html>" in page.read_text(encoding="utf-8") and height > 0
        assert "#" not in fragment or "location.hash" in page.read_text(encoding="utf-8")
        picture.write_bytes(b"")

    whole = pictures.pages
    monkeypatch.setattr(pictures, "pages", lambda folder: whole(folder, run_tiny.TINY))
    monkeypatch.setattr(pictures, "screenshot", screenshot)
    points = tmp_path / "data" / "chinchilla" / "svg_extracted_data.csv"
    points.parent.mkdir(parents=True)
    rows = [
        (n, d, 1.8 + 480 / n**0.35 + 2000 / d**0.37) for n in (1e8, 4e8, 1e9, 4e9) for d in (1e9, 3e9, 1e10, 3e10, 1e11)
    ]
    points.write_text("N,D,loss\n" + "".join(f"{n},{d},{loss}\n" for n, d, loss in rows))
    monkeypatch.setenv("QKV_BENCH_DATA", str(tmp_path / "data"))
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "cost.svg").write_text("of before")
    assert pictures.main(["--out", str(tmp_path / "out")]) == 0
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == list(DRAWN)
    assert "mistral-7b" in (tmp_path / "out" / "cost.svg").read_text(encoding="utf-8")


def test_a_screenshot_is_what_the_browser_wrote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A browser in place of Chromium draws the size of its window."""
    browser = tmp_path / "browser"
    browser.write_text(
        "#!/usr/bin/env python3\n"
        "import shutil, sys\n"
        "target = next(a for a in sys.argv if a.startswith('--screenshot=')).partition('=')[2]\n"
        "assert '--window-size=1280,50' in sys.argv and sys.argv[-1].endswith('page.html#a=b')\n"
        f"shutil.copy({str(tmp_path / 'drawn.png')!r}, target)\n"
    )
    browser.chmod(0o755)
    Image.new("RGB", (1280, 50), "#3b2fb5").save(tmp_path / "drawn.png")
    monkeypatch.setenv("CHROMIUM", str(browser))
    pictures.screenshot(tmp_path / "page.html", tmp_path / "out.png", 50, "#a=b")
    assert Image.open(tmp_path / "out.png").size == (1280, 50)


def test_a_missing_browser_and_a_large_picture_are_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CHROMIUM", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SystemExit, match="install it, or put the path of Chrome into CHROMIUM"):
        pictures.screenshot(tmp_path / "page.html", tmp_path / "out.png", 50)
    file = io.BytesIO()
    Image.effect_noise((800, 800), 100).save(file, "PNG")
    with pytest.raises(SystemExit, match="at most 300,000 are allowed"):
        pictures.small(file.getvalue())


@pytest.mark.slow
def test_a_command_that_fails_says_why() -> None:
    with pytest.raises(SystemExit, match=r"`qkv cost nothing` failed:\n.*nothing"):
        pictures.qkv("cost", "nothing")
