"""What works on gloo and not on NCCL is not called: rules of PyTorch's and NCCL's documentation, checked in the source.

- NCCL has no tags, and no receipt from any rank: https://docs.pytorch.org/docs/stable/distributed.html
- `barrier` takes a GPU that may be another rank's, and `monitored_barrier` is gloo's.
- With `device_id`, messages between all pairs of ranks share one queue, in which a pipeline would wait for itself:
  https://github.com/pytorch/pytorch/pull/154132
- Reductions with bits, means or factors are refused for some dtypes or by gloo.
- `src` and `dst` are numbers among all ranks, not within the group.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import qkv.training.parallel

FORBIDDEN = {"barrier", "monitored_barrier", "new_subgroups", "AVG", "PREMUL_SUM", "BAND", "BOR", "BXOR"}
KEYWORDS = {"tag", "device_id", "src", "dst"}
NEEDED = {"new_group": {"timeout", "backend"}, "irecv": {"group_src"}, "recv": {"group_src"}}
PAIRS = {"isend", "irecv", "send", "recv"}  # of ranks, whose order matters
ORDERED = {"direct.py", "pipeline.py", "context.py"}  # the modules that see to it
FILES = sorted(Path(qkv.training.parallel.__file__).parent.rglob("*.py"))


def offenses(source: str, name: str) -> list[str]:
    """What a module calls of `torch.distributed` that does not work on NCCL."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and ast.unparse(node.value).split(".")[0] == "dist":
            misplaced = node.attr in PAIRS and name not in ORDERED
            found += [node.attr] * (node.attr in FORBIDDEN or misplaced)
        if isinstance(node, ast.Call) and ast.unparse(node.func).startswith("dist."):
            called, given = ast.unparse(node.func)[5:], {keyword.arg or "**" for keyword in node.keywords}
            found += [f"{called}({keyword}=)" for keyword in sorted(given & KEYWORDS)]
            found += [f"{called} without {keyword}" for keyword in sorted(NEEDED.get(called, set()) - given)]
    return found


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_nothing_that_does_not_work_on_nccl_is_called(file: Path) -> None:
    assert offenses(file.read_text(encoding="utf-8"), file.name) == []


@pytest.mark.parametrize(
    ("source", "offense"),
    [
        ("dist.barrier()", "barrier"),
        ("dist.isend(x, group_dst=1)", "isend"),
        ("dist.all_reduce(x, dist.ReduceOp.AVG)", "AVG"),
        ("dist.send_object_list(x, dst=1)", "send_object_list(dst=)"),
        ("dist.init_process_group('nccl', device_id=d)", "init_process_group(device_id=)"),
        ("dist.new_group([0], timeout=t)", "new_group without backend"),
    ],
)
def test_the_rules_find_what_they_forbid(source: str, offense: str) -> None:
    assert offenses(source, "other.py") == [offense]
