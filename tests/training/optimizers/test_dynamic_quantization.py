import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from qkv.training.optimizers.dynamic_quantization import code, dequantize, quantize


@pytest.mark.parametrize(
    ("signed", "some"),
    [
        # bitsandbytes 0.50.2, `functional.create_dynamic_map(signed)`, at 0, 1, 2, 126 … 130, 254, 255; all are the same
        (True, [-0.9929687, -0.9789062, -0.9648438, -5.5e-07, 0.0, 5.5e-07, 3.25e-06, 7.75e-06, 0.9929687, 1.0]),
        (False, [0.0, 3.25e-07, 7.75e-07, 0.0992969, 0.1035156, 0.1105469, 0.1175781, 0.1246094, 0.9964844, 1.0]),
    ],
)
def test_the_codes_are_the_papers(signed, some):
    got = code(signed)
    assert len(got.unique()) == 256 and torch.equal(got, got.sort().values)
    torch.testing.assert_close(got[[0, 1, 2, 126, 127, 128, 129, 130, 254, 255]], torch.tensor(some), rtol=1e-5, atol=0)


@given(n=st.integers(1, 700), block=st.sampled_from([16, 256]), signed=st.booleans(), seed=st.integers(0, 99))
def test_every_number_becomes_the_nearest_code_of_its_block(n, block, signed, seed):
    made = torch.Generator().manual_seed(seed)
    x = torch.randn(n, generator=made) * 10 ** torch.empty(n).uniform_(-6, 6, generator=made)
    x = x if signed else x.abs()
    values, largest = quantize(x, block, signed)
    assert values.shape == (n,) and values.dtype == torch.uint8 and len(largest) == -(-n // block)
    back = dequantize(values, largest, block, signed)
    for i in range(0, n, block):
        part = x[i : i + block] / x[i : i + block].abs().max()
        distance = (part[:, None] - code(signed)).abs().min(1).values
        got = (back[i : i + block] / largest[i // block] - part).abs()
        # the look-up knows 8 of the fraction's bits; and what is no zero doesn't become one without a sign
        smallest = 0.0 if signed else 3.3e-7
        assert (got <= distance + part.abs() / 128 + smallest).all()


def test_zeros_and_what_a_second_moment_must_not_become():
    x = torch.tensor([1e-20, 0.0, 1e-3, 4.0])
    values, largest = quantize(x, 16, signed=False)
    back = dequantize(values, largest, 16, signed=False)
    assert back[0] > 0 and back[1] == 0 and back[3] == 4.0
    for signed in (True, False):
        values, largest = quantize(torch.zeros(20), 16, signed)
        assert torch.equal(dequantize(values, largest, 16, signed), torch.zeros(20))
