"""What processes of `qkv serve` hold in memory: pages of weights that they share, and no more than was said at the start."""

from __future__ import annotations

import concurrent.futures
import json
import re
import subprocess
from pathlib import Path
from typing import Any

import psutil
import pytest
from server_process import Process

import qkv

pytestmark = pytest.mark.slow


def ask(server: Process, path: str, body: dict[str, Any]) -> str:
    command = ["curl", "-sS", "-m", "400", f"{server.url}{path}", "-d", "@-"]
    return subprocess.run(command, input=json.dumps(body), capture_output=True, text=True, check=True).stdout


def test_servers_of_one_run_share_the_pages_of_its_weights(tmp_path: Path) -> None:
    path = qkv.load("small-english", device="cpu").save(tmp_path / "run", to="qkv") / "model.safetensors"
    servers = [Process(str(path.parent)) for _ in range(2)]
    for server in servers:
        assert "choices" in ask(server, "/v1/completions", {"prompt": "The old man", "max_tokens": 4})
    for server in servers:
        (file,) = (one for one in psutil.Process(server.process.pid).memory_maps() if one.path == str(path))
        assert file.rss >= path.stat().st_size  # a pass reads every weight; `file.size` counts a second mapping too
        assert file.pss < 0.6 * file.rss and file.private_dirty == 0
    for server in servers:
        server.stop()


def test_the_memory_said_at_the_start_is_not_exceeded(trained_lm: Path, trained: Path) -> None:
    server = Process("small-english", str(trained_lm), str(trained), "--max-tokens-in-flight", "20000")
    (most,) = re.findall(r"at most ([\d.]+) GB of memory", server.said)
    assert "GB program and weights" in server.said and "GB prefix caches" in server.said
    text = "The old man said that he had been there before. "
    works = [
        (
            "/v1/completions",
            {"model": "small-english", "prompt": [f"{i} {text}"] * 16, "max_tokens": 100, "min_tokens": 100},
        )
        for i in range(4)
    ]
    works += [("/v1/embeddings", {"model": "small-english", "input": [text * 4] * 256})] * 2
    works += [("/v1/loglikelihood", {"model": "small-english", "input": [text * 10] * 128})] * 2
    works += [("/v1/translate", {"model": trained.name, "input": ["a b c d " * 800] * 4})]
    works += [("/v1/embeddings", {"input": "x" * (7 << 20)})] * 16
    with concurrent.futures.ThreadPoolExecutor(len(works)) as threads:
        answers = list(threads.map(lambda work: ask(server, *work), works))
    assert sum('"data"' in one or '"choices"' in one for one in answers) >= 9, [one[:200] for one in answers]
    peak = int(re.findall(r"VmHWM:\s+(\d+)", Path(f"/proc/{server.process.pid}/status").read_text())[0]) * 1024
    print(f"said {most} GB, peak {peak / 1e9:.2f} GB")
    assert peak < float(most) * 1e9
    server.stop()
