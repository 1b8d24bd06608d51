"""Who may ask: hosts and origins, keys, and how often each key may ask."""

from __future__ import annotations

import hashlib
import hmac
import time
from collections.abc import Collection, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ...core.spec import brief
from ..engine.statistics import Statistics
from .errors import ApiError

OPEN = ("/", "/health", "/ready", "/page.css", "/page.js", "/docs", "/docs.js")
"""Paths that need no key: they tell nothing about the models."""
ADMIN = ("/models/load", "/models/unload")
"""Paths that need the key of an administrator."""
LOOPBACK = ("127.0.0.1", "localhost", "::1")
LARGEST_KEYS = 1 << 20  # bytes of a file of keys


class Keys:
    """API keys, of which only digests are kept. Comparing takes as long whatever was given."""

    def __init__(self, keys: Sequence[str]) -> None:
        self._digests = [_digest(key) for key in keys]

    @classmethod
    def read(cls, path: Path) -> Keys:
        """The keys in a file, one a line. Raises ValueError for a file without keys, or with short ones."""
        if path.stat().st_size > LARGEST_KEYS:
            raise ValueError(f"{path} has more than {LARGEST_KEYS:,} bytes, so it is no file of keys")
        keys = [line.strip() for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
        if not keys:
            raise ValueError(f"{path} has no key; write one a line, such as what `openssl rand -hex 24` prints")
        if any(len(key) < 16 for key in keys):
            raise ValueError(f"{path} has a key of fewer than 16 characters, which can be guessed; take longer ones")
        return cls(keys)

    def number_of(self, given: str) -> int | None:
        """The number of a key; None if it is none."""
        digest, found = _digest(given), None
        for number, known in enumerate(self._digests):
            if hmac.compare_digest(digest, known):
                found = number
        return found


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()


class Rates:
    """How many requests of each client are left: `most` at once, and as many again within a minute."""

    def __init__(self, most: int | None) -> None:
        self.most = most
        self._left: dict[object, tuple[float, float]] = {}  # requests, and when they were counted

    def take(self, client: object) -> float:
        """Count a request; the seconds to wait if there are too many, else 0."""
        if self.most is None:
            return 0.0
        now = time.monotonic()
        left, then = self._left.get(client, (float(self.most), now))
        left = min(self.most, left + (now - then) * self.most / 60)
        if len(self._left) > 10_000:
            self._left.clear()
        self._left[client] = (left - 1 if left >= 1 else left, now)
        return 0.0 if left >= 1 else (1 - left) * 60 / self.most


class Guard:
    """ASGI middleware that refuses requests before anything is read of them.

    paths: the paths that are counted by name; others are counted as one, so clients can't fill the memory with names.
    hosts: the names that `Host` may have; None for any. A page of another site can make a browser send requests here: its
    `Origin` is not ours, or, if the site's name leads to this machine, its `Host`.
    """

    def __init__(
        self,
        app: ASGIApp,
        hosts: Sequence[str] | None,
        keys: Keys | None,
        rates: Rates,
        statistics: Statistics,
        admins: Keys | None = None,
        paths: Collection[str] = OPEN,
    ) -> None:
        self.app, self.hosts, self.keys, self.rates, self.statistics = app, hosts, keys, rates, statistics
        self.admins, self.paths = admins, paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        status = 500

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message.setdefault("headers", []).extend(SECURE)
            await send(message)

        try:
            self._check(scope)
        except ApiError as error:
            await error.response()(scope, receive, watched)
        else:
            await self.app(scope, receive, watched)
        finally:
            path = str(getattr(scope.get("route"), "path", scope["path"]))
            self.statistics.requests[path if path in self.paths else "other", status] += 1

    def _check(self, scope: Scope) -> None:
        headers = Headers(scope=scope)
        host, origin = headers.get("host", ""), headers.get("origin")
        try:
            name = urlsplit(f"//{host}").hostname if host else None
            site = urlsplit(origin).netloc if origin is not None else host
        except ValueError:
            raise ApiError(400, "Host and Origin have to be addresses; one of them is none") from None
        if self.hosts is not None and name not in self.hosts:
            raise ApiError(403, f"this server is not called {brief(name)}; name it with --allowed-host to allow that")
        if site != host:
            raise ApiError(403, "requests of other sites' pages are not answered")
        if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            raise ApiError(403, "requests of other sites' pages are not answered")
        client: object = (scope.get("client") or ("",))[0]
        if scope["path"] in OPEN:
            return
        keys = self.admins if scope["path"] in ADMIN and self.admins is not None else self.keys
        if keys is not None:
            scheme, _, given = headers.get("authorization", "").partition(" ")
            number = keys.number_of(given.strip()) if scheme.lower() == "bearer" else None
            if number is None:
                whose = "a key of this server" if keys is self.keys else "the key of an administrator"
                raise ApiError(401, f"give {whose}: Authorization: Bearer KEY", headers=CHALLENGE)
            client = (keys is self.keys, number)
        wait = self.rates.take(client)
        if wait:
            raise ApiError(
                429, f"at most {self.rates.most} requests a minute are answered", headers={"retry-after": f"{wait:.0f}"}
            )


CHALLENGE = {"www-authenticate": "Bearer"}
SECURE = [
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (
        b"content-security-policy",
        b"default-src 'self'; img-src 'self' blob: data:; frame-ancestors 'none'; base-uri 'none'",
    ),
]
