"""Code edits made from functions: what is renamed, and what is not."""

import ast
from pathlib import Path
from random import Random

from bench.edits import edits, renamed, split_of

CODE = """
def total(prices, rate):
    sum = 0
    for price in prices:
        sum += price.rate * rate  # a comment
    return {"rate": sum, f"{rate}": rate.sum}
"""


def test_names_are_renamed_and_attributes_and_strings_are_not() -> None:
    found = renamed(ast.unparse(ast.parse(CODE)), "rate", "tax")
    assert "def total(prices, tax):" in found and "price.rate * tax" in found and "'rate': sum" in found
    assert "tax.sum" in found and ast.parse(found)


def test_edits_of_a_module(tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text(CODE + "\nother = missing\n")
    pairs = list(edits(tmp_path / "m.py", Random(0)))
    assert len(pairs) == 2
    for source, target in pairs:
        function, _, names = source.rpartition(" # ")
        old, new = names.split(" > ")
        assert renamed(function.replace(" ⏎ ", "\n"), old, new).replace("\n", " ⏎ ") == target
        assert new in ("other", "missing") and "\n" not in source + target
    (tmp_path / "broken.py").write_text("def f(:")
    assert not list(edits(tmp_path / "broken.py", Random(0)))


def test_a_module_is_in_one_split() -> None:
    assert {split_of(f"{n}.py") for n in range(200)} == {"train", "validation", "test"}
