import ctypes
import logging

import pytest

from qkv.nn.kernels.native import compiler, structures
from qkv.nn.kernels.native.structures import Structure

LIBRARIES = sorted({library for structure in Structure.__subclasses__() for library in structure.sources})
pytestmark = pytest.mark.skipif(compiler.library("decoding") is None, reason="there is no C++ compiler")


@pytest.mark.parametrize("name", LIBRARIES)
def test_every_structure_is_compared_with_the_source(name):
    kernels = compiler.library(name)
    assert kernels is not None
    of = {structure: structure.sources[name] for structure in Structure.__subclasses__() if name in structure.sources}
    found = {structure: structures.exported(kernels, source) for structure, source in of.items()}
    if not any(found.values()):
        assert name in ("bf16_amx", "quantized_kv_amx", "encoding", "weight_gradients")  # need AMX or AVX-512
        pytest.skip("the processor lacks the instructions of these kernels")
    assert found == {structure: structures.layout_of(structure) for structure in of}


CHANGED = {
    "two fields exchanged": lambda fields: [fields[1], fields[0], *fields[2:]],
    "a field of another size": lambda fields: [(fields[0][0], ctypes.c_int), *fields[1:]],
    "a field too few": lambda fields: fields[:-1],
    "a field too many": lambda fields: [*fields, ("more", ctypes.c_long)],
    "a field of another name": lambda fields: [("other", fields[0][1]), *fields[1:]],
}


@pytest.fixture
def changed(monkeypatch, request):
    """A structure in place of RowParts, with other fields."""
    wrong = type("Wrong", (ctypes.Structure,), {"_fields_": request.param(structures.RowParts._fields_)})
    wrong.sources = structures.RowParts.sources
    monkeypatch.setattr(Structure, "__subclasses__", lambda: [structures.Strides, wrong])
    compiler.library.cache_clear()
    yield wrong
    compiler.library.cache_clear()


@pytest.mark.parametrize("changed", CHANGED.values(), ids=CHANGED, indirect=True)
def test_kernels_are_left_out_if_a_structure_differs_from_the_source(changed, caplog):
    with caplog.at_level(logging.WARNING):
        assert compiler.library("decoding") is None
    assert "Wrong in structures.py isn't Parts of the source" in caplog.text
    assert compiler.library("block_sparse") is not None  # whose structures are the same
