"""Endpoints of encoders and encoder–decoders: embeddings, ranking, translations, classes, predictions, likelihoods.

Each request is one job of the engine, or several if it has many texts. Requests of one kind that wait at the same time are
computed as one batch, if that changes no number (`TextJobs`).
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ...core.spec import brief
from ...generation.settings import Generation
from ...runs.inference.score import TextScore
from ...runs.tasks.classes import Classified
from ...runs.tasks.prediction import Prediction
from ..engine.continuation import Ending, Work
from ..engine.jobs import Job
from . import bodies
from .bodies import Body
from .errors import ApiError
from .generating import until_hung_up
from .sampling import checked_texts
from .served import Models, Served, nobody

Texts = str | list[str]
_SHORT = 2048  # characters whose tokens are counted in less time than another thread needs to begin
BEAMED = 16
"""Texts whose beams or samples are computed at a time; other requests are computed in between."""
JSON_TYPES = ("", "application/json", "application/x-www-form-urlencoded")
"""Content types of requests with texts; the last is what `curl -d` says if nothing else is given."""


class EmbeddingFields(Body):
    """Texts to embed. `dimensions` keeps the first numbers of each vector and scales it to length 1."""

    model: str | None = None
    input: Texts | list[int] | list[list[int]]
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: int | None = Field(None, ge=1)


class RerankFields(Body):
    """A query and the documents to rank for it."""

    model: str | None = None
    query: str
    documents: list[str | dict[str, Any]]
    top_n: int | None = Field(None, ge=1)
    return_documents: bool = True


class ScoreFields(Body):
    """Pairs to score: `text_1` with each of `text_2`, or pair by pair."""

    model: str | None = None
    text_1: Texts
    text_2: Texts


class TranslateFields(Body):
    """Texts to translate, and settings of `qkv translate` by their names, such as `num_beams`."""

    model: str | None = None
    input: Texts
    options: dict[str, Any] = Field(default_factory=dict, max_length=32)


class ClassifyFields(Body):
    """Texts to classify; `pairs` are the second texts, for runs that read two."""

    model: str | None = None
    input: Texts
    pairs: Texts | None = None


class PredictFields(Body):
    """Inputs of the run's task. Each is a text, or a list of texts such as a question and its context."""

    model: str | None = None
    input: str | list[str | list[str]]
    options: dict[str, Any] = Field(default_factory=dict, max_length=8)


class LikelihoodFields(Body):
    """Texts to score, or targets to score after each text."""

    model: str | None = None
    input: Texts
    targets: Texts | None = None


def _list(texts: Texts) -> list[str]:
    return [texts] if isinstance(texts, str) else texts


async def _checked(models: Models, served: Served, texts: Texts, name: str) -> list[str]:
    """The texts of a request that are read whole. Raises ValueError for none, too many, or one that is too long."""
    limits, run = models.limits, served.run
    found = checked_texts(_list(texts), limits, name)
    context = run.model.max_positions
    long = [text for text in found if len(text.encode()) > limits.tokens]  # a token has a byte at least
    if long and (context is None or context > limits.tokens):
        longest = await asyncio.to_thread(lambda: max(len(run.encode(text)) for text in long))
        if longest > limits.tokens:
            raise ValueError(
                f"{name} has a text of {longest:,} tokens, and at most {limits.tokens:,} are read at once; split it"
            )
    return found


async def _tokens(served: Served, texts: Sequence[str]) -> int:
    """The number of tokens of texts. Long ones are counted by another thread, so that other requests needn't wait."""

    def count() -> int:
        return sum(len(served.run.encode(text)) for text in texts)

    return count() if sum(map(len, texts)) < _SHORT else await asyncio.to_thread(count)


def _usage(tokens: int) -> dict[str, int]:
    return {"prompt_tokens": tokens, "total_tokens": tokens}


async def embeddings(request: Request) -> Response:
    models: Models = request.app.state.models
    asked = await bodies.fields(request, EmbeddingFields, models.limits.body)
    served = models.find(asked.model, "/v1/embeddings")
    given = [asked.input] if isinstance(asked.input, str) else asked.input
    if not all(isinstance(text, str) for text in given):
        raise ApiError(400, "input is ids, and texts are embedded here: their ids depend on the model", "input")
    texts = await _checked(models, served, [str(text) for text in given], "input")

    job = served.text_jobs.job("embed", texts, lambda some: list(served.run.embed_array(some)), by_head=False)
    vectors = _cut(np.stack(await until_hung_up(request, models.results(job))), asked.dimensions)
    data = [
        {"object": "embedding", "index": i, "embedding": _encoded(vector, asked.encoding_format)}
        for i, vector in enumerate(vectors)
    ]
    usage = _usage(await _tokens(served, texts))
    return JSONResponse({"object": "list", "data": data, "model": served.name, "usage": usage})


