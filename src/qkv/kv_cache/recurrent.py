"""What a recurrent decoder remembers: its states, as large after a thousand tokens as after one."""

from __future__ import annotations

from jaxtyping import Float, Int
from torch import Tensor


class RecurrentState:
    """Named tensors (·, B, d), rows second as PyTorch has them in its states."""

    def __init__(self) -> None:
        self.held: dict[str, Float[Tensor, "L B D"]] = {}

    def reorder(self, rows: Int[Tensor, " N"]) -> None:
        self.held = {name: t.index_select(1, rows) for name, t in self.held.items()}

    def check_rewind(self, n: int) -> None:
        if n:
            raise ValueError(
                f"a recurrent state has only what its last token left and can't rewind {n} of them; start again from the "
                "source"
            )

    def rewind(self, n: int) -> None:
        """Nothing to take back: `check_rewind` has refused."""

    def tensors(self) -> dict[str, Tensor]:
        return dict(self.held)

    def restore(self, tensors: dict[str, Tensor]) -> None:
        self.held = dict(tensors)

    @property
    def parts(self) -> dict[str, int]:
        return {"recurrent states": self.nbytes}

    @property
    def nbytes(self) -> int:
        return sum(t.numel() * t.element_size() for t in self.held.values())
