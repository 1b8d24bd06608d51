"""Weight decay spares biases, norms and embeddings."""

import pytest
import torch
from train_stand_in import Tiny

from qkv.training.optimizers import Optimizer

KINDS = sorted(kind for kind, cls in Optimizer.kinds.items() if cls.__module__.startswith("qkv."))


def names(optimizer: torch.optim.Optimizer) -> dict[float, set[str]]:
    found: dict[float, set[str]] = {}
    for group in optimizer.param_groups:
        found.setdefault(group.get("decoupled_decay", group["weight_decay"]), set()).update(group["param_names"])
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_decay_spares_biases_norms_and_embeddings_and_tied_weights_come_once(kind):
    spec = Optimizer.from_dict({"kind": kind, "weight_decay": 0.3})
    plain = {"embedding.weight", "norm.weight", "norm.bias", "layer.bias"}
    assert names(spec.build(Tiny())) == {0.3: {"layer.weight"}, 0.0: plain}
    both = names(spec.replace(decay_embeddings=True).build(Tiny()))
    assert both[0.3] == {"layer.weight", "embedding.weight"}