def _cut(vectors: NDArray[np.float32], dimensions: int | None) -> NDArray[np.float32]:
    if dimensions is None:
        return vectors
    if dimensions > vectors.shape[1]:
        raise ValueError(f"dimensions is {dimensions}, and this model's vectors have {vectors.shape[1]}")
    short = vectors[:, :dimensions]
    return short / np.maximum(np.linalg.norm(short, axis=1, keepdims=True), 1e-12)


def _encoded(vector: NDArray[np.float32], form: str) -> list[float] | str:
    if form == "float":
        return [float(number) for number in vector]
    return base64.b64encode(vector.astype("<f4").tobytes()).decode()


async def rerank(request: Request) -> Response:
    models: Models = request.app.state.models
    asked = await bodies.fields(request, RerankFields, models.limits.body)
    served = models.find(asked.model, "/v1/rerank")
    documents = [each if isinstance(each, str) else str(each.get("text", "")) for each in asked.documents]
    await _checked(models, served, documents, "documents")
    await _checked(models, served, asked.query, "query")

    scores = await _similarities(request, models, served, [(asked.query, document) for document in documents])
    best = sorted(range(len(documents)), key=lambda i: -scores[i])[: asked.top_n]
    results = [
        {"index": i, "relevance_score": scores[i]}
        | ({"document": {"text": documents[i]}} if asked.return_documents else {})
        for i in best
    ]
    usage = {"total_tokens": await _tokens(served, [asked.query, *documents])}
    return JSONResponse({"model": served.name, "results": results, "usage": usage})


async def _similarities(
    request: Request, models: Models, served: Served, pairs: Sequence[tuple[str, str]]
) -> Sequence[float]:
    """The score of each pair of texts: a head's, or that of two embeddings."""
    run = served.run

    def compute(some: Sequence[tuple[str, str]]) -> list[float]:
        return run.similarity([a for a, _ in some], [b for _, b in some])

    job = served.text_jobs.job("similarity", pairs, compute, by_head=run.model.spec.head is not None)
    return await until_hung_up(request, models.results(job))


async def scores(request: Request) -> Response:
    models: Models = request.app.state.models
    asked = await bodies.fields(request, ScoreFields, models.limits.body)
    served = models.find(asked.model, "/v1/score")
    first, second = [await _checked(models, served, each, "text") for each in (asked.text_1, asked.text_2)]
    if len(first) == 1:
        first = first * len(second)
    if len(first) != len(second):
        raise ApiError(400, f"text_1 has {len(first)} texts and text_2 has {len(second)}; give one text_1, or as many")

    found = await _similarities(request, models, served, list(zip(first, second, strict=True)))
    data = [{"object": "score", "index": i, "score": score} for i, score in enumerate(found)]
    usage = _usage(await _tokens(served, first + second))
    return JSONResponse({"object": "list", "data": data, "model": served.name, "usage": usage})


async def translate(request: Request) -> Response:
    models: Models = request.app.state.models
    asked = await bodies.fields(request, TranslateFields, models.limits.body)
    served = models.find(asked.model, "/v1/translate")
    texts = await _checked(models, served, asked.input, "input")
    settings = served.run.generation.replace(asked.options)
    if settings.num_beams > 1 or settings.speculate is not None or settings.samples:
        _check_room(models, served, len(texts), settings)
        is_seeded = settings.samples and settings.seed is not None  # a text's samples depend on its place in the list
        most = None if is_seeded else BEAMED
        job = Job(lambda some: served.run.outputs(some, settings), texts)
        outputs = await until_hung_up(request, models.results(job, most))
        return JSONResponse(_translated(served, outputs))
    works = await asyncio.to_thread(_works, served, texts, settings)

    async def all_of() -> dict[str, Any]:
        found: dict[int, Ending] = {}
        async for number, event in models.events(served, works):
            assert isinstance(event, Ending)
            found[number] = event
        outputs = [{"index": i, "text": found[i].text, "finish_reason": found[i].outcome} for i in range(len(works))]
        return {"object": "list", "data": outputs, "model": served.name}

    return JSONResponse(await until_hung_up(request, all_of()))


def _check_room(models: Models, served: Served, texts: int, settings: Generation) -> None:
    """Raise ValueError if the outputs for the texts can exceed the limit of tokens in flight."""
    each = min(settings.max_new_tokens, served.run.model.max_positions or settings.max_new_tokens)
    rows = texts * max(settings.num_beams, settings.num_samples)
    if rows * each > models.engine.most_tokens:
        raise ValueError(
            f"the request can have {rows * each:,} new tokens ({each:,} of each of {rows:,} beams or samples), and this "
            f"server has room for {models.engine.most_tokens:,}; lower max_new_tokens, num_beams or num_samples, or send "
            "fewer texts"
        )


