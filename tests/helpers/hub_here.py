"""The Hub as a server on this machine, for `huggingface_hub` in this process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hub_server import Hub, serving


@contextmanager
def hub_here(folder: Path, token: str | None = "writes") -> Iterator[Hub]:
    """Serve an empty Hub, and let `huggingface_hub` ask it, with a cache in `folder`."""
    constants = pytest.importorskip("huggingface_hub.constants", reason="an optional dependency")
    hub = Hub()
    with serving(hub) as address, pytest.MonkeyPatch.context() as patch:
        patch.setattr(constants, "ENDPOINT", address)
        patch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", address + "/{repo_id}/resolve/{revision}/{filename}")
        patch.setattr(constants, "HF_HUB_CACHE", str(folder / "cache"))
        patch.setattr(constants, "HF_TOKEN_PATH", str(folder / "token"))
        patch.setattr(constants, "HF_HUB_DISABLE_XET", True)
        patch.setenv("HF_HUB_CACHE", str(folder / "cache"))
        patch.delenv("HF_TOKEN", raising=False)
        if token is not None:
            patch.setenv("HF_TOKEN", token)
        yield hub
