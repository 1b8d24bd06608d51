"""Every command on every kind of run: it answers, or it names the commands that do."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from run_untrained import bert, of, vit, words

from qkv.cli import main
from qkv.nn.models.heads.sequence import SequenceClassifier
from qkv.nn.models.heads.text import Span, TokenClassifier
from qkv.runs.inference.run import Run
from qkv.runs.inference.uses import NEEDS

ASKED = {
    "generate": ["--max-new-tokens", "2", "ab"],
    "translate": ["--max-new-tokens", "2", "ab"],
    "chat": ["--max-new-tokens", "2", "ab"],
    "score": ["ab"],
    "embed": ["ab"],
    "classify": ["ab"],
    "fill": ["a<mask>"],
    "predict": ["ab"],
    "eval": [],
    "transcribe": ["ab.wav"],
}
TEMPLATE = "{% for m in messages %}{{ m.content }}{% generation %}{% endgeneration %}{% endfor %}"


KINDS: dict[str, tuple[Callable[[], Run], str]] = {
    "a translator": (lambda: of("transformer", words(), "translate"), "translate generate score embed"),
    "a language model": (lambda: of("gpt2", words(), "continue"), "generate score embed"),
    "an assistant": (lambda: of("gpt2", words(TEMPLATE), "continue"), "generate chat score embed"),
    "a masked language model": (lambda: of("bert-base", words(), "read", max_positions=32), "fill embed"),
    "an encoder": (lambda: bert(None), "embed"),
    "a classifier": (lambda: bert(SequenceClassifier(labels=2)), "predict classify embed"),
    "a regressor": (lambda: bert(SequenceClassifier(labels=1)), "predict embed"),
    "a tagger": (lambda: bert(TokenClassifier(labels=3)), "predict embed"),
    "a finder of answers": (lambda: bert(Span()), "predict embed"),
    "a discriminator": (lambda: bert(TokenClassifier(labels=1)), "embed"),
    "a model of ids": (lambda: of("gpt2", None, "continue"), ""),
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("kinds")
    for kind, (make, _) in KINDS.items():
        make().save(folder / kind, "qkv")
    return folder


def asked(kind: str, command: str) -> list[str]:
    """What a command is given; some runs read pairs."""
    if command == "score" and kind == "a translator":
        return ["ab\tba"]
    return ["a b\tb a"] if kind == "a finder of answers" and command == "predict" else ASKED[command]


@pytest.mark.parametrize("kind", KINDS)
def test_a_command_serves_a_run_or_names_those_that_do(
    kind: str, runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert set(ASKED) == set(NEEDS)
    serving = KINDS[kind][1].split()
    for command in ASKED:
        status = main([command, str(runs / kind), *asked(kind, command)])
        printed = capsys.readouterr()
        assert (status == 0) == (command in serving), (command, printed.err)
        if command in serving:
            assert printed.out and not printed.err
            continue
        assert status == 2 and len(printed.err.splitlines()) == 1 and kind in printed.err, (command, printed.err)
        if (command in ("eval", "chat") and "no recipe.yaml" in printed.err) or "no chat template" in printed.err:
            continue  # what is missing is the file, not another kind of run
        named = re.findall("`qkv ([a-z]+)`", printed.err.split(";", 1)[1])
        assert named == serving if serving else "qkv.load" in printed.err


def test_pictures_are_classified_and_not_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, picture = tmp_path / "vit", str(tmp_path / "x.png")
    vit().save(folder, "hub")
    numbers = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3, "do_resize": True, "do_normalize": True}
    (folder / "preprocessor_config.json").write_text(json.dumps({**numbers, "size": {"height": 16, "width": 16}}))
    Image.fromarray(np.zeros((16, 16, 3), np.uint8)).save(picture)
    for command in ("predict", "classify"):
        assert main([command, str(folder), picture]) == 0
        assert "LABEL_" in capsys.readouterr().out
    for command in ("generate", "translate", "chat", "score", "embed", "fill"):
        assert main([command, str(folder), "ab"]) == 2
        assert "use `qkv predict` or `qkv classify`" in capsys.readouterr().err
