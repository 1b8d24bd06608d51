"""What completions and chats share: usage, server-sent events, and clients that hang up."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import pytest

from qkv.serving.http.errors import ApiError
from qkv.serving.http.generating import reason, sent, until_hung_up, usage


def client(*messages: str) -> Any:
    """A request of a client that sends these messages, and then nothing."""
    left = list(messages)

    async def receive() -> dict[str, str]:
        if not left:
            await asyncio.Event().wait()
        return {"type": left.pop(0)}

    return SimpleNamespace(receive=receive)


def test_a_result_is_given_up_when_the_client_hangs_up() -> None:
    given_up = []

    async def never() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            given_up.append(True)
            raise

    async def soon() -> str:
        return "done"

    async def watch() -> None:
        assert await until_hung_up(client("http.request"), soon()) == "done"
        with pytest.raises(ApiError, match="the client hung up") as error:
            await until_hung_up(client("http.request", "http.disconnect"), never())
        assert error.value.status == 499
        await asyncio.sleep(0)

    asyncio.run(watch())
    assert given_up == [True]


def test_usage_counts_prompts_and_what_was_cached() -> None:
    works: Any = [SimpleNamespace(prompt=[1, 2, 3], reused=2), SimpleNamespace(prompt=[4], reused=0)]
    assert usage(works, 5) == {
        "prompt_tokens": 4,
        "completion_tokens": 5,
        "total_tokens": 9,
        "prompt_tokens_details": {"cached_tokens": 2},
    }


def test_an_event_is_one_line_of_json() -> None:
    event = sent({"text": "zwölf\n"}).decode()
    assert event.startswith("data: ") and event.endswith("\n\n") and event.count("\n") == 2 and "ö" in event
    assert json.loads(event.removeprefix("data: ")) == {"text": "zwölf\n"}


@pytest.mark.parametrize(("outcome", "told"), [("length", "length"), ("end", "stop"), ("stopped", "stop")])
def test_an_output_ends_by_its_length_or_by_itself(outcome: str, told: str) -> None:
    assert reason(SimpleNamespace(outcome=outcome)) == told  # type: ignore[arg-type]
