"""Whisper's special tokens, as settings name them."""

from __future__ import annotations

from typing import Any

import pytest
from tests.helpers.whispering import noise

import qkv


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"no_timestamps_token_id": 10**6}, "name the token 1000000, outside 0"),
        ({"lang_to_id": {"<|en|>": "x"}}, "name the token 'x', outside 0"),
        ({"alignment_heads": [[0]]}, "alignment_heads are pairs of a layer and a head"),
        ({"alignment_heads": [[7, 0]]}, "names head 0 of layer 7, and the decoder has 2 layers of 4 heads"),
        ({"max_initial_timestamp_index": -1}, "which is no number of steps"),
    ],
)
def test_settings_that_fit_no_model_are_named(
    pair: tuple[Any, qkv.Run], changes: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = pair[1]
    assert run.origin is not None
    monkeypatch.setitem(run.origin.generation, next(iter(changes)), next(iter(changes.values())))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=message):
        run.transcribe((noise(0.2), 16_000), words=True)
