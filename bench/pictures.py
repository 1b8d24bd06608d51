"""`python -m bench pictures`: draw the pictures of pages in docs/ anew, in about two minutes.

docs/report.png, docs/look.png and docs/pruning.png show pages of a run of the recipe `reverse` in Chromium; those whose
names end in -dark show them in dark mode. docs/scaling.png shows the page of `qkv scaling fit` on Chinchilla's points. It is
drawn if `QKV_BENCH_DATA` names a folder that holds `chinchilla/svg_extracted_data.csv` (Besiroglu et al. 2024).
docs/cost.svg is what `qkv cost` draws.
"""

from __future__ import annotations

import argparse
import io
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from PIL import Image

DOCS = Path(__file__).resolve().parents[1] / "docs"
MOST_BYTES = 300_000  # of a picture
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
COSTS = ("llama-2-7b", "mistral-7b", "max_positions=1000000", "--sweep", "tokens=1k..1M")
FIT = ("--leave-out-highest", "5", "--predict", "5.76e23")
TEXT = "a b c d e f g h"
WIDTH = 1280


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench pictures", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=DOCS, help="where the pictures go (default: docs)")
    options = parser.parse_args(arguments)
    qkv("cost", *COSTS, "--out", str(options.out / "cost.svg"), "--overwrite")
    with tempfile.TemporaryDirectory() as folder:
        for name, page, fragment, height in [*pages(Path(folder)), *laws(Path(folder))]:
            screenshot(page, options.out / f"{name}.png", height, fragment)
            screenshot(page, options.out / f"{name}-dark.png", height, fragment, dark=True)
    return 0


def pages(folder: Path, settings: Sequence[str] = ()) -> list[tuple[str, Path, str, int]]:
    """Train `reverse` with these settings and write its pages: picture's name, page, fragment of its address, height."""
    qkv("train", "reverse", *settings, "--out", "runs/reverse", folder=folder)
    qkv("look", "runs/reverse", TEXT, "--out", "look.html", folder=folder)
    qkv("prune", "runs/reverse", "--heads", "30%", "--finetune", "20s", "--out", "runs/pruned", folder=folder)
    return [
        ("report", folder / "runs/reverse/report.html", "", 1400),
        ("look", folder / "look.html", "#kind=cross&layer=1&heads=0,1&mode=lines", 1150),
        ("pruning", folder / "runs/pruned/pruning.html", "", 1600),
    ]


def laws(folder: Path) -> list[tuple[str, Path, str, int]]:
    """The same of the laws that fit Chinchilla's points; nothing without the points."""
    points = Path(os.environ.get("QKV_BENCH_DATA", ""), "chinchilla", "svg_extracted_data.csv").absolute()
    if not points.exists():
        return []
    qkv("scaling", "fit", str(points), *FIT, "--out", "laws.html", folder=folder)
    return [("scaling", folder / "laws.html", "", 1900)]


def qkv(*arguments: str, folder: Path | None = None) -> None:
    """Run a command of qkv's in a folder. Raises SystemExit with its errors if it fails."""
    command = [sys.executable, "-m", "qkv", *arguments]
    done = subprocess.run(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        raise SystemExit(f"`qkv {' '.join(arguments)}` failed:\n{done.stderr.strip()}")


def screenshot(page: Path, picture: Path, height: int, fragment: str = "", dark: bool = False) -> None:
    """Write what a browser of `WIDTH` × `height` pixels shows of a page, as a PNG file of at most `MOST_BYTES`.

    The browser is Chromium, or that at the path in the environment variable CHROMIUM. Raises SystemExit if there is none.
    """
    browser = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        raise SystemExit("the pictures need Chromium: install it, or put the path of Chrome into CHROMIUM")
    with tempfile.TemporaryDirectory() as folder:
        large = Path(folder) / "page.png"
        size = (f"--window-size={WIDTH},{height}", "--hide-scrollbars", "--virtual-time-budget=3000")
        address = page.resolve().as_uri() + fragment
        mode = f"--blink-settings=preferredColorScheme={0 if dark else 1}"
        flags = ("--headless=new", "--no-sandbox", f"--user-data-dir={folder}", mode, *size, f"--screenshot={large}")
        subprocess.run([browser, *flags, address], check=True, capture_output=True, timeout=120)
        picture.write_bytes(small(large.read_bytes()))


def small(png: bytes) -> bytes:
    """Return a PNG compressed as far as possible. Raises SystemExit if it is still larger than `MOST_BYTES`."""
    file = io.BytesIO()
    Image.open(io.BytesIO(png)).convert("RGB").save(file, "PNG", optimize=True)
    if file.tell() > MOST_BYTES:
        raise SystemExit(
            f"the picture has {file.tell():,} bytes; at most {MOST_BYTES:,} are allowed: show less of the page"
        )
    return file.getvalue()
