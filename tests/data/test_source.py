from __future__ import annotations

import pkgutil
from importlib import import_module
from typing import Any

import pytest

from qkv.data import readers, synthetic
from qkv.data.source import HOMES, Counts, Skipped, Source, Split, Table, order, read


class Greetings(Source, kind="greetings"):
    """A source from outside the package: nothing else has to change for it."""

    def table(self, split: Split, *, seed: int = 0, epoch: int = 0) -> Table:
        return [{"source": f"hello {i}", "target": f"bonjour {i}"} for i in range(50)]


def test_packaged_sources_are_registered() -> None:
    kinds = {"localise", "pairs", "text", "jsonl", "stdlib", "copy", "reverse", "sort", "greetings"}
    assert kinds <= Source.kinds.keys()


def test_every_source_is_in_the_table_of_homes() -> None:
    for package in (readers, synthetic):
        for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            import_module(module.name)
    homes = {kind: cls.__module__ for kind, cls in Source.kinds.items() if cls.__module__.startswith("qkv.data.")}
    assert homes == {kind: f"qkv.data.{home}" for home, kinds in HOMES.items() for kind in kinds}
    assert Source.from_dict({"kind": "greetings"}) == Greetings()
    with pytest.raises(ValueError, match="there is no source 'localize'; did you mean 'localise'"):
        Source.from_dict({"kind": "localize"})


def test_specs_survive_json() -> None:
    for kind in ("localise", "pairs", "text", "jsonl", "stdlib", "copy", "reverse", "sort"):
        spec = Source.from_dict({"kind": kind})
        assert Source.from_json(spec.to_json()) == spec
        assert hash(spec) == hash(Source.from_json(spec.to_json()))


def test_examples_are_shuffled_by_seed_and_epoch() -> None:
    def run(**options: Any) -> list[str]:
        return [example["source"] for example in Greetings().examples(**options)]

    assert run(seed=1, epoch=0) == run(seed=1, epoch=0)
    assert run(seed=1, epoch=0) != run(seed=1, epoch=1) != run(seed=2, epoch=1)
    assert sorted(run(seed=1)) == sorted(run(shuffle=False))
    assert run(shuffle=False) == run(split="validation") == [f"hello {i}" for i in range(50)]


def test_texts_are_both_sides() -> None:
    assert list(Greetings().texts())[:4] == ["hello 0", "bonjour 0", "hello 1", "bonjour 1"]


def test_bad_entries_are_counted_and_other_splits_entries_are_not() -> None:
    table = [{"text": "a"}, Skipped("empty"), None, {"text": "b"}, Skipped("empty")]
    counts = Counts()
    assert read(table, order(table, 0, 9, None).tolist(), counts) == [{"text": "a"}, {"text": "b"}]
    assert counts.read == 4 and counts.skipped == {"empty": 2}
    assert str(counts) == "4 examples read; 2 skipped (2 empty), 50% of all"
