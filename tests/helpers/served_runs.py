"""Requests to the engine, and what was told about them."""

from __future__ import annotations

import threading
from typing import Any

from qkv.serving.engine.continuation import Ending, Event, Work
from qkv.serving.engine.decoder import Decoder
from qkv.serving.engine.engine import Engine
from qkv.serving.engine.jobs import alone


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
