"""The OpenAPI description of a server's endpoints, with an example for each that one of its runs answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ...runs.tasks.question_answering.task import Answer
from .bodies import Body
from .chat import ChatFields
from .completions import CompletionFields
from .loading import ModelFields
from .responses import ResponseFields
from .served import Models, Served
from .tasks import (
    ClassifyFields,
    EmbeddingFields,
    LikelihoodFields,
    PredictFields,
    RerankFields,
    ScoreFields,
    TranslateFields,
)

Schema = dict[str, Any]
TEXT: Schema = {"type": "string"}
NUMBER: Schema = {"type": "number"}
COUNT: Schema = {"type": "integer", "minimum": 0}
TRUTH: Schema = {"type": "boolean"}


def record(optional: Mapping[str, Schema] | None = None, **fields: Schema) -> Schema:
    """The schema of an object with these fields."""
    return {"type": "object", "properties": {**fields, **(optional or {})}, "required": list(fields)}


def listed(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def _or_null(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def _rows(**fields: Schema) -> Schema:
    return record({"usage": TOKENS}, object={"const": "list"}, model=TEXT, data=listed(record(index=COUNT, **fields)))


TOKENS = record(prompt_tokens=COUNT, total_tokens=COUNT)
USAGE = record(prompt_tokens=COUNT, completion_tokens=COUNT, total_tokens=COUNT, prompt_tokens_details=record())
WHY = {"enum": ["stop", "length", "tool_calls"]}
CALL = record(id=TEXT, type={"const": "function"}, function=record(name=TEXT, arguments=TEXT))
MESSAGE = record({"tool_calls": listed(CALL)}, role={"const": "assistant"}, content=_or_null(TEXT))
LOG_PROBS = _or_null(record())


def _completion(kind: str, **said: Schema) -> Schema:
    choice = record(index=COUNT, finish_reason=WHY, logprobs=LOG_PROBS, **said)
    about = {"id": TEXT, "object": {"const": kind}, "created": COUNT, "model": TEXT}
    return record(**about, choices=listed(choice), usage=USAGE)


PART = record(type={"const": "output_text"}, text=TEXT)
OUTPUT = record(type={"const": "message"}, role={"const": "assistant"}, content=listed(PART))
RESPONSE = record(
    id=TEXT,
    object={"const": "response"},
    status={"enum": ["completed", "incomplete"]},
    model=TEXT,
    output=listed(OUTPUT),
    usage=record(input_tokens=COUNT, output_tokens=COUNT, total_tokens=COUNT),
)
FLOATS = {"anyOf": [listed(NUMBER), TEXT]}
RANKED = record({"document": record(text=TEXT)}, index=COUNT, relevance_score=NUMBER)
MODEL = record(
    id=TEXT, object={"const": "model"}, created=COUNT, owned_by=TEXT, endpoints=listed(TEXT), reads_files=TRUTH
)
ERROR = record(
    error=record(message=TEXT, type=TEXT, param=_or_null(TEXT), code=_or_null(COUNT)),
)
STATUS = record({"crashes": COUNT}, status=TEXT)
LIKELIHOOD = {"log_likelihood": NUMBER, "perplexity": NUMBER, "tokens": listed(TEXT), "log_probs": listed(NUMBER)}
PREDICTION = {"anyOf": [_rows(text=TEXT), record(object={"const": "prediction"}, model=TEXT, text=TEXT)]}


@dataclass(frozen=True)
class Operation:
    """One endpoint: what it is for, the fields of a request if it has a body, its answer, and an example of a body."""

    summary: str
    answer: Schema
    fields: type[Body] | None = None
    example: Mapping[str, Any] | None = None
    media: str = "application/json"

    @property
    def method(self) -> str:
        return "get" if self.fields is None else "post"


MESSAGES = [{"role": "user", "content": "How are you?"}]
OPERATIONS: dict[str, Operation] = {
    "/v1/completions": Operation(
        "Continue texts.",
        _completion("text_completion", text=TEXT),
        CompletionFields,
        {"prompt": "The old man", "max_tokens": 8, "temperature": 0},
    ),
    "/v1/chat/completions": Operation(
        "Reply to a conversation.",
        _completion("chat.completion", message=MESSAGE),
        ChatFields,
        {"messages": MESSAGES, "max_tokens": 8, "temperature": 0},
    ),
    "/v1/responses": Operation(
        "Reply, by OpenAI's newer API; nothing is stored.",
        RESPONSE,
        ResponseFields,
        {"input": "How are you?", "max_output_tokens": 8, "temperature": 0},
    ),
    "/v1/embeddings": Operation(
        "Embed texts.",
        _rows(object={"const": "embedding"}, embedding=FLOATS),
        EmbeddingFields,
        {"input": ["a cat", "a dog"]},
    ),
    "/v1/rerank": Operation(
        "Rank documents for a query.",
        record(model=TEXT, results=listed(RANKED), usage=record(total_tokens=COUNT)),
        RerankFields,
        {"query": "a cat", "documents": ["a dog", "two cats"], "top_n": 1},
    ),
    "/v1/score": Operation(
        "Score pairs of texts.",
        _rows(object={"const": "score"}, score=NUMBER),
        ScoreFields,
        {"text_1": "a cat", "text_2": ["a dog", "two cats"]},
    ),
    "/v1/translate": Operation(
        "Translate texts.", _rows(text=TEXT, finish_reason=WHY), TranslateFields, {"input": ["a b c"]}
    ),
    "/v1/classify": Operation(
        "Classify texts.",
        _rows(label=TEXT, probabilities={"type": "object", "additionalProperties": NUMBER}),
        ClassifyFields,
        {"input": ["a good film"]},
    ),
    "/v1/tag": Operation("Tag the words of texts.", PREDICTION, PredictFields, {"input": ["Ann lives in Oslo"]}),
    "/v1/predict": Operation(
        "Predict what the run was trained for, on texts in JSON, or on one file that is the whole body.",
        PREDICTION,
        PredictFields,
        {"input": ["a good film"]},
    ),
    "/v1/loglikelihood": Operation(
        "Score texts, or targets after texts, by their log-likelihood.",
        _rows(**LIKELIHOOD),
        LikelihoodFields,
        {"input": "the cat"},
    ),
    "/v1/models": Operation("List the runs.", record(object={"const": "list"}, data=listed(MODEL))),
    "/health": Operation("Whether the process can answer; 503 if it has to be started again.", STATUS),
    "/ready": Operation("Whether requests of all runs are accepted now; else 503.", STATUS),
    "/metrics": Operation("Counters in Prometheus' text format.", TEXT, media="text/plain"),
    "/models/load": Operation(
        "Load a run, or load it again and swap it.",
        record(success=TRUTH, model=TEXT, swapped=TRUTH, memory_bytes=COUNT, endpoints=listed(TEXT)),
        ModelFields,
    ),
    "/models/unload": Operation("Unload a run.", record(success=TRUTH, model=TEXT), ModelFields),
}
FILES = ("image/png", "image/jpeg", "audio/wav", "video/mp4", "text/csv")


def description(models: Models, changes_models: bool = False, needs_key: bool = False) -> dict[str, Any]:
    """The OpenAPI document of a server."""
    served, paths = list(models.by_name.values()), {}
    for path, operation in OPERATIONS.items():
        able = [one for one in served if path in one.endpoints]
        if path.startswith("/models/") and not changes_models:
            continue
        paths[path] = {operation.method: _operation(path, operation, able)}
    found: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {"title": "qkv serve", "version": version("qkv"), "description": "Trained runs over HTTP."},
        "paths": paths,
        "components": {"schemas": {"Error": ERROR}},
    }
    if needs_key or changes_models:
        found["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
    if needs_key:
        found["security"] = [{"key": []}]
    return found


def _operation(path: str, operation: Operation, able: Sequence[Served]) -> dict[str, Any]:
    error = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    described: dict[str, Any] = {
        "summary": operation.summary,
        "operationId": path.strip("/").replace("/", "_"),
        "responses": {
            "200": {"description": "The answer.", "content": {operation.media: {"schema": operation.answer}}},
            "default": {"description": "One sentence about what is wrong.", "content": error},
        },
    }
    if operation.fields is None:
        return described
    schema = operation.fields.model_json_schema(ref_template="#/components/schemas/{model}")
    content: dict[str, Any] = {"application/json": {"schema": schema}}
    text = next((one for one in able if path not in ("/v1/predict", "/v1/tag") or one.reads_only_text), None)
    if operation.example is not None and text is not None:
        content["application/json"]["example"] = {"model": text.name, **_example(path, operation.example, text)}
    if path == "/v1/predict":
        content |= {kind: {"schema": {"type": "string", "format": "binary"}} for kind in FILES}
        about = {"name": "model", "in": "query", "schema": TEXT, "description": "The run, if the body is a file."}
        described["parameters"] = [about]
    described["requestBody"] = {"required": True, "content": content}
    if path.startswith("/v1/"):
        described["x-models"] = [one.name for one in able]
    else:
        described["security"] = [{"key": []}]
    return described


def _example(path: str, example: Mapping[str, Any], served: Served) -> Mapping[str, Any]:
    if path == "/v1/predict" and isinstance(served.run.trained_on, Answer):
        return {"input": [["Who lives in Oslo?", "Ann lives in Oslo."]]}
    if path == "/v1/loglikelihood" and served.run.task == "translate":
        return {"input": "a b c", "targets": "c b a"}
    return example


async def openapi(request: Request) -> Response:
    state = request.app.state
    changes = any(getattr(route, "path", "") == "/models/load" for route in request.app.routes)
    return JSONResponse(description(state.models, changes, state.needs_key))
