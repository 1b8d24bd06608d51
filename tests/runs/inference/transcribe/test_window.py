"""One window of a sound: decoded again if its text is not trusted."""

from __future__ import annotations

from typing import Any

import torch
from tests.helpers.whispering import ALWAYS, long_form, noise

import qkv
from qkv.runs.inference.transcribe import Thresholds
from qkv.runs.inference.transcribe.window import HeardWindow, compression


def test_texts_that_are_not_trusted_are_decoded_again(pair: tuple[Any, qkv.Run]) -> None:
    _, run = pair
    long = long_form(run)
    window = HeardWindow(run, long.codes, long.listening.features(noise(1)))
    prompt = long.codes.prompt("en", "transcribe", True)
    once = window.decode(prompt, True, (0.0, 0.7), ALWAYS)
    assert once.temperature == 0.0 and 0 <= (once.no_speech or 0) <= 1
    logits = run.model(window.features, torch.tensor([[*prompt, *once.tokens]]))[0].log_softmax(-1)
    assert once.log_probability >= logits[len(prompt) - 1 :].gather(1, torch.tensor([[*once.tokens, 0]]).T)[:-1].mean()
    for limits in (Thresholds(0.1, None, None), Thresholds(None, 1.0, None)):
        assert window.decode(prompt, True, (0.0, 0.7), limits, seed=3).temperature == 0.7
    assert not window.decode(prompt, True, (0.0, 0.7), Thresholds(None, -99.0, 0.0)).silent  # likely: something is said
    silent = window.decode(prompt, True, (0.0, 0.7), Thresholds(None, 1.0, -1.0))
    assert silent.silent and silent.temperature == 0.0
    assert compression("no no no " * 50) > 2.4 > compression("What a piece of work is a man!")
    nothing = long_form(run, thresholds=Thresholds(None, 1.0, -1.0)).transcribe(noise(2.5))
    assert nothing.text == "" and nothing.segments == ()
