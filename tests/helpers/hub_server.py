"""A server on this machine that answers what `huggingface_hub` asks of the Hub; repositories in memory."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit


@dataclass
class Repository:
    """commits: the files of each commit by its id; branches: the commit of each."""

    private: bool = False
    gated: bool = False
    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    branches: dict[str, str] = field(default_factory=dict)
    messages: list[str] = field(default_factory=list)

    def commit(self, branch: str, files: dict[str, bytes], message: str = "") -> str:
        said = f"{len(self.commits)}".encode() + b"".join(name.encode() + content for name, content in files.items())
        oid = hashlib.sha1(said).hexdigest()
        self.commits[oid], self.branches[branch] = dict(files), oid
        self.messages.append(message)
        return oid

    def files(self, branch: str = "main") -> dict[str, bytes]:
        return self.commits[self.branches[branch]]


@dataclass
class Hub:
    """The state of the server. tokens: by token, the role that it gives; `read` may not write.

    broken: a pattern of requests, `METHOD path`, that get status `status` in place of an answer.
    asked:  what was asked for.
    """

    repositories: dict[str, Repository] = field(default_factory=dict)
    tokens: dict[str, str] = field(default_factory=lambda: {"writes": "write", "reads": "read", "fine": "fineGrained"})
    large: dict[str, bytes] = field(default_factory=dict)
    broken: str = ""
    status: int = 503
    asked: list[str] = field(default_factory=list)
    address: str = ""


class _Answer(Exception):
    def __init__(self, status: int, value: Any = None, **headers: str) -> None:
        super().__init__(status)
        self.status, self.value, self.headers = status, value, headers


@contextmanager
def serving(hub: Hub) -> Iterator[str]:
    """Serve on a free port of this machine."""

    class Handler(_Handler):
        state = hub

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    hub.address = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub.address
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    state: Hub
    protocol_version = "HTTP/1.1"
    _named = ""

    def log_message(self, *args: Any) -> None:
        pass

    def _all(self) -> None:
        path = unquote(urlsplit(self.path).path)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        line = f"{self.command} {path}"
        self.state.asked.append(line)
        try:
            if self.state.broken and re.search(self.state.broken, line):
                raise _Answer(self.state.status, {"error": "broken"})
            self._route(path, body)
        except _Answer as answer:
            self._send(answer)

    do_GET = do_HEAD = do_POST = do_PUT = _all

    def _send(self, answer: _Answer) -> None:
        content = answer.value if isinstance(answer.value, bytes) else json.dumps(answer.value).encode()
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    @property
    def _role(self) -> str | None:
        token = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
        if token and token not in self.state.tokens:
            raise _Answer(
                401, {"error": "Invalid credentials"}, X_Error_Message="Invalid credentials in Authorization header"
            )
        return self.state.tokens.get(token)

    def _route(self, path: str, body: bytes) -> None:
        if path == "/api/whoami-v2":
            if self._role is None:
                raise _Answer(401, {"error": "Invalid username or password."})
            raise _Answer(200, {"name": "me", "auth": {"accessToken": {"role": self._role}}})
        if path == "/api/validate-yaml":
            raise _Answer(200, {"errors": [], "warnings": []})
        if path == "/api/repos/create":
            self._create(json.loads(body))
        if found := re.fullmatch(r"/large/([0-9a-f]+)", path):
            self.state.large[found[1]] = body
            raise _Answer(200, {})
        for pattern, answer in (
            (r"/api/models/([^/]+/[^/]+)/branch/(.+)", self._branch),
            (r"/api/models/([^/]+/[^/]+)/preupload/(.+)", self._preupload),
            (r"/api/models/([^/]+/[^/]+)/commit/(.+)", self._commit),
            (r"/api/models/([^/]+/[^/]+)/tree/([^/]+)", self._tree),
            (r"/api/models/([^/]+/[^/]+)(?:/revision/(.+))?", self._info),
            (r"/([^/]+/[^/]+)\.git/info/lfs/objects/batch", self._batch),
            (r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", self._file),
        ):
            if found := re.fullmatch(pattern, path):
                self._named = found[1]
                answer(body, self._repository(found[1]), *found.groups()[1:])
        raise _Answer(404, {"error": "not found"})

    def _repository(self, name: str) -> Repository:
        found = self.state.repositories.get(name)
        if found is None or (found.private and self._role is None):
            raise _Answer(401 if self._role is None else 404, {"error": "no"}, X_Error_Code="RepoNotFound")
        if found.gated and self._role != "write":
            raise _Answer(403, {"error": "gated"}, X_Error_Code="GatedRepo")
        return found

    def _writable(self) -> None:
        if self._role != "write":
            raise _Answer(403, {"error": "You don't have the rights"}, X_Error_Message="You don't have the rights")

    def _create(self, asked: dict[str, Any]) -> None:
        self._writable()
        name = f"{asked.get('organization') or 'me'}/{asked['name']}"
        if name in self.state.repositories:
            raise _Answer(409, {"url": f"{self.state.address}/{name}"})
        made = self.state.repositories[name] = Repository(
            asked.get("visibility") == "private" or bool(asked.get("private"))
        )
        made.commit("main", {".gitattributes": b"*.safetensors filter=lfs\n"}, "initial commit")
        raise _Answer(200, {"url": f"{self.state.address}/{name}", "name": name})

    def _commit_of(self, repository: Repository, revision: str | None) -> str:
        oid = repository.branches.get(revision or "main", revision or "")
        if oid not in repository.commits:
            raise _Answer(404, {"error": "no revision"}, X_Error_Code="RevisionNotFound")
        return oid

    def _info(self, body: bytes, repository: Repository, revision: str | None = None) -> None:
        oid = self._commit_of(repository, revision)
        files = [{"rfilename": file} for file in repository.commits[oid]]
        raise _Answer(200, {"id": "x/x", "sha": oid, "private": repository.private, "siblings": files, "tags": []})

    def _tree(self, body: bytes, repository: Repository, revision: str) -> None:
        files = repository.commits[self._commit_of(repository, revision)]
        entries = [
            {"type": "file", "path": file, "size": len(content), "oid": _blob(content)}
            for file, content in files.items()
        ]
        raise _Answer(200, entries)

    def _file(self, body: bytes, repository: Repository, revision: str, file: str) -> None:
        oid = self._commit_of(repository, revision)
        content = repository.commits[oid].get(file)
        if content is None:
            raise _Answer(404, {"error": "no file"}, X_Error_Code="EntryNotFound", X_Repo_Commit=oid)
        raise _Answer(200, content, ETag=f'"{_blob(content)}"', X_Repo_Commit=oid)

    def _branch(self, body: bytes, repository: Repository, branch: str) -> None:
        self._writable()
        if branch in repository.branches:
            raise _Answer(409, {"error": "exists"})
        repository.branches[branch] = repository.branches["main"]
        raise _Answer(200, {})

    def _preupload(self, body: bytes, repository: Repository, branch: str) -> None:
        self._writable()
        there = repository.commits[self._commit_of(repository, branch)]
        modes = [
            {
                "path": file["path"],
                "uploadMode": "lfs" if file["path"].endswith(".safetensors") else "regular",
                "shouldIgnore": False,
                "oid": _blob(there[file["path"]]) if file["path"] in there else None,
            }
            for file in json.loads(body)["files"]
        ]
        raise _Answer(200, {"files": modes})

    def _batch(self, body: bytes, repository: Repository) -> None:
        self._writable()
        objects = [
            {**one, "actions": {"upload": {"href": f"{self.state.address}/large/{one['oid']}"}}}
            for one in json.loads(body)["objects"]
        ]
        raise _Answer(200, {"transfer": "basic", "objects": objects}, Content_Type="application/vnd.git-lfs+json")

    def _commit(self, body: bytes, repository: Repository, branch: str) -> None:
        self._writable()
        lines = [json.loads(line) for line in body.splitlines() if line.strip()]
        head = self._commit_of(repository, branch)
        about = next(line["value"] for line in lines if line["key"] == "header")
        if about.get("parentCommit") not in (None, head):
            raise _Answer(412, {"error": "A commit has happened since. Please refresh and try again."})
        files = dict(repository.commits[head])
        for line in lines:
            value = line["value"]
            if line["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                files[value["path"]] = self.state.large[value["oid"]]
            elif line["key"] == "deletedFile":
                del files[value["path"]]
        oid = repository.commit(branch, files, about["summary"])
        raise _Answer(
            200,
            {"commitOid": oid, "commitUrl": f"{self.state.address}/{self._named}/commit/{oid}", "pullRequestUrl": None},
        )


def _blob(content: bytes) -> str:
    """Git's checksum of a file."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
