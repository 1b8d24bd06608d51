"""Subtitles and JSON of a transcript."""

from __future__ import annotations

import json

import pytest

from qkv.runs.inference.transcribe import SpokenSegment, TimedWord, Transcript
from qkv.runs.inference.transcribe.transcript import clock

SPOKEN = (TimedWord(" Hi", 0.0, 0.5, 0.9), TimedWord(" <you>.", 0.5, 1.5, 0.8))
HEARD = Transcript(
    "Hi <you>. 2 & 3",
    (
        SpokenSegment(
            0.0, 1.5, " Hi <you>.", (1, 2), words=(TimedWord(" Hi", 0.0, 0.5, 0.9), TimedWord(" <you>.", 0.5, 1.5, 0.8))
        ),
        SpokenSegment(3601.0, 3662.0625, " 2 & 3\n--> 4", (3,)),
    ),
    3700.0,
    "a.wav",
    "en",
)


def test_subrip() -> None:
    assert HEARD.subtitles("srt") == (
        "1\n00:00:00,000 --> 00:00:01,500\nHi <you>.\n\n2\n01:00:01,000 --> 01:01:02,062\n2 & 3 -> 4\n"
    )
    assert HEARD.subtitles("srt", words=True).count("-->") == 2


def test_webvtt() -> None:
    assert HEARD.subtitles("vtt") == (
        "WEBVTT\n\n00:00:00.000 --> 00:00:01.500\nHi &lt;you&gt;.\n\n01:00:01.000 --> 01:01:02.062\n2 &amp; 3 -&gt; 4\n"
    )
    assert Transcript("", (), 1.0).subtitles("vtt") == "WEBVTT\n"


def test_json() -> None:
    fields = json.loads(json.dumps(HEARD.to_dict()))
    assert fields["input"] == "a.wav" and fields["duration"] == 3700 and fields["language"] == "en"
    assert fields["segments"][0]["words"][1] == {"text": " <you>.", "start": 0.5, "end": 1.5, "probability": 0.8}
    assert "words" not in fields["segments"][1] and "tokens" not in fields["segments"][1]


@pytest.mark.parametrize("seconds, said", [(0, "00:00:00.000"), (59.9996, "00:01:00.000"), (360000, "100:00:00.000")])
def test_clocks(seconds: float, said: str) -> None:
    assert clock(seconds) == said
