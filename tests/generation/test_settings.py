"""`Generation`: what it accepts, and what it says of the rest."""

from __future__ import annotations

import pytest

from qkv.generation import Generation


@pytest.mark.parametrize(
    "options",
    [
        {"num_beams": 0},
        {"max_new_tokens": 0},
        {"min_new_tokens": -1},
        {"num_samples": 0},
        {"temperature": 0.0},
        {"temperature": float("nan")},
        {"top_p": 0.0},
        {"top_p": 1.5},
        {"min_p": -0.1},
        {"top_k": -1},
        {"repetition_penalty": 0.0},
        {"repetition_penalty": -1.2},
        {"no_repeat_ngram_size": -1},
        {"length_penalty": float("inf")},
        {"early_stopping": "sometimes"},
        {"seed": -1},
    ],
)
def test_a_value_out_of_range_is_named(options: dict) -> None:
    with pytest.raises(ValueError, match=next(iter(options))) as error:
        Generation.from_dict(options)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"min_new_tokens": 9, "max_new_tokens": 5}, "min_new_tokens 9 is more than max_new_tokens 5"),
        ({"num_beams": 2, "num_samples": 3}, "num_samples 3 is more than num_beams 2"),
        ({"num_samples": 3, "do_sample": False}, "num_samples 3 is more than num_beams 1"),
        ({"num_beams": 2, "temperature": 0.5}, "temperature asks for sampling"),
        ({"num_beams": 2, "do_sample": True}, "do_sample asks for sampling"),
    ],
)
def test_fields_that_disagree_are_refused(options: dict, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Generation().replace(options)


def test_an_unknown_option_names_its_neighbor() -> None:
    with pytest.raises(ValueError, match=r"'num_beam'.*did you mean 'num_beams'"):
        Generation().replace({"num_beam": 4})


@pytest.mark.parametrize(
    ("options", "samples"),
    [
        ({}, False),
        ({"num_beams": 4, "num_samples": 4}, False),
        ({"temperature": 1.0}, True),
        ({"top_k": 0}, True),
        ({"num_samples": 2}, True),
        ({"do_sample": False, "temperature": 0.7, "top_k": 50}, False),
        ({"do_sample": True}, True),
        ({"num_beams": 4, "do_sample": False, "temperature": 0.7}, False),
    ],
)
def test_an_option_of_sampling_turns_sampling_on(options: dict, samples: bool) -> None:
    assert Generation(**options).samples is samples


def test_json_keeps_what_was_left_unset() -> None:
    for settings in (Generation(), Generation(num_beams=4, early_stopping="never"), Generation(top_p=0.9, seed=3)):
        again = Generation.from_json(settings.to_json())
        assert again == settings
        assert again.samples == settings.samples


@pytest.mark.parametrize("name", ["num_samples", "num_beams"])
def test_more_rows_than_can_be_decoded_together_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="less than or equal to 16384"):
        Generation.from_dict({name: 10**12})
