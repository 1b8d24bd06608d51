"""Python bindings for the C++ kernel of BPE-dropout."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Sequence

import numpy as np

from .compiler import library

SEED_LIMIT = 1 << 64  # the kernel takes seeds of 64 bits


class BPEDropout:
    """Segments many texts per call, with the same draws as `qkv.data.tokenizers.subword_regularization.MergeDropout`."""

    def __init__(self, kernels: ctypes.CDLL, model: int) -> None:
        self._kernels, self._model = kernels, ctypes.c_void_p(model)
        weakref.finalize(self, kernels.qkv_bpe_dropout_free, self._model)

    @classmethod
    def of(
        cls, pairs: Sequence[tuple[int, int]], made: Sequence[int], splits: Sequence[bool], log_keep: float
    ) -> BPEDropout | None:
        """Build the kernel's model. Returns None if the kernel is unavailable, or if a piece contains itself.

        pairs, made: the two ids that each merge joins, and the id of the result, ordered by rank.
        splits:      whether the result of each merge is split into these two ids again.
        log_keep:    log(1 − p), where p is the probability that a merge is dropped.
        """
        kernels = library("bpe_dropout")
        if kernels is None:
            return None
        new, count = kernels.qkv_bpe_dropout_new, len(made)
        new.restype = ctypes.c_void_p
        flat = np.asarray(pairs, np.int32).reshape(-1)
        vocabulary = 1 + max(int(flat.max(initial=-1)), max(made, default=-1))
        arrays = flat, np.asarray(made, np.int32), np.asarray(splits, np.bool_)
        model = new(*map(_place, arrays), ctypes.c_long(count), ctypes.c_long(vocabulary), ctypes.c_double(log_keep))
        return None if model is None else cls(kernels, model)

    def sample(self, texts: Sequence[bytes], seeds: Sequence[int]) -> list[list[int]]:
        """Return the ids of each text.

        A text is an array of int32: the number of words, the length of each word, and the ids of all words. Raises
        OverflowError if a seed is negative or does not fit into 64 bits, MemoryError if memory runs out, and ValueError for
        texts of another form or without a seed for each.
        """
        if len(texts) != len(seeds):
            raise ValueError(f"{len(texts)} texts need a seed each; got {len(seeds)}")
        joined, drawn = np.frombuffer(b"".join(texts), np.int32), np.array(seeds, np.uint64)
        lengths, capacity = np.empty(len(texts), "l"), 2 * len(joined)
        while True:
            out = np.empty(capacity, np.int32)
            places = (
                _place(joined),
                ctypes.c_long(len(joined)),
                _place(drawn),
                ctypes.c_long(len(texts)),
                _place(out),
                ctypes.c_long(capacity),
            )
            self._kernels.qkv_bpe_dropout_sample.restype = ctypes.c_long
            written = self._kernels.qkv_bpe_dropout_sample(self._model, *places, _place(lengths))
            if written == -2:
                raise ValueError("a text is the number of its words, the length of each, and the ids of all of them")
            if written < 0:
                raise MemoryError("not enough memory to segment these texts")
            if written <= capacity:
                break
            capacity = written
        ids, ends = out[:written].tolist(), np.cumsum(lengths).tolist()
        return [ids[start:end] for start, end in zip([0, *ends], ends, strict=False)]


def _place(array: np.ndarray) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)
