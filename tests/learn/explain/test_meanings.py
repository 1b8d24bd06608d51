"""Words of the field lead to the explanation, the page of the tour and the list that they mean."""

from __future__ import annotations

import pytest

from qkv.cli import catalog, main
from qkv.learn.explain import registry
from qkv.learn.tour import pages


@pytest.mark.parametrize(
    ("meanings", "known"),
    [
        (registry.MEANINGS, list(registry.EXPLANATIONS)),
        (pages.MEANINGS, [page.name.partition("-")[2] for page in pages.pages()]),
        (catalog._MEANINGS, list(catalog.LISTS)),
    ],
)
def test_meanings_are_of_what_exists_and_hide_nothing(meanings: dict[str, str], known: list[str]) -> None:
    words = [word for text in meanings.values() for word in text.split()]
    assert set(meanings) <= set(known)
    assert len(words) == len(set(words)) and not {*words} & {*known}


@pytest.mark.parametrize(
    ("command", "meant"),
    [
        ("explain rope", "'position'"),
        ("explain Softmax", "'attention'"),
        ("explain peft", "'lora'"),
        ("explain flash_attention", "'flash'"),
        ("tour tokenizer", "'tokens'"),
        ("tour moe", "'experts'"),
        ("tour interpretability", "'inside'"),
        ("list models", "'presets'"),
        ("list datasets", "'sources'"),
        ("list loss", "'objectives'"),
        ("list schduler", "'schedules'"),  # by spelling
    ],
)
def test_a_word_of_the_field_leads_to_what_it_means(
    command: str, meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(command.split()) == 2
    assert f"did you mean {meant}" in capsys.readouterr().err
