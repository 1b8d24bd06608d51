"""The live page: heads and layers changed, and what becomes of the prediction."""

from __future__ import annotations

import json
import re
from html import unescape

import pytest
import run_untrained
import torch

from qkv.nn.activations import intervene
from qkv.runs.inference.look.live import HeadChange, changed_look, changes_of, live_server
from qkv.runs.inference.run import Run


def lm() -> Run:
    return run_untrained.of("gpt2", run_untrained.words(), "continue", n_layers=2)


def test_a_head_that_is_off_changes_the_layers_after_it() -> None:
    run = lm()
    off = HeadChange("decoder", 0, 1, 0.0)
    figure, before = changed_look(run, "abc", [off]), run.look("abc")
    torch.testing.assert_close(figure.weights(0, 0), before.weights(0, 0))
    assert not torch.equal(figure.weights(1, 0), before.weights(1, 0))
    note = "Changed outputs: decoder layer 0 head 1 off; weights are those that the changed model computes"
    assert figure.views[0].notes[-1] == note and note not in before.views[0].notes
    names = [name for name, _ in figure.views[0].facts]
    assert names == ["next token", "next token, unchanged"]
    assert dict(figure.views[0].facts)["next token, unchanged"] == dict(before.views[0].facts)["next token"]
    ids = torch.tensor([run.encode("abc")])
    with intervene(run.model, changes_of([off])), torch.no_grad():
        best = run.model(ids)[0, -1].softmax(-1).max()
    assert dict(figure.views[0].facts)["next token"].split("  ")[0].endswith(f"{best:.3f}")


def test_parts_have_the_names_of_activations() -> None:
    changes = [
        HeadChange("encoder", 0, 1, 0.5),
        HeadChange("cross", 1, 0, 2.0),
        HeadChange("decoder", 1, None, 0.0),
        HeadChange("feedforward of decoder", 0, None, 0.0),
    ]
    named = changes_of(changes)
    assert list(named) == [
        *("encoder.layers.0.attention.heads", "decoder.layers.1.cross.heads"),
        *("decoder.layers.1.attention", "decoder.layers.0.feedforward"),
    ]
    run = run_untrained.of("transformer", run_untrained.words(), "translate", n_layers=2)
    figure = changed_look(run, "abc", changes)
    assert [name for name, _ in figure.views[0].facts] == [
        "output",
        "ended by",
        "output, unchanged",
        "ended by, unchanged",
    ]
    with pytest.raises(ValueError, match="from 0 to 1; there is no 7"):
        changed_look(run, "abc", [HeadChange("encoder", 0, 7, 0.0)])
    with pytest.raises(ValueError, match="there is no cross layer 9; the layers are 0 to 1"):
        changed_look(run, "abc", [HeadChange("cross", 9, 0, 0.0)])
    with pytest.raises(ValueError, match="this run has no cross layers whose heads can be changed"):
        changed_look(lm(), "abc", [HeadChange("cross", 0, 0, 0.0)])


def test_requests_of_the_page() -> None:
    with live_server(lm(), ["abc"]) as server:
        assert "data-live=" in server.page() and "connect-src 'self'" in server.page()
        change = {"part": "decoder", "layer": 0, "head": 1, "factor": 0}
        body = json.loads(server.answer({"text": "de", "changes": [change]}))
        assert body["views"][0]["text"] == "de" and len(body["views"][0]["facts"]) == 2
        for request, says in (
            ({"text": " ", "changes": []}, "the text is empty"),
            ({"text": "a", "changes": 3}, "changes are a list"),
            ({"text": "a", "changes": [3]}, "a change is an object"),
            ({"text": "a", "changes": [{"part": "decoder"}]}, "a change has a part, and finite numbers"),
            ({"text": "a" * 20_001, "changes": []}, "the text has 20,001 characters"),
            ({"text": "abc", "changes": [], "patch": "ab"}, "so choose texts with equally many"),
            ({"text": "a", "changes": [change | {"factor": float("nan")}]}, "finite numbers"),
        ):
            with pytest.raises(ValueError, match=says):
                server.answer(request)


def test_a_page_begins_with_changes_and_a_second_text_and_takes_others() -> None:
    off = HeadChange("decoder", 0, 1, 0.0)
    with live_server(lm(), ["abc"], 0, [off], word="b", tokens=(1, 3), patch="abd") as server:
        (state,) = re.findall(r'data-live="([^"]*)"', server.page())
        assert json.loads(unescape(state)) == {"target": "", "neuron": "", "patch": "abd", "changes": [off._asdict()]}
        assert "Changed outputs: decoder layer 0 head 1 off" in server.page()
        (view,) = json.loads(server.answer({"text": "de", "patch": "df", "changes": []}))["views"]
        assert view["panels"][-1]["title"] == "Activation patching" and view["focus"] == {}
        assert len(view["axes"]["text"]["shown"]) == view["axes"]["text"]["total"]  # the range was that of "abc"
        (view,) = json.loads(server.answer({"text": "abc", "changes": []}))["views"]
        assert view["focus"] and view["axes"]["text"]["shown"] == [1, 2]


def test_a_model_of_pictures_reads_no_other_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("qkv.runs.inference.look.live.look", lambda *_, **__: None)
    with (
        live_server(run_untrained.vit(), ["a.png"]) as server,
        pytest.raises(ValueError, match="this model reads files"),
    ):
        server.answer({"text": "/etc/passwd", "changes": []})
