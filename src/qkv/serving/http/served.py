"""The runs that are served, by name, with the engine that computes for them."""

from __future__ import annotations

import asyncio
import math
import os
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from ...core.spec import brief, nearest
from ...nn.models.heads.sequence import SequenceClassifier
from ...runs.inference.run import Run
from ...runs.inference.uses import commands, kind_of, reads_text
from ...runs.tasks.question_answering.task import Answer
from ...runs.tasks.tagging.task import Tag
from ...runs.tasks.text_classification.task import Classify
from ...runs.tasks.text_regression.task import Regress
from ..engine.continuation import Ending, Event, Work
from ..engine.decoder import Decoder
from ..engine.engine import Busy, Engine, Unavailable
from ..engine.jobs import MOST_JOINED, Job, alone
from ..engine.text_jobs import TextJobs
from .errors import ApiError

Result = TypeVar("Result")
ENDPOINTS = {  # by the command that does the same
    "generate": ("/v1/completions", "/v1/loglikelihood"),
    "chat": ("/v1/chat/completions", "/v1/responses"),
    "translate": ("/v1/translate", "/v1/loglikelihood"),
    "embed": ("/v1/embeddings", "/v1/rerank", "/v1/score"),
    "classify": ("/v1/classify",),
    "predict": ("/v1/predict",),
}


@dataclass(frozen=True)
class RequestLimits:
    """What one request may ask for, and all requests together.

    body:       bytes. texts: inputs. characters: of a text.
    tokens:     of a text that is read whole, if the model's context is longer: the time grows with their square, and nothing
                else is computed meanwhile.
    seconds:    until its answer is complete. stops: stop strings.
    bodies:     bytes of all requests that are read or answered. waiting: requests in the queue.
    """

    body: int = 8 << 20
    bodies: int = 256 << 20
    texts: int = 256
    characters: int = 1 << 20
    tokens: int = 8192
    seconds: float = 600.0
    stops: int = 16
    waiting: int = 256


@dataclass(eq=False)
class Served:
    """One run: its name in requests, what makes jobs of texts that it reads whole, and its decoder if it generates."""

    name: str
    run: Run
    text_jobs: TextJobs
    decoder: Decoder | None
    created: int = field(default_factory=lambda: int(time.time()))

    def __post_init__(self) -> None:
        self.commands = commands(self.run)
        paths = [path for command in self.commands for path in ENDPOINTS.get(command, ())]
        if self.run.task == "translate":  # whose source is not the beginning of what it writes
            paths = [path for path in paths if path != "/v1/completions"]
        if not reads_text(self.run):  # a classifier of pictures or sounds: /v1/predict reads the file
            paths = [path for path in paths if path != "/v1/classify"]
        if isinstance(self.run.trained_on, Tag):
            paths.append("/v1/tag")
        if "/v1/predict" in paths and reads_text(self.run) and self._scores_pairs():
            paths += ["/v1/rerank", "/v1/score"]
        self.endpoints = list(dict.fromkeys(paths))

    def _scores_pairs(self) -> bool:
        """Whether the head gives a pair of texts one number: a cross-encoder."""
        head = getattr(self.run.model.spec, "head", None)
        return isinstance(head, SequenceClassifier) and head.labels == 1

    @property
    def reads_only_text(self) -> bool:
        """Whether all inputs are texts, and none is the path of a file."""
        task = self.run.trained_on
        return reads_text(self.run) and (task is None or isinstance(task, Tag | Answer | Classify | Regress))

    def check(self, path: str) -> None:
        """Raise `ApiError` if the run does not do what a path is for, naming what it does."""
        if path not in self.endpoints:
            has = ", ".join(self.endpoints) or "nothing that this server offers"
            raise ApiError(
                404, f"{self.name} is {kind_of(self.run)}, which {path} does not serve; it has {has}", "model"
            )


