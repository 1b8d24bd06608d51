"""The decoding state of a recurrent decoder, whose size does not depend on the number of tokens."""

from __future__ import annotations

from jaxtyping import Float, Int
from torch import Tensor


class RecurrentState:
    """Named tensors (·, B, d), with rows second as in PyTorch's RNN states."""

    def __init__(self) -> None:
        self.values: dict[str, Float[Tensor, "L B D"]] = {}

    def reorder(self, rows: Int[Tensor, " N"]) -> None:
        self.values = {name: t.index_select(1, rows) for name, t in self.values.items()}

    def check_rewind(self, n: int) -> None:
        if n:
            raise ValueError(
                f"a recurrent state can't rewind {n} tokens, as it does not keep its past; start again from the source"
            )

    def rewind(self, n: int) -> None:
        """Never called with n > 0: `check_rewind` refuses."""

    def tensors(self) -> dict[str, Tensor]:
        return dict(self.values)

    def restore(self, tensors: dict[str, Tensor]) -> None:
        self.values = dict(tensors)

    @property
    def parts(self) -> dict[str, int]:
        return {"recurrent states": self.nbytes}

    @property
    def nbytes(self) -> int:
        return sum(t.numel() * t.element_size() for t in self.values.values())
