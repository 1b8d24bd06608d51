"""In a compiled graph, the operator is one node."""

from __future__ import annotations

import flash_worker
import pytest
from flash_remote import Remote, needs_triton


@pytest.mark.slow
@needs_triton
@pytest.mark.parametrize("case", ["packed", "alibi"])
def test_a_compiled_graph_holds_the_operator_as_one_node(there: Remote, case: str) -> None:
    assert max(there(flash_worker.compiled, case)) == 0.0
