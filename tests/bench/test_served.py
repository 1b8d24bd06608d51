"""`python -m bench served`: the load generator measures a real server."""

from __future__ import annotations

import pytest
from bench.corpora import missing

from bench import served, soak


def test_prompts_are_of_unequal_lengths_and_quantiles_of_the_values() -> None:
    prompts = served.made_prompts(20, 30)
    assert len({len(prompt.split()) for prompt in prompts}) > 5 and served.made_prompts(20, 30) == prompts
    assert served.quantile([3.0, 1.0, 2.0], 0.5) == 2.0 and served.quantile([1.0], 0.95) == 1.0


@pytest.mark.parametrize("name", list(served.DATA))
def test_real_prompts_are_texts_of_unequal_lengths(name: str) -> None:
    if lacks := missing(name):
        pytest.skip(lacks)
    texts = served.real_prompts(name)
    assert len(texts) >= 1000 and all(isinstance(text, str) for text in texts)
    assert len({len(text) for text in texts}) > 50


@pytest.mark.slow
def test_embeddings_are_measured(capsys: pytest.CaptureFixture[str]) -> None:
    assert served.main(["--requests", "6", "--clients", "3", "--path", "/v1/embeddings"]) == 0
    row = capsys.readouterr().out.splitlines()[-1].split("|")
    assert row[2].strip() == "6" and row[3].strip() == "0" and float(row[4]) > 0


@pytest.mark.slow
@pytest.mark.parametrize("options", [["--clients", "1", "3"], ["--rate", "20"], ["--clients", "2", "--fast"]])
def test_a_server_is_measured(options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert served.main(["--requests", "6", "--new", "6", *options]) == 0
    rows = [line.split("|") for line in capsys.readouterr().out.splitlines() if line.startswith("| ")][1:]
    assert rows and all(
        row[2].strip() == "6" and row[3].strip() == "0" and float(row[4]) > 0 and float(row[5]) > 0 for row in rows
    )


@pytest.mark.slow
def test_a_server_stays_as_it_is_under_mixed_requests(capsys: pytest.CaptureFixture[str]) -> None:
    assert soak.main(["small-english", "--requests", "200", "--clients", "8"]) == 0
    assert "equal" in capsys.readouterr().out


def test_answers_are_compared_without_what_belongs_to_one_request() -> None:
    first = {
        "id": "a",
        "created": 1,
        "choices": [{"text": "x"}],
        "usage": {"prompt_tokens_details": {"cached_tokens": 0}},
    }
    other = {
        "id": "b",
        "created": 2,
        "choices": [{"text": "x"}],
        "usage": {"prompt_tokens_details": {"cached_tokens": 9}},
    }
    assert soak.essence(first) == soak.essence(other) != soak.essence(first | {"choices": [{"text": "y"}]})
