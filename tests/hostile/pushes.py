"""A push of a run with an adapter that is killed, or finds the disk full, at each of its file operations.

    python tests/hostile/pushes.py FOLDER --seed 0 --every 1

prints one JSON object. The repository, on a server of this machine, holds another model. After each push it must hold the
old files or all of the new ones; a full disk must be told, and leave the old ones and nothing on this machine.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
import warnings
from dataclasses import asdict
from pathlib import Path

import torch
from kills import Figures
from replacements import Writes, ended

TESTS = Path(__file__).parents[1]
sys.path.insert(0, str(TESTS / "helpers"))

from hub_here import hub_here  # noqa: E402
from hub_server import Hub, Repository  # noqa: E402
from run_tiny import LANGUAGE_MODEL, write_text  # noqa: E402
from run_untrained import of, words  # noqa: E402

import qkv  # noqa: E402
from qkv.core import atomic  # noqa: E402
from qkv.runs.recipes.recipe import Recipe  # noqa: E402
from qkv.runs.train.train import train  # noqa: E402

NAME = "me/tuned"


def adapted(folder: Path) -> Path:
    """A run whose base is `me/base` on the server."""
    of("gpt2", words(), "continue", max_positions=32).push("me/base")
    data = [one for one in LANGUAGE_MODEL if not one.startswith(("model.", "tokenizer."))]
    settings = [*data, "model=me/base", "adapter={kind: lora, rank: 2, alpha: 4}", f"data.path={write_text(folder)}"]
    train(Recipe.load("lm", settings), folder / "runs" / "tuned", device="cpu")
    return folder / "runs" / "tuned"


def wrong_after(hub: Hub, run: Path, n: int, full: bool, old: dict[str, bytes], new: dict[str, bytes]) -> list[str]:
    """Push with an end at the n-th operation. What is not as it must be; raises StopIteration if it ended before."""
    there = hub.repositories[NAME] = Repository()
    there.commit("main", old)
    end = ended(lambda: qkv.load(run, device="cpu").push(NAME), Writes(n, full).install)
    now = there.files()
    wrong = [] if now in (old, new) else [f"it is neither the old nor the new one: {sorted(now)}"]
    if end.how == "failed" or (end.how == "refused" and not re.search("space|disk is full|free", end.said)):
        wrong.append(f"it said: {end.said[-1500:]}")
    if end.how != "killed":
        wrong += [f"{path.name} is left" for path in run.parent.glob(".tmp-*")]
    atomic.sweep.cache_clear()
    atomic.sweep(run)
    wrong += [f"{path.name} is not swept" for path in run.parent.glob(".tmp-*")]
    if end.how == "done":
        raise StopIteration(wrong)
    return wrong


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("folder", type=Path)
    asked.add_argument("--seed", type=int, default=0)
    asked.add_argument("--every", type=int, default=1, help="stop at every so many operations")
    given = asked.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    figures, began = Figures("pushes"), time.monotonic()
    given.folder.mkdir(parents=True, exist_ok=True)
    with hub_here(given.folder) as hub:
        run = adapted(given.folder)
        qkv.load(run, device="cpu").push(NAME)
        new = dict(hub.repositories[NAME].files())
        old = {name: content for name, content in hub.repositories["me/base"].files().items() if name != "README.md"}
        figures.wrong += [] if b"base_model: me/base" in new["README.md"] else ["the card does not name the base"]
        for full in (False, True):
            n = given.seed % given.every
            while True:
                figures.runs += 1
                try:
                    found = wrong_after(hub, run, n, full, old, new)
                except StopIteration as last:
                    figures.wrong += last.value
                    break
                figures.kills += 1
                figures.wrong += [f"{'full' if full else 'killed'} at {n}: {one}" for one in found]
                n += given.every
    figures.seconds = time.monotonic() - began
    print(json.dumps(asdict(figures)), flush=True)
    sys.exit(int(bool(figures.wrong)))


if __name__ == "__main__":
    main()