def _works(served: Served, texts: Sequence[str], settings: Generation) -> list[Work]:
    run = served.run
    return [Work(run, [], settings, nobody, source=ids) for ids in map(run.encode, texts)]


def _translated(served: Served, outputs: Sequence[Sequence[Any]]) -> dict[str, Any]:
    data = []
    for i, some in enumerate(outputs):
        reason = "length" if some[0].ended == "length" else "stop"
        one = {"index": i, "text": some[0].text, "finish_reason": reason}
        data.append(one | ({"texts": [each.text for each in some]} if len(some) > 1 else {}))
    return {"object": "list", "data": data, "model": served.name}


def _rows(texts: Sequence[str], seconds: Sequence[str] | None, name: str) -> list[tuple[str, ...]]:
    """Each text alone, or with its second text from the field `name`. Raises `ApiError` if their numbers differ."""
    if seconds is None:
        return [(text,) for text in texts]
    if len(seconds) != len(texts):
        each = name.removesuffix("s")
        raise ApiError(
            400, f"input has {len(texts)} texts and {name} has {len(seconds)}; give one {each} for each text", name
        )
    return list(zip(texts, seconds, strict=True))


def _columns(rows: Sequence[tuple[str, ...]]) -> list[list[str]]:
    return [list(column) for column in zip(*rows, strict=True)]


async def classify(request: Request) -> Response:
    models: Models = request.app.state.models
    asked = await bodies.fields(request, ClassifyFields, models.limits.body)
    served = models.find(asked.model, "/v1/classify")
    texts = await _checked(models, served, asked.input, "input")
    pairs = None if asked.pairs is None else await _checked(models, served, asked.pairs, "pairs")

    rows = _rows(texts, pairs, "pairs")

    def compute(some: Sequence[tuple[str, ...]]) -> list[Classified]:
        return served.run.classify(*_columns(some))

    found = await until_hung_up(
        request, models.results(served.text_jobs.job(("classify", pairs is None), rows, compute))
    )
    data = [{"index": i, "label": one.label, "probabilities": one.probabilities} for i, one in enumerate(found)]
    usage = _usage(await _tokens(served, texts))
    return JSONResponse({"object": "list", "data": data, "model": served.name, "usage": usage})


async def predict(request: Request) -> Response:
    """Predict on texts in JSON, or on one file that is the whole body (`?model=` names the run)."""
    from .uploads import predict_file

    models: Models = request.app.state.models
    if request.headers.get("content-type", "").split(";")[0].strip().lower() not in JSON_TYPES:
        return await predict_file(request, models)
    asked = await bodies.fields(request, PredictFields, models.limits.body)
    path = request.url.path
    served = models.find(asked.model, path)
    if not served.reads_only_text:
        raise ApiError(400, f"{served.name} reads files; send one as the body, with its content type", "input")
    given = [asked.input] if isinstance(asked.input, str) else asked.input
    inputs = [one if isinstance(one, str) else tuple(one) for one in given]
    await _checked(
        models, served, [part for one in inputs for part in ([one] if isinstance(one, str) else one)], "input"
    )
    unknown = set(asked.options) - {"threshold", "seed"}
    if unknown:
        raise ApiError(400, f"options has {brief(min(unknown))}; a request may give threshold and seed", "options")

    def compute(some: Sequence[str | tuple[str, ...]]) -> list[Prediction]:
        return served.run.predict(some, **asked.options)

    job = served.text_jobs.job(("predict", json.dumps(asked.options, sort_keys=True)), inputs, compute)
    found = await until_hung_up(request, models.results(job))
    data = [{"index": i, "text": one.text, **one.fields} for i, one in enumerate(found)]
    return JSONResponse({"object": "list", "data": data, "model": served.name})


async def log_likelihood(request: Request) -> Response:
    models: Models = request.app.state.models
    asked = await bodies.fields(request, LikelihoodFields, models.limits.body)
    served = models.find(asked.model, "/v1/loglikelihood")
    texts = await _checked(models, served, asked.input, "input")
    targets = None if asked.targets is None else await _checked(models, served, asked.targets, "targets")
    rows = _rows(texts, targets, "targets")

    def compute(some: Sequence[tuple[str, ...]]) -> list[TextScore]:
        return served.run.score(*_columns(some))

    found = await until_hung_up(request, models.results(Job(compute, rows)))
    data = [
        {
            "index": i,
            "log_likelihood": one.log_likelihood,
            "perplexity": one.perplexity,
            "tokens": list(one.tokens),
            "log_probs": list(one.log_probs),
        }
        for i, one in enumerate(found)
    ]
    return JSONResponse({"object": "list", "data": data, "model": served.name})