class Models:
    """All served runs, their engine and the limits of requests.

    `changing` is held while a run is loaded or removed. All methods belong to the event loop's thread.
    """

    def __init__(self, engine: Engine, limits: RequestLimits, fast: bool = False, prefix_bytes: int = 0) -> None:
        self.by_name: dict[str, Served] = {}
        self.engine, self.limits, self.fast, self.prefix_bytes = engine, limits, fast, prefix_bytes
        self.changing = asyncio.Lock()

    def put(self, name: str, run: Run) -> Served:
        """Serve a run by a name. One that had the name finishes the requests that it has."""
        served = Served(name, run, TextJobs(run, self.fast), None)
        if {"generate", "translate"} & set(served.commands):
            served.decoder = Decoder(run, self.engine.statistics, self.fast, self.prefix_bytes)
            self.engine.add(served.decoder)
        before = self.by_name.get(name)
        self.by_name[name] = served
        if before is not None and before.decoder is not None:
            self.engine.remove(before.decoder)
        return served

    def remove(self, name: str) -> None:
        """Serve a run no longer. It finishes the requests that it has."""
        decoder = self.by_name.pop(name).decoder
        if decoder is not None:
            self.engine.remove(decoder)

    def find(self, name: str | None, path: str) -> Served:
        """The run of a request; if it names none, the only one that does what the path is for. Raises `ApiError`."""
        if name is not None:
            if name not in self.by_name:
                raise self.unknown(name)
            served = self.by_name[name]
            served.check(path)
            return served
        able = [one for one in self.by_name.values() if path in one.endpoints]
        if len(able) == 1:
            return able[0]
        if not self.by_name:
            raise ApiError(503, "no model is loaded now", "model")
        if not able:
            next(iter(self.by_name.values())).check(path)
        raise ApiError(400, f"name the model; there is {', '.join(self.by_name)}", "model")

    def without_paths(self, sentence: str) -> str:
        """Replace the directories of runs in a sentence by the names that requests use."""
        for name, served in self.by_name.items():
            for path in () if served.run.path is None else (str(served.run.path.absolute()), str(served.run.path)):
                sentence = sentence.replace(path, name) if os.sep in path else sentence
        return sentence

    def unknown(self, name: str) -> ApiError:
        known = nearest(name[:100], self.by_name) if self.by_name else "none is loaded now"
        return ApiError(404, f"there is no model {brief(name)}; {known}", "model")

    async def do(self, work: Callable[[], Result]) -> Result:
        """The result of something that is computed by itself on the engine's thread. Raises `ApiError` as `results` does."""
        return (await self.results(alone(work)))[0]

    async def results(self, job: Job[Any, Result], most: int | None = MOST_JOINED) -> Sequence[Result]:
        """The results of a job. It is computed in pieces of at most `most` inputs, and other requests in between; as a whole
        if `most` is None.

        Raises `ApiError` if the queue is full or it takes too long.
        """
        pieces = [job] if most is None else job.pieces(most)
        found: list[Result] = []
        try:
            async with asyncio.timeout(self.limits.seconds):
                with self.engine.admit():
                    for piece in pieces:
                        try:
                            results = await asyncio.wrap_future(self.engine.do(piece, admitted=True))
                        except ValueError as error:
                            raise _placed(error, len(found), piece, job) from None
                        found += results
            return found
        except Busy as busy:
            raise overloaded(busy) from None
        except TimeoutError:
            raise self._late() from None

    def check_room(self, served: Served, work: Work) -> None:
        """Raise `ApiError` or ValueError if the engine would not accept a request now."""
        assert served.decoder is not None
        try:
            self.engine.check(served.decoder, work)
        except Busy as busy:
            raise overloaded(busy) from None

    def _late(self) -> ApiError:
        return ApiError(503, f"the answer took longer than {self.limits.seconds:g} seconds; ask for fewer tokens")

    async def events(self, served: Served, works: Sequence[Work]) -> AsyncIterator[tuple[int, Event]]:
        """The events of requests, each with its number; all are given up if nobody listens any more."""
        try:
            async with asyncio.timeout(self.limits.seconds):
                async for each in self._events(served, works):
                    yield each
        except TimeoutError:
            raise self._late() from None
        finally:
            for work in works:
                work.cancelled = True

    async def _events(self, served: Served, works: Sequence[Work]) -> AsyncIterator[tuple[int, Event]]:
        queue: asyncio.Queue[tuple[int, Event]] = asyncio.Queue()
        loop = asyncio.get_running_loop()
        assert served.decoder is not None

        def teller(number: int) -> Callable[[Event], None]:
            def tell(event: Event) -> None:
                if not loop.is_closed():
                    loop.call_soon_threadsafe(queue.put_nowait, (number, event))

            return tell

        left = 0
        try:
            for number, work in enumerate(works):
                work.tell = teller(number)
                self.engine.submit(served.decoder, work)
                left += work.count
        except Busy as busy:
            raise overloaded(busy) from None
        while left:
            number, event = await queue.get()
            if isinstance(event, Ending):
                left -= 1
                if event.outcome in ("refused", "error", "crashed"):
                    raise self._failure(event)
            yield number, event

    def _failure(self, event: Ending) -> ApiError:
        if event.outcome == "crashed":
            return ApiError(503, event.message, headers={"retry-after": "1"})
        return ApiError(400 if event.outcome == "refused" else 500, self.without_paths(event.message))


def _placed(error: ValueError, before: int, piece: Job[Any, Any], job: Job[Any, Any]) -> ValueError:
    """The error of a piece of a job. Places in its message count from the piece, so the message names the piece's inputs."""
    count = len(piece.inputs)
    if count == len(job.inputs):
        return error
    inputs = f"input {before + 1}" if count == 1 else f"inputs {before + 1} to {before + count}, counted from the first"
    return ValueError(f"in {inputs}: {error}")


def overloaded(busy: Busy) -> ApiError:
    """The answer to a request that can't be accepted now."""
    away = isinstance(busy, Unavailable)
    seconds = math.ceil(busy.seconds) if isinstance(busy, Unavailable) else 1
    return ApiError(503 if away else 429, str(busy), headers={"retry-after": str(seconds)})


def nobody(event: Event) -> None:
    """Tell no one: until somebody listens."""
