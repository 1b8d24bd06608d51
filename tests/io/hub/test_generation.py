"""The Hub's generation settings: what they mean here, what is refused, and the same file again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from qkv.generation import Generation
from qkv.io.hub.generation import Banned, Forced, read, write

SAMPLED = {"do_sample": True, "temperature": 0.6, "top_p": 0.9, "eos_token_id": [7, 8], "bos_token_id": 1}
BEAMS = {"num_beams": 4, "max_length": 20, "early_stopping": True, "length_penalty": 2.0, "decoder_start_token_id": 3}


def test_sampling_takes_the_librarys_defaults_for_what_is_not_said() -> None:
    fields, ids = read(SAMPLED, {}, False)
    settings = Generation.from_dict(fields)
    assert settings.samples and (settings.temperature, settings.top_p, settings.top_k) == (0.6, 0.9, 50)
    assert ids.ends == (7, 8) and ids.start == 1


def test_settings_of_sampling_mean_nothing_without_it() -> None:
    settings = Generation.from_dict(read({"temperature": 0.6, "top_k": 3}, {}, False)[0])
    assert settings == Generation() and not settings.samples
    assert settings.replace(temperature=0.5).samples  # who asks for it now, gets it


def test_an_encoder_decoders_length_counts_its_start() -> None:
    fields, ids = read({**BEAMS, "forced_eos_token_id": 2}, {"eos_token_id": 2}, True)
    settings = Generation.from_dict(fields)
    assert (settings.num_beams, settings.max_new_tokens, settings.early_stopping) == (4, 19, True)
    assert ids.start == 3 and ids.forced == (None, 2)


@pytest.mark.parametrize("given", [SAMPLED, BEAMS, {}, {"eos_token_id": 5, "temperature": 0.3}])
def test_the_same_settings_are_the_same_file(given: dict) -> None:
    translates = "decoder_start_token_id" in given
    fields, _ = read(given, {}, translates)
    settings = Generation.from_dict(fields)
    written = write(settings.to_dict(), given, {"is_encoder_decoder": translates}, settings.samples)
    assert read(written, {}, translates)[0].items() >= fields.items()
    assert written.items() >= given.items()


def test_what_is_not_built_is_named() -> None:
    with pytest.raises(ValueError, match=r"generation setting num_beam_groups=2 is not built here"):
        read({"num_beam_groups": 2}, {}, False)
    with pytest.raises(ValueError, match="typical_p"):
        read({"typical_p": 0.5, "do_sample": True}, {}, False)
    read({"typical_p": 0.5, "num_beam_groups": 1}, {}, False)


def test_forced_and_banned_tokens() -> None:
    ids, logits = torch.tensor([[1, 2], [3, 4]]), torch.zeros(2, 6)
    forced = Forced({2: 5})
    assert forced(ids, logits).argmax(1).tolist() == [5, 5] and forced(ids, logits).isinf().sum() == 10
    assert forced(ids[:, :1], logits) is logits
    banned = Banned(((0,), (2, 3), (9, 9, 5)))(ids, logits)
    assert banned.isinf().nonzero().tolist() == [[0, 0], [0, 3], [1, 0]]


CHOICES = (
    Generation(temperature=0.7, top_p=0.9),
    Generation(top_k=3),
    Generation(min_p=0.1, max_new_tokens=5, min_new_tokens=2),
    Generation(num_samples=2),
    Generation(do_sample=False, temperature=0.4),
    Generation(num_beams=3, length_penalty=2.0, early_stopping=True, num_samples=2),
    Generation(repetition_penalty=1.3, no_repeat_ngram_size=2),
    Generation(),
)


@pytest.mark.parametrize("settings", CHOICES, ids=range(len(CHOICES)))
@pytest.mark.parametrize("origin", [{}, {"do_sample": True, "temperature": 0.3, "top_k": 7, "max_length": 40}])
def test_transformers_decodes_as_we_do(settings: Generation, origin: dict[str, Any], tmp_path: Path) -> None:
    """It samples only if `do_sample` says so, and from the 50 likeliest if `top_k` is silent; here a temperature alone
    samples from all."""
    library = pytest.importorskip("transformers")
    written = write(settings.to_dict(), origin, {}, settings.samples)
    (tmp_path / "generation_config.json").write_text(json.dumps(written))
    theirs = library.GenerationConfig.from_pretrained(tmp_path)
    usual = {"num_beams": 1, "num_return_sequences": 1, "repetition_penalty": 1.0, "no_repeat_ngram_size": 0}
    assert bool(theirs.do_sample) is settings.samples
    assert theirs.max_new_tokens is theirs.min_new_tokens is None  # tasks and requests say how long
    bounds = {"max_new_tokens": 5, "min_new_tokens": 2} if settings.max_new_tokens == 5 else None
    assert getattr(theirs, "qkv", None) == bounds
    assert (theirs.num_beams or 1) == settings.num_beams
    assert (theirs.num_return_sequences or 1) == settings.num_samples
    for key, neutral in usual.items() if not origin else ():
        assert (getattr(theirs, key) or neutral) == getattr(settings, key.replace("return_sequences", "samples"))
    if settings.samples:
        assert (theirs.temperature or 1.0) == (settings.temperature or 1.0)
        assert theirs.top_k == (settings.top_k or 0)  # None would be 50
        assert (theirs.top_p or 1.0) == (settings.top_p or 1.0)
        assert theirs.min_p == settings.min_p
    back = Generation.from_dict(read(written, {}, False)[0])
    assert (back.samples, back.num_beams, back.max_new_tokens) == (
        settings.samples,
        settings.num_beams,
        settings.max_new_tokens,
    )
    if settings.samples:
        assert (back.temperature, back.top_k, back.top_p) == (
            theirs.temperature or 1.0,
            theirs.top_k,
            theirs.top_p or 1.0,
        )


def test_what_transformers_samples_by_is_what_we_sample_by(tmp_path: Path) -> None:
    library = pytest.importorskip("transformers")
    library.GenerationConfig(do_sample=True, temperature=0.8, top_k=12, num_return_sequences=3).save_pretrained(
        tmp_path
    )
    settings = Generation.from_dict(read(json.loads((tmp_path / "generation_config.json").read_text()), {}, False)[0])
    assert settings.samples and (settings.temperature, settings.top_k, settings.num_samples) == (0.8, 12, 3)


def test_changed_lengths_are_written() -> None:
    settings = Generation.from_dict(read({**BEAMS, "min_length": 4}, {}, True)[0])
    assert (settings.max_new_tokens, settings.min_new_tokens) == (19, 3)
    changed = settings.replace(max_new_tokens=50)
    written = write(changed.to_dict(), {**BEAMS, "min_length": 4}, {"is_encoder_decoder": True}, False)
    assert written["max_length"] == 51 and "max_new_tokens" not in written and written["min_length"] == 4
    assert read(written, {}, True)[0].items() >= {"max_new_tokens": 50, "min_new_tokens": 3}.items()
    said = {"max_new_tokens": 7}  # a file that says it keeps the key
    bounds = {"max_new_tokens": 50, "qkv": {"min_new_tokens": 3}}
    assert write(changed.to_dict(), said, {}, False).items() >= bounds.items()


def test_a_published_file_that_says_no_length_stays_silent() -> None:
    for origin, translates in (({"eos_token_id": 1}, True), ({"eos_token_id": 1}, False), ({}, False)):
        assert write(Generation().to_dict(), origin, {"is_encoder_decoder": translates}, False) == origin
    whole = {"qkv": {"schema": 1, "kind": "transformer", "d_model": 8}, "max_new_tokens": 7}
    assert read(whole, whole, False)[0]["max_new_tokens"] == 7  # an old file's configuration, or one without generation
    trained: dict[str, Any] = {"is_encoder_decoder": True, "qkv": {"task": "translate"}}
    assert write(Generation().to_dict(), {"eos_token_id": 1}, trained, False)["max_length"] == 129


@pytest.mark.parametrize(
    "given, said",
    [
        ({"temperature": "hot"}, "temperature must be a number"),
        ({"eos_token_id": {"a": 1}}, "eos_token_id must be an integer from -1"),
        ({"max_length": float("inf")}, "max_length must be an integer"),
        ({"qkv": 3}, "qkv must be a JSON object"),
        ({"qkv": {"max_new_tokens": 0}}, r"qkv\.max_new_tokens must be an integer"),
        ({"bad_words_ids": [3]}, "bad_words_ids must be a list"),
        ({"forced_bos_token_id": 30}, "forced token's id is 30, and the model's vocabulary ends at 19"),
    ],
)
def test_a_setting_of_a_wrong_type_is_named(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        read(given, {}, True, vocab_size=20)


def test_without_new_tokens_a_decoders_lengths_count_the_prompt() -> None:
    fields, ids = read({"max_length": 20, "min_length": 15}, {}, False)
    settings = Generation.from_dict(fields)
    assert ids.whole == (20, 15) and ids.depend_on_length
    for width, bounds in ((3, (17, 12)), (17, (3, 0)), (19, (1, 0))):
        bounded = ids.bounded(settings, width)
        assert (bounded.max_new_tokens, bounded.min_new_tokens) == bounds
    with pytest.raises(ValueError, match=r"has 20 tokens, and .* allows 20 .*; shorten it, or give max_new_tokens"):
        ids.bounded(settings, 20)
    given = settings.replace(num_samples=2, temperature=1.0, max_new_tokens=128)  # the usual number, but given
    assert ids.bounded(given, 30).max_new_tokens == 128
    said = {"max_length": 20, "max_new_tokens": 7, "min_length": 0}
    assert read(said, {}, False)[1].whole == (None, None) == read({"max_length": 20}, {}, True)[1].whole


def test_tokens_are_forced_by_the_generation_settings_alone() -> None:
    config = {"forced_bos_token_id": 3, "forced_eos_token_id": 2, "bad_words_ids": [[4]]}
    assert read({"max_new_tokens": 5}, config, True)[1].forced == (None, None)
    assert read({"max_new_tokens": 5}, config, True)[1].banned == ()
    ids = read(config, config, False)[1]  # there is no generation_config.json
    assert ids.forced == (3, 2) and ids.banned == ((4,),)
    (_, forced) = ids.processors(width=3, max_new_tokens=5)
    assert isinstance(forced, Forced) and forced.tokens == {1: 3, 7: 2}
