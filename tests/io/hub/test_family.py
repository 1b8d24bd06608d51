"""A family as a value: the class and sizes that make a spec, and what no configuration says."""

from __future__ import annotations

import pytest

import qkv
from qkv.io import families
from qkv.io.families import FAMILIES, family_of

SIZES = {"n_layers": 1, "d_model": 16, "n_heads": 2}


def test_sizes_make_the_spec_again() -> None:
    spec = qkv.preset("gpt2", **SIZES)
    family = FAMILIES["gpt2"]
    cls, sizes, differences = family.nearest(spec)
    assert cls == "GPT2LMHeadModel" and not differences and family.nearest_spec(spec) == spec
    assert sizes["d_model"] == 16 and family.spec(family.config(spec)) == spec


def test_a_difference_is_named_with_both_values() -> None:
    spec = qkv.preset("gpt2", **SIZES).replace({"decoder.position": "alibi"})
    with pytest.raises(ValueError, match=r"gpt2 has decoder\.position"):
        FAMILIES["gpt2"].sizes(spec)


def test_a_width_that_heads_do_not_divide_is_refused_as_transformers_refuses_it() -> None:
    spec = qkv.preset("llama", **{**SIZES, "d_model": 18, "n_heads": 4}, d_head=4)
    with pytest.raises(ValueError, match="needs a number of heads that divides its width in transformers"):
        FAMILIES["llama"].config(spec)


def test_the_family_of_a_spec_is_asked_again_when_there_are_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer for a spec is kept, for the families that there were."""
    spec = qkv.preset("gpt2", **SIZES)
    assert family_of(spec) is family_of(spec) is FAMILIES["gpt2"]
    monkeypatch.setattr(families, "FAMILIES", {"llama": FAMILIES["llama"]})
    with pytest.raises(ValueError, match="no Hub family matches this model; llama comes nearest"):
        family_of(spec)
    monkeypatch.undo()
    assert family_of(spec) is FAMILIES["gpt2"]
