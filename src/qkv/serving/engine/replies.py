"""Replies to one conversation after another by a decoder without a server: `qkv chat`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch

from ...data.tokenizers.chat.messages import Messages
from ...generation.settings import Generation
from ...nn.cost.hardware import available
from ...runs.inference.loaded import LoadedModel
from .continuation import Ending, Event, Work
from .decoder import Decoder
from .statistics import Statistics


class Replies:
    """Computes the server's replies to a conversation on this thread.

    Chunks of the prompt that an earlier turn has read are not read again. Raises ValueError if the server would answer with
    an error.
    """

    def __init__(self, run: LoadedModel) -> None:
        free = available(torch.device("cpu")) or 1 << 30
        self.run = replace(run, task="answer")
        self.decoder = Decoder(self.run, Statistics(), prefix_bytes=free // 16)

    @staticmethod
    def serves(run: LoadedModel, settings: Generation) -> bool:
        """Return whether the engine serves a run: a text-only model on the CPU, without speculative decoding."""
        return run.model.device.type == "cpu" and not run.media and settings.speculate is None

    def stream(
        self, messages: Messages, settings: Generation, emit: Callable[[str], None], stop: Sequence[str] = ()
    ) -> str:
        """Pass a reply to `emit` piece by piece, as it is generated, and return it."""
        endings: list[Ending] = []

        def tell(event: Event) -> None:
            if isinstance(event, Ending):
                endings.append(event)
            else:
                emit(event.text)

        chat = self.run.words.chat
        work = Work(self.run, chat.prompt(messages), settings, tell, stop=stop, ends=chat.ends, streams=True)
        try:
            with torch.inference_mode():
                self.decoder.begin(work)
                while self.decoder.reading:
                    self.decoder.read()
                while self.decoder.rows:
                    self.decoder.step()
        finally:
            self.decoder.drop(work)
        (ending,) = endings
        if ending.outcome in ("refused", "error"):
            raise ValueError(ending.message)
        return ending.text
