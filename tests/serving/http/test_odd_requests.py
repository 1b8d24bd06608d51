"""Odd values in every field of every endpoint, and rubbish as files: never answered by 5xx, a path or several lines."""

from __future__ import annotations

import io
import itertools
import json
import logging
import random
import struct
import wave
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import run_tiny
from PIL import Image
from starlette.testclient import TestClient

from qkv.runs.inference.run import load
from qkv.runs.recipes.recipe import Recipe
from qkv.runs.train.train import train
from qkv.serving.http.app import build_app
from qkv.serving.http.openapi import OPERATIONS
from qkv.serving.http.served import RequestLimits

pytestmark = pytest.mark.slow

SHORT = ("training.max_steps=2", "training.eval_every=1", "training.save_every=1")
INFINITE = json.loads("1e999")  # which JSON can hold, though it has no NaN
NUMBERS = [0, -1, 3.5, 10**9, 2**63, 10**30, 10**400, 1e300, INFINITE]
TEXTS = ["", " ", "a", "\x00", "\ud800", "é\u202e😀", "NaN", "a" * 20_000]
LISTS: list[Any] = [
    [],
    [[]],
    [None],
    [1],
    [[1], [2]],
    ["a"],
    ["\ud800"],
    [["a", "b"]],
    [{}],
    ["x"] * 10_000,
    [10**18],
    ["", ""],
]
OBJECTS: list[Any] = [{}, {"a": 1}, {"self": 1}, {"\ud800": 1}, {"type": "text"}, {"type": []}, {"1": INFINITE}]
ODD = [None, True, False, *NUMBERS, *TEXTS, *LISTS, *OBJECTS]
SCHEMAS: list[Any] = [
    True,
    {"type": "integer", "minimum": 5, "maximum": 3},
    {"type": "nothing"},
    {"$ref": "#/x"},
    {"enum": []},
    {"const": "\ud800"},
    {"type": "string", "pattern": "("},
    {"type": "string", "minLength": 10**12},
    {"type": "number", "multipleOf": 0},
    {"type": "object", "properties": {"a": False}, "required": ["a"]},
    {"allOf": [{"type": "string"}, {"type": "integer"}]},
    {"properties": 3, "required": 3},
]
FORMS: list[Any] = [{"type": "json_schema", "json_schema": {"name": "f", "schema": one}} for one in SCHEMAS]
FORMS += [{"type": "regex", "regex": one} for one in ("(", "", "\ud800", "(?=a)b", "[z-a]", "\\1", "a{1000000}")]
MESSAGES: list[Any] = [
    *(
        [{"role": "user", "content": one}]
        for one in (3, None, "\ud800", ["a"], [{"type": "text", "text": 3}], {"a": 1})
    ),
    [{"role": "\ud800", "content": "a"}],
    [{"role": "assistant", "tool_calls": [{"function": {"name": "a", "arguments": 3}}]}],
    [{"role": "user", "content": "a"}] * 4000,
]
SETTINGS = (
    "num_beams",
    "num_samples",
    "max_new_tokens",
    "min_new_tokens",
    "temperature",
    "top_k",
    "seed",
    "speculate",
    "cache",
)
MORE: dict[str, list[Any]] = {
    "response_format": FORMS,
    "messages": MESSAGES,
    "options": [
        *({name: odd} for name in (*SETTINGS, "threshold", "data", "among", "images", "run") for odd in ODD),
        *({"num_beams": 2, name: odd} for name in SETTINGS[1:] for odd in ODD),
    ],
    "tools": [
        [{"type": "function", "function": one}] for one in (3, {"name": 3}, {"name": "f", "parameters": SCHEMAS[1]})
    ],
    "documents": [[{"text": 3}], [{"text": "\ud800"}], ["a"] * 300, ["a" * 20_000]],
    "chat_template_kwargs": [
        {name: "x"} for name in ("messages", "tools", "add_generation_prompt", "range", "bos_token")
    ],
}
BODIES = (
    b"",
    b"{",
    b"null",
    b'"a"',
    b"\xff",
    b'{"\\ud800":1}',
    b"\xef\xbb\xbf{}",
    b'{"seed":' + b"9" * 5000 + b"}",
    b"\x00",
)


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory, trained: Path, trained_lm: Path) -> Iterator[TestClient]:
    folder = tmp_path_factory.mktemp("odd")
    assistant = run_tiny.assistant(folder)
    for name in ("classify", "tag", "answer", "vit", "forecast"):
        train(Recipe.load(name, SHORT), folder / name, device="cpu")
    paths = [
        trained,
        trained_lm,
        assistant,
        *(folder / name for name in ("classify", "tag", "answer", "vit", "forecast")),
    ]
    runs = [load(path, device="cpu") for path in paths]
    app = build_app(runs, max_tokens_in_flight=2000, limits=RequestLimits(seconds=60))
    with TestClient(app, "http://127.0.0.1", raise_server_exceptions=False) as client:
        yield client


