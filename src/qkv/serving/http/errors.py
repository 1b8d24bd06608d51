"""Errors as OpenAI's clients read them."""

from __future__ import annotations

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

TYPES = {400: "invalid_request_error", 401: "authentication_error", 403: "permission_error", 404: "not_found_error"}


class ApiError(Exception):
    """An answer other than 200: its status, one sentence, and the field that is to blame."""

    def __init__(
        self, status: int, message: str, param: str | None = None, headers: dict[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.param, self.headers = status, message, param, headers

    @property
    def content(self) -> dict[str, dict[str, str | int | None]]:
        kind = TYPES.get(self.status, "invalid_request_error" if self.status < 429 else "server_error")
        kind = "rate_limit_error" if self.status == 429 else kind
        message, param = _whole(self.message), None if self.param is None else _whole(self.param)
        return {"error": {"message": message, "type": kind, "param": param, "code": self.status}}

    def response(self) -> JSONResponse:
        return JSONResponse(self.content, self.status, self.headers)


def _whole(text: str) -> str:
    """Escape lone surrogates (halves of characters), which no answer can contain."""
    return text.encode("utf-8", "backslashreplace").decode()


def answer(request: Request, error: Exception) -> Response:
    """The answer to a request that raised an error, without a path or a traceback."""
    if isinstance(error, ApiError):
        return error.response()
    if isinstance(error, HTTPException):
        sentence = {404: f"there is no {request.url.path[:200]} here", 405: f"{request.method} is not allowed here"}
        return ApiError(error.status_code, sentence.get(error.status_code, error.detail)).response()
    if isinstance(error, ValueError):
        return ApiError(400, request.app.state.models.without_paths(str(error))).response()
    return ApiError(500, "the server failed at this request; its log says why").response()
