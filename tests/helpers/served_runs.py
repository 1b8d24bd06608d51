"""Requests to the engine, and what was told about them."""

from __future__ import annotations

import threading
from typing import Any

from qkv.serving.engine.continuation import Ending, Event, Work
from qkv.serving.engine.decoder import Decoder
from qkv.serving.engine.engine import Engine
from qkv.serving.engine.jobs import alone

TEXTS = ["the cat is", "a", "the dog is 3 years old and the cat", "cat " * 9]

OPTIONS: list[dict[str, Any]] = [
    {"max_new_tokens": 12},
    {"max_new_tokens": 9, "temperature": 0.9, "seed": 3},
    {"max_new_tokens": 15, "top_p": 0.8, "seed": 5, "repetition_penalty": 1.3},
    {"max_new_tokens": 7, "no_repeat_ngram_size": 2, "min_new_tokens": 3},
]


class Asked:
    """A request, and what was told about it."""

    def __init__(self, engine: Engine, decoder: Decoder, text: str, **options: Any) -> None:
        work = {name: options.pop(name) for name in ("stop", "streams", "likeliest", "echo") if name in options}
        self.pieces: list[str] = []
        self.endings: dict[int, Ending] = {}
        self.done = threading.Event()
        run = decoder.run
        self.work = Work(run, run.encode(text), run.settings(**options), self.tell, **work)
        engine.submit(decoder, self.work)

    def tell(self, event: Event) -> None:
        if isinstance(event, Ending):
            self.endings[event.sample] = event
            if len(self.endings) == self.work.count:
                self.done.set()
        else:
            self.pieces.append(event.text)

    def texts(self) -> list[str]:
        assert self.done.wait(60)
        return [self.endings[i].text for i in range(self.work.count)]


def settle(engine: Engine) -> None:
    """Let the engine take two turns."""
    for _ in range(2):
        engine.do(alone(lambda: None)).result(60)