def check(client: TestClient, path: str, content: bytes, kind: str = "application/json", **options: Any) -> None:
    answer = client.post(path, content=content, headers={"content-type": kind}, **options)
    about = f"{path} {options} {kind} {content[:300]!r}: {answer.status_code} {answer.text[:300]}"
    assert answer.status_code < 500 and '"code": 5' not in answer.text, about
    if answer.status_code != 200:
        message = answer.json()["error"]["message"]
        assert message and "\n" not in message and len(message) < 800 and "/tmp" not in message, about


@pytest.mark.parametrize(
    "path", [path for path, about in OPERATIONS.items() if about.fields and path.startswith("/v1/")]
)
def test_odd_values_are_answered(path: str, client: TestClient, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR, "qkv")
    about, found = OPERATIONS[path], client.get("/v1/models").json()["data"]
    models = [one["id"] for one in found if path in one["endpoints"] and not one["reads_files"]]
    assert models and about.fields is not None
    for model in models:
        base = {
            **(about.example or {}),
            "model": model,
            **({"max_tokens": 2} if "max_tokens" in about.fields.model_fields else {}),
        }
        for field in about.fields.model_fields:
            for odd in (*ODD, *MORE.get(field, ())):
                check(client, path, json.dumps({**base, field: odd}).encode())
                if field in ("stop", "response_format", "messages", "prompt"):
                    check(client, path, json.dumps({**base, field: odd, "stream": True}).encode())
        for body in BODIES:
            check(client, path, body)
    assert not caplog.records, caplog.text


def picture(width: int, height: int, mode: str = "RGB") -> bytes:
    held = io.BytesIO()
    Image.new(mode, (width, height)).save(held, "PNG")
    return held.getvalue()


def sound(frames: int, rate: int = 16_000) -> bytes:
    held = io.BytesIO()
    with wave.open(held, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(b"\0\0" * frames)
    return held.getvalue()


def rubbish() -> dict[str, list[bytes]]:
    """Files by content type: rubbish, cut ones, extreme ones and one that claims 60,000 × 60,000 pixels."""
    noise = [random.Random(0).randbytes(200), b"a"]
    whole, bomb = picture(32, 32), bytearray(picture(8, 8))
    bomb[16:24] = struct.pack(">II", 60_000, 60_000)
    pictures = [whole, whole[:40], whole[:-20], bytes(bomb), picture(1, 1), picture(1, 5000), picture(8, 8, "I;16")]
    sounds = [sound(0), sound(1), sound(100, 10**9), sound(99)[:60]]
    tables = [b"t,v\n1,nan\n" * 200, b"1e400\n" * 300, b"inf\n" * 300, b"1,2\n3\n" * 100, b"\x00" * 300, b'"' * 1000]
    music = [b"MThd\0\0\0\6\0\1\0\1\0\x60MTrk\xff\xff\xff\xff"]
    kinds = {"image/png": pictures, "image/jpeg": pictures, "image/gif": pictures, "audio/wav": sounds}
    kinds |= {"audio/flac": sounds, "audio/midi": music, "video/mp4": [], "text/csv": tables}
    return {kind: [*contents, *noise] for kind, contents in kinds.items()}


@pytest.mark.parametrize("kind", rubbish())
def test_rubbish_in_files_is_answered(kind: str, client: TestClient, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR, "qkv")
    found = client.get("/v1/models").json()["data"]
    models = [one["id"] for one in found if "/v1/predict" in one["endpoints"]]
    assert models
    for model, content in itertools.product(models, rubbish()[kind]):
        check(client, "/v1/predict", content, kind, params={"model": model})
    assert not caplog.records, caplog.text
