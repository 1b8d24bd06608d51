"""The table of synonyms has every usual option of other libraries."""

from __future__ import annotations

import pytest
from other_options import LISTS, TRAINING, names_here

from qkv.core.synonyms import elsewhere


def test_every_usual_option_of_other_libraries_is_ours_or_told() -> None:
    mine = names_here()
    missing = [name for names in LISTS for name in names.split() if name not in mine and elsewhere(name) is None]
    assert not missing


@pytest.mark.slow
def test_the_lists_are_those_of_transformers() -> None:
    transformers = pytest.importorskip("transformers")
    named = set(vars(transformers.GenerationConfig())) - {"_from_model_config", "transformers_version"}
    mine = names_here()
    assert not [name for name in named | set(TRAINING.split()) if name not in mine and elsewhere(name) is None]
    fields = transformers.TrainingArguments.__dataclass_fields__
    assert not [name for name in fields if name not in mine and elsewhere(name) is None]
