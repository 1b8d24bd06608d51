from __future__ import annotations

import pytest
import torch

from qkv.cli import main
from qkv.cli.errors import USER, describe, shortened
from qkv.data.loader.workers import WorkerDied


def test_an_allocation_that_fails_is_told_as_such() -> None:
    with pytest.raises(RuntimeError) as caught:
        torch.empty(1 << 60, dtype=torch.uint8)
    for error in (caught.value, MemoryError(), RuntimeError("std::bad_alloc")):
        status, said = describe(error)
        assert status == USER and "out of memory" in said and "batching.tokens" in said


def test_a_worker_that_was_killed_is_no_bug() -> None:
    status, said = describe(WorkerDied("a process that reads data died"))
    assert status == USER and said == "a process that reads data died"


LONG = "x" * 100_000


@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize(
    "words",
    [
        (LONG,),
        ("train", LONG),
        ("train", "gpt", LONG),
        ("train", "gpt", f"{LONG}=3"),
        ("train", "gpt", f"training.max_steps={LONG}"),
        ("train", "gpt", f"data.path={LONG}"),
        ("show", LONG),
        ("generate", LONG, "a"),
        ("generate", "small-english", "a", "--num-beams", LONG),
        ("generate", "small-english", f"--{LONG}"),
    ],
    ids=lambda words: " ".join(word.replace(LONG, "LONG") for word in words),
)
def test_a_message_never_prints_a_long_value_whole(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == USER
    said = capsys.readouterr().err
    assert 20 < len(said) < 4200 and len(said.strip().splitlines()) == 1


def test_a_long_message_keeps_its_beginning_and_its_advice() -> None:
    assert shortened("there is no 'a'; give b") == "there is no 'a'; give b"
    assert shortened(f"there is no {LONG}; give b").startswith("there is no xxx")
    assert shortened(f"there is no {LONG}; give b").endswith("xxx; give b")
    spaced = shortened(f"there is no {'a b ' * 25_000}; give b")
    assert spaced.startswith("there is no a b") and spaced.endswith("; give b") and len(spaced) < 4100
    assert "96,0" in spaced
