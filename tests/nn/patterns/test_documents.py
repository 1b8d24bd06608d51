"""Documents of packed rows: their numbers and lengths."""

from __future__ import annotations

from qkv.core.layout import Layout
from qkv.nn.patterns.documents import document_lengths, document_numbers


def test_packed_rows_number_their_documents() -> None:
    layout = Layout.packed([[2, 3], [4]], 6)
    numbers = document_numbers(layout)
    assert numbers is not None
    assert numbers.tolist()[0] == [0, 0, 1, 1, 1, 2] and numbers.tolist()[1] == [0, 0, 0, 0, 1, 1]
    assert document_lengths(layout).tolist()[0][:5] == [2, 2, 3, 3, 3]
    assert document_lengths(layout).tolist()[1][:4] == [4] * 4


def test_rows_of_one_document_have_no_numbers() -> None:
    layout = Layout.from_lengths([2, 4])
    assert document_numbers(layout) is None
    assert document_lengths(layout).tolist() == [[2], [4]]
