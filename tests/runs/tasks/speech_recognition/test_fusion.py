"""Language models in the decoding of CTC: n-grams and models of qkv, beside their own likelihoods."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from run_untrained import of, words

from qkv.core.batch import Batch
from qkv.core.layout import Layout
from qkv.data.tokenizers.tokenizer import train
from qkv.data.tokenizers.training.words_chars_bytes import Char
from qkv.nn.models.heads.ctc import CTC
from qkv.runs.tasks.speech_recognition.ctc import RecognizeCTC
from qkv.runs.tasks.speech_recognition.fusion import fusion_of

TOKENIZER = train(Char(), ["see sea"])
ARPA = "\\data\\\nngram 1=5\n\n\\1-grams:\n-99 <s>\n-0.1 sea\n-2 see\n-0.7 </s>\n-3 <unk>\n\n\\end\\\n"


def heard(text: str, other: str, sure: float) -> tuple[torch.Tensor, Batch]:
    """Logits of a text with blanks between its letters, in which the letters of another are almost as likely."""
    logits = torch.full((1, 2 * len(text), TOKENIZER.vocab_size), -20.0)
    for i, (one, two) in enumerate(zip(text, other, strict=True)):
        logits[0, 2 * i, TOKENIZER.encode(two)[0]] = math.log(1 - sure)
        logits[0, 2 * i, TOKENIZER.encode(one)[0]] = math.log(sure)
        logits[0, 2 * i + 1, 0] = 0.0
    return logits, Batch({"layout": Layout.full(2 * len(text))})


def texts(task: RecognizeCTC, sure: float = 0.6) -> list[str]:
    model = SimpleNamespace(head=CTC().module(4, TOKENIZER.vocab_size))
    return task.texts_of(model, *heard("see see", "sea sea", sure), TOKENIZER)


def test_n_grams_decide_between_words_that_sound_alike(tmp_path: Path) -> None:
    (tmp_path / "words.arpa").write_text(ARPA)
    task = RecognizeCTC(lm=str(tmp_path / "words.arpa"))
    assert texts(RecognizeCTC()) == texts(RecognizeCTC(beams=4)) == ["see see"]
    assert texts(task) == ["sea sea"] == texts(task.replace(beams=2))
    assert texts(task.replace(lm_weight=0.01)) == ["see see"] == texts(task, sure=0.999)


def test_a_language_model_of_qkv_scores_whole_words(tmp_path: Path) -> None:
    run = of("gpt2", words(), "continue", max_positions=64)
    run.save(tmp_path / "lm", "qkv")
    fusion = fusion_of(str(tmp_path / "lm"), TOKENIZER, 0.5, 2.0)
    symbols = tuple(TOKENIZER.encode("see sea"))
    scored = run.model(torch.tensor([[run.words.bos_id, *run.words.encode("see sea"), run.words.eos_id]]))
    log_probs = scored.detach().log_softmax(-1)[0]
    wanted = sum(float(log_probs[i, token]) for i, token in enumerate([*run.words.encode("see sea"), run.words.eos_id]))
    assert fusion(symbols, True) == pytest.approx(0.5 * wanted + 2 * 2.0, abs=1e-4)
    first = sum(float(log_probs[i, token]) for i, token in enumerate(run.words.encode("see")))
    assert fusion(symbols, False) == pytest.approx(0.5 * first + 2.0, abs=1e-4)  # the last word is not complete
    assert fusion((), False) == 0.0
    assert isinstance(texts(RecognizeCTC(lm=str(tmp_path / "lm"), beams=4))[0], str)


def test_what_is_no_language_model_is_refused(tmp_path: Path) -> None:
    of("bart-base", words(), "translate", max_positions=32).save(tmp_path / "pairs", "qkv")
    for name, message in ((tmp_path, "there is no language model"), (tmp_path / "pairs", "is no language model that")):
        with pytest.raises(ValueError, match=message):
            fusion_of(str(name), TOKENIZER, 0.5, 0.0)
