"""Two real servers behind a real nginx with deploy/nginx.conf. Skipped if nginx is not installed."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import run_tiny
from server_process import Process

pytestmark = pytest.mark.slow

CONFIGURATION = Path(__file__).parents[2] / "deploy" / "nginx.conf"
KINDS_OF_TEMPORARY_FILES = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
LONG = "The old man said that he had been there before, and that nobody had seen him. " * 8  # over 256 tokens


@dataclass
class Pair:
    """Two servers and the nginx in front of them."""

    url: str
    servers: list[Process]

    def ask(self, prompt: str, new: int = 8) -> dict[str, Any]:
        body = {"model": "chat", "prompt": prompt, "max_tokens": new, "min_tokens": new, "temperature": 0}
        return post(self.url, body)

    def answered(self) -> list[int]:
        """How many completions each server has answered; −1 for one that is gone."""
        return [completions(server) for server in self.servers]


def post(url: str, body: dict[str, Any]) -> dict[str, Any]:
    request = urllib.request.Request(f"{url}/v1/completions", json.dumps(body).encode())
    with urllib.request.urlopen(request, timeout=120) as answer:
        return dict(json.load(answer))


def completions(server: Process) -> int:
    if server.process.poll() is not None:
        return -1
    with urllib.request.urlopen(f"{server.url}/metrics", timeout=30) as answer:
        counted = re.findall(r'qkv_requests_total\{path="/v1/completions",status="200"\} (\d+)', answer.read().decode())
    return int(counted[0]) if counted else 0


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_tiny.assistant(tmp_path_factory.mktemp("behind"))


def started(run: Path, port: int = 0) -> Process:
    return Process(str(run), "--allowed-host", "qkv", port=port)


@pytest.fixture
def pair(tmp_path: Path, run: Path) -> Iterator[Pair]:
    nginx = shutil.which("nginx", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin")
    if nginx is None:
        pytest.skip("nginx is not installed: apt-get install nginx-light")
    servers = [started(run), started(run)]
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    text = CONFIGURATION.read_text(encoding="utf-8")
    changes = {"server one:8000": f"server 127.0.0.1:{servers[0].port}", "listen 8080": f"listen 127.0.0.1:{port}"}
    changes["server two:8000"] = f"server 127.0.0.1:{servers[1].port}"
    own = "".join(f"  {kind}_temp_path {tmp_path / kind};\n" for kind in KINDS_OF_TEMPORARY_FILES)
    for written, here in {**changes, "http {\n": f"http {{\n  access_log off;\n{own}"}.items():
        assert text.count(written) == 1, written
        text = text.replace(written, here)
    (tmp_path / "nginx.conf").write_text(text, encoding="utf-8")
    options = f"daemon off; master_process off; pid {tmp_path / 'pid'};"
    log = (tmp_path / "log").open("w")
    command = [nginx, "-p", str(tmp_path), "-e", "stderr", "-c", str(tmp_path / "nginx.conf"), "-g", options]
    process = subprocess.Popen(command, stderr=log)
    try:
        for _ in range(100):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            assert process.poll() is None, (tmp_path / "log").read_text()
            time.sleep(0.05)
        yield Pair(f"http://127.0.0.1:{port}", servers)
    finally:
        process.terminate()
        process.wait(20)
        log.close()
        for server in servers:
            server.process.kill()


def test_requests_that_begin_alike_go_to_the_server_whose_cache_knows_them(pair: Pair) -> None:
    for number in range(6):
        usage = pair.ask(f"{LONG}Number {number} went home")["usage"]
        assert (usage["prompt_tokens_details"]["cached_tokens"] >= 256) == (number > 0)
    assert sorted(pair.answered()) == [0, 6]
    for number in range(24):
        pair.ask(f"Number {number}: {LONG}", 1)
    assert min(pair.answered()) >= 4


def test_the_other_server_answers_if_one_is_killed_during_requests(pair: Pair, run: Path) -> None:
    prompts = [f"Number {i} said: {LONG[: 550 + i]}" for i in range(24)]
    alone = {prompt: pair.ask(prompt, 48)["choices"][0]["text"] for prompt in prompts}
    before = pair.answered()
    assert min(before) > 0
    victim = pair.servers[0]
    with ThreadPoolExecutor(len(prompts)) as threads:
        asked = {prompt: threads.submit(pair.ask, prompt, 48) for prompt in prompts}
        while not is_computing(victim):
            time.sleep(0.005)
        victim.process.kill()
        assert {prompt: one.result()["choices"][0]["text"] for prompt, one in asked.items()} == alone
    assert pair.answered()[0] == -1 and pair.answered()[1] > before[1] + len(prompts) // 2
    pair.servers[0] = started(run, victim.port)
    deadline = time.monotonic() + 30
    while pair.answered()[0] == 0 and time.monotonic() < deadline:  # nginx tries it again after five seconds
        for prompt in prompts:
            pair.ask(prompt, 1)
    assert pair.answered()[0] > 0


def is_computing(server: Process) -> bool:
    with urllib.request.urlopen(f"{server.url}/metrics", timeout=30) as answer:
        return "qkv_rows_running 0.0\n" not in answer.read().decode()


def test_a_server_that_shuts_down_finishes_its_requests_and_the_other_takes_new_ones(pair: Pair) -> None:
    prompts = [f"Number {i} said: {LONG[: 550 + i]}" for i in range(12)]
    with ThreadPoolExecutor(len(prompts)) as threads:
        asked = [threads.submit(pair.ask, prompt, 48) for prompt in prompts]
        while not is_computing(pair.servers[0]):
            time.sleep(0.005)
        pair.servers[0].process.terminate()
        assert all(one.result()["usage"]["completion_tokens"] == 48 for one in asked)
        assert pair.ask("The old man")["usage"]["completion_tokens"] == 8
