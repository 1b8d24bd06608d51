"""The Hub's generation settings: what they mean here, what is refused, and the same file again."""

from __future__ import annotations

import pytest
import torch

from qkv.generate import Generation
from qkv.hub.generation import Banned, Forced, read, write

SAMPLED = {"do_sample": True, "temperature": 0.6, "top_p": 0.9, "eos_token_id": [7, 8], "bos_token_id": 1}
BEAMS = {"num_beams": 4, "max_length": 20, "early_stopping": True, "length_penalty": 2.0, "decoder_start_token_id": 3}


def test_sampling_takes_the_librarys_defaults_for_what_is_not_said() -> None:
    fields, ids = read(SAMPLED, {}, False)
    settings = Generation.from_dict(fields)
    assert settings.samples and (settings.temperature, settings.top_p, settings.top_k) == (0.6, 0.9, 50)
    assert ids.ends == (7, 8) and ids.start == 1


def test_settings_of_sampling_mean_nothing_without_it() -> None:
    settings = Generation.from_dict(read({"temperature": 0.6, "top_k": 3}, {}, False)[0])
    assert settings == Generation(do_sample=False) and not settings.samples


def test_an_encoder_decoders_length_counts_its_start() -> None:
    fields, ids = read(BEAMS, {"forced_eos_token_id": 2, "eos_token_id": 2}, True)
    settings = Generation.from_dict(fields)
    assert (settings.num_beams, settings.max_new_tokens, settings.early_stopping) == (4, 19, True)
    assert ids.start == 3 and ids.forced == (None, 2)


@pytest.mark.parametrize("given", [SAMPLED, BEAMS, {}, {"eos_token_id": 5, "temperature": 0.3}])
def test_the_same_settings_are_the_same_file(given: dict) -> None:
    translates = "decoder_start_token_id" in given
    fields, _ = read(given, {}, translates)
    written = write(Generation.from_dict(fields).to_dict(), given, {})
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
