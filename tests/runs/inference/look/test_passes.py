"""Which pass shows what a run does with a text, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from run_untrained import bert, of, words

from qkv.nn.models.heads.language_model import LanguageModel
from qkv.runs.inference.look.passes import forward_pass
from qkv.runs.inference.run import load


def test_a_language_models_pass_has_its_tokens_and_logits() -> None:
    run = of("gpt2", words(), "continue", max_positions=32)
    seen = forward_pass(run, "abc")
    sequence = seen.sequences["decoder"]
    assert sequence.ids == tuple(run.encode("abc"))
    hidden = seen.run()
    assert hidden is not None and seen.logits is not None
    with torch.no_grad():
        torch.testing.assert_close(seen.logits(hidden), run.model(torch.tensor([run.encode("abc")])))
    longer = forward_pass(run, "abc", generate=3).sequences["decoder"]
    assert longer.ids[: len(sequence.ids)] == sequence.ids and len(longer.ids) > len(sequence.ids)


def test_a_translators_decoder_reads_the_target_that_is_given(trained: Path) -> None:
    run = load(trained, device="cpu")
    seen = forward_pass(run, "a b", target="b a")
    assert set(seen.sequences) == {"encoder", "decoder"}
    decoder = seen.sequences["decoder"]
    assert decoder.next[: len(decoder.ids) - 1] == decoder.ids[1:]  # each token writes the next one


def test_what_a_run_does_not_read_is_refused(tmp_path: Path) -> None:
    run, reader = of("gpt2", words(), "continue"), bert(LanguageModel())
    (tmp_path / "a.png").touch()
    for one, item, options, said in (
        (run, " ", {}, "the text is empty"),
        (run, str(tmp_path / "a.png"), {}, "is a file, and .* reads texts"),
        (run, "a", {"target": "b"}, "a target is for encoder–decoders"),
        (reader, "a", {"generate": 2}, "generate is for language models"),
    ):
        with pytest.raises(ValueError, match=said):
            forward_pass(one, item, **options)  # type: ignore[arg-type]
