from __future__ import annotations

from pathlib import Path

from qkv.data.readers.parallel_text import Pairs
from qkv.data.source import Source, Split, Table
from qkv.data.synthetic.copy_reverse_sort import Reverse
from qkv.runs.train.fingerprint import fingerprint


def write(path: Path, lines: int, changed: int | None = None) -> Pairs:
    texts = [f"{n} cats\t{n} {'Hunde' if n == changed else 'Katzen'}\n" for n in range(lines)]
    path.write_text("".join(texts), encoding="utf-8")
    return Pairs(path=str(path))


def test_it_is_the_datas_content(tmp_path: Path) -> None:
    source = write(tmp_path / "a.tsv", 200)
    first = fingerprint(source, None, 0)
    assert fingerprint(source, None, 0) == first and first.keys() == {"data"}
    (tmp_path / "other").mkdir()
    assert fingerprint(write(tmp_path / "other/a.tsv", 200), None, 0) == first  # wherever it lies
    assert fingerprint(write(tmp_path / "a.tsv", 201), None, 0) != first
    assert fingerprint(write(tmp_path / "a.tsv", 200, changed=150), None, 0) != first  # of another size


def test_made_data_follow_from_the_seed() -> None:
    assert fingerprint(Reverse(), None, 1) == fingerprint(Reverse(), None, 1) != fingerprint(Reverse(), None, 2)


class Keyed(Source, kind="keyed"):
    """Examples with keys that have no order among each other."""

    value: str = "x"

    def table(self, split: Split, *, seed: int = 0, epoch: int = 0) -> Table:
        return [{"text": "a", 1: {None: self.value, (2, 3): 1}}]  # type: ignore[dict-item]


def test_examples_may_have_any_keys() -> None:
    assert fingerprint(Keyed(), None, 0) == fingerprint(Keyed(), None, 0) != fingerprint(Keyed(value="y"), None, 0)
