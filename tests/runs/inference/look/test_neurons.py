"""The texts that excite a neuron: from held-out examples, from given texts, of encoders and decoders."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import run_untrained
import torch

import qkv
from qkv.cli import main
from qkv.runs.inference.look.live import live_server
from qkv.runs.inference.look.neurons import neuron_panel
from qkv.runs.inference.run import Run


def lm() -> Run:
    return run_untrained.of("gpt2", run_untrained.words(), "continue", n_layers=2)


def values_of(run: Run, text: str, index: int) -> list[float]:
    site = "decoder.layers.1.feedforward.neurons"
    with run.record(site) as activations, torch.no_grad():
        run.model(torch.tensor([run.encode(text)]))
    return activations[site][0, :, index].tolist()


def test_given_texts_are_ordered_by_their_largest_activation() -> None:
    run, texts = lm(), ["abc", "de", "", "xyzzy", "q"]
    panel = neuron_panel(run, "1.5", texts)
    expected = {text: values_of(run, text, 5) for text in texts if text}
    order = sorted(expected, key=lambda text: -max(expected[text]))
    assert panel["title"] == "Neuron 5 of decoder layer 1" and panel["neuron"] == "decoder.1.5"
    for row, text in zip(panel["rows"], order, strict=True):
        assert row["values"] == pytest.approx(expected[text], abs=1e-5)
        assert row["at"] == max(range(len(row["values"])), key=lambda i: row["values"][i])
        assert "".join(row["tokens"]).removeprefix("<s>") == text and row["cut"] == [False, False]


def test_long_texts_show_the_tokens_around_the_strongest() -> None:
    run = lm()
    text = "abcdefghijklmnopqrstuvwxyz" * 2
    (row,) = neuron_panel(run, "1.5", [text])["rows"]
    values = values_of(run, text, 5)
    at = max(range(len(values)), key=lambda i: values[i])
    start, stop = max(0, at - 20), min(len(values), at + 12)
    assert row["values"] == pytest.approx(values[start:stop], abs=1e-5) and row["at"] == at - start
    assert row["cut"] == [start > 0, stop < len(values)] and True in row["cut"]


@pytest.mark.parametrize("stack", ["encoder", "decoder"])
def test_held_out_examples_of_a_translator(trained: Path, stack: str) -> None:
    panel = neuron_panel(qkv.load(trained, "cpu"), f"{stack}.0.3")
    assert len(panel["rows"]) == 10 and "of the validation split" in panel["note"]
    strongest = [row["values"][row["at"]] for row in panel["rows"]]
    assert strongest == sorted(strongest, reverse=True) and strongest[0] > 0


def test_figures_have_the_panel_and_may_have_nothing_else(trained_lm: Path) -> None:
    run = qkv.load(trained_lm, "cpu")
    figure = run.look("the cat", neuron="0.2")
    assert figure.views[0].panels[-1]["neuron"] == "decoder.0.2" and figure.views[0].groups
    alone = run.look([], neuron="0.2", texts=["the cat", "a dog"])
    assert [panel["kind"] for panel in alone.views[0].panels] == ["texts"] and not alone.views[0].groups
    changes = {"decoder.layers.0.feedforward.neurons": lambda x: -x}
    turned, plain = (
        run.look([], neuron="0.2", texts=["the cat"], **options).views[0].panels[0]["rows"][0]["values"]
        for options in ({"changes": changes}, {})
    )
    assert turned == pytest.approx([-value for value in plain], abs=1e-5)


def test_the_live_page_takes_a_neuron() -> None:
    with live_server(lm(), ["abc"], texts=["ab", "xyz"]) as server:
        plain = json.loads(server.answer({"text": "abc", "changes": []}))
        asked = json.loads(server.answer({"text": "abc", "changes": [], "neuron": " 1.5 "}))
        with pytest.raises(ValueError, match=r"a neuron is LAYER\.INDEX, such as 1\.17, or decoder\.1\.17, not 'many'"):
            server.answer({"text": "abc", "changes": [], "neuron": "many"})
    assert not any("neuron" in panel for panel in plain["views"][0]["panels"])
    assert asked["views"][0]["panels"][-1]["neuron"] == "decoder.1.5"


def test_the_command_shows_a_neuron_on_texts_and_on_a_text(
    trained_lm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("texts.txt").write_text("the cat\n\na dog\n", encoding="utf-8")
    arguments = ["look", str(trained_lm), "--neuron", "0.2", "--out", "look.json"]
    assert main([*arguments, "--texts", "texts.txt"]) == 0
    (view,) = json.loads(Path("look.json").read_text(encoding="utf-8"))["views"]
    assert len(view["panels"][0]["rows"]) == 2
    assert main([*arguments, "--overwrite", "the cat"]) == 0
    (view,) = json.loads(Path("look.json").read_text(encoding="utf-8"))["views"]
    assert view["text"] == "the cat" and view["panels"][-1]["kind"] == "texts"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--neuron", "x"], "a neuron is LAYER.INDEX, such as 1.17, or decoder.1.17, not 'x'"),
        (["--neuron", "9.0"], "has no layer of neuron 9.0; choose decoder.0.0"),
        (["--neuron", "0.9999"], "there is no 9999"),
        (["--neuron", "encoder.0.0"], "has no layer of neuron encoder.0.0; choose decoder.0.0"),
        (["--neuron", "0.0", "--texts", "none.txt"], "there is no file none.txt for --texts"),
        (["the cat", "--texts", "none.txt"], "--texts is for --neuron; name a neuron, such as --neuron 1.17"),
    ],
)
def test_mistakes_are_one_sentence(
    trained_lm: Path, arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["look", str(trained_lm), *arguments]) == 2
    message = capsys.readouterr().err
    assert says in message and "Traceback" not in message


def test_models_without_texts_or_neurons(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="texts excite neurons of models that read texts, and this run is"):
        neuron_panel(run_untrained.vit(), "0.0")
    with pytest.raises(
        ValueError, match=r"this run has no recipe\.yaml, which names its data; give texts to choose from"
    ):
        neuron_panel(lm(), "0.0")
