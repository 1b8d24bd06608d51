from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qkv.core import yamls

_texts = st.text(st.characters(blacklist_categories=["Cs", "Cc"]), max_size=12)
_scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | _texts
    | st.sampled_from(["no", "1e5", "12:30"])
)
_data = st.recursive(_scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_texts, inner, max_size=3))


@given(_data)
def test_load_reads_back_what_dump_wrote(data: object) -> None:
    assert yamls.load(yamls.dump(data)) == data


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("no", "no"),  # Norwegian, not false
        ("[de, no, on]", ["de", "no", "on"]),
        ("true", True),
        ("3e-4", 3e-4),
        ("12:30", "12:30"),  # 750 in YAML 1.1
        ("2026-01-01", "2026-01-01"),
        ("~", None),
        ("", None),
        ("1_000", 1000),
    ],
)
def test_scalars_are_what_they_look_like(text: str, value: object) -> None:
    assert yamls.load(text) == value


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: 1\nb: 2\na: 3", "my.yaml, line 3, column 1: 'a' is given twice"),
        ("a: &x [1]\nb: *x", "aliases"),
        ("a: [", "my.yaml, line 1"),
        ("1: 2", "1 is not a name"),
        ("a: !!python/object/apply:os.system [ls]", "constructor"),
        ("a: !tag 1", "constructor"),
    ],
)
def test_what_is_not_plain_data_is_refused_with_its_place(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said.replace("[", r"\[")):
        yamls.load(text, name="my.yaml")


def test_deep_nesting_is_an_error_and_no_crash() -> None:
    with pytest.raises(ValueError, match="is not YAML"):
        yamls.load("[" * 5000)


def test_many_keys_take_time_in_proportion() -> None:
    """Counted, not timed: every key is compared with a set of those before it, once."""

    class Counted(str):
        compared = 0
        __hash__ = str.__hash__

        def __eq__(self, other: object) -> bool:
            type(self).compared += 1
            return str.__eq__(self, other)  # type: ignore[arg-type]

    keys = 3000
    text = "".join(f"key{n}: 1\n" for n in range(keys))
    construct = yamls._Loader.construct_scalar
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(yamls._Loader, "construct_scalar", lambda self, node: Counted(construct(self, node)))
        assert len(yamls.load(text)) == keys
    assert Counted.compared < 20 * keys
