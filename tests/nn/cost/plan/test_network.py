"""Networks by name and description, and which link binds a group."""

import pytest

from qkv.nn.cost.plan.network import KNOWN, network


def test_known_networks_say_where_their_numbers_are_from() -> None:
    assert all(one.source for one in KNOWN.values())
    assert network(None, "a100").name == "nvlink3-hdr"
    assert network(None, "this").name == "loopback"


def test_a_group_inside_a_node_uses_nvlink_and_one_across_nodes_all_cards() -> None:
    h100 = network("nvlink4-ndr")
    assert h100.bandwidth(8, 1) == h100.inside.rate
    assert h100.bandwidth(16, 1) == min(h100.inside.rate, 8 * h100.between.rate)  # eight lanes between two nodes
    assert h100.bandwidth(4, 8) == h100.between.rate  # one rank of each node
    assert h100.bandwidth(4, 4) == 2 * h100.between.rate
    assert h100.latency(4, 8) > h100.latency(8, 1)


def test_a_network_is_described_by_its_bandwidths() -> None:
    own = network({"ranks": 4, "inside": 100e9, "between": 10e9, "reached": 1.0})
    assert own.bandwidth(4, 1) == 100e9
    assert own.bandwidth(8, 4) == 10e9


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("nvlink4-ndd", "did you mean 'nvlink4-ndr'.*describe it.*--network"),
        ({"ranks": 8}, "needs inside and between"),
        ({"ranks": 8, "inside": 1e9, "betwen": 1e9}, "has no 'betwen'; did you mean 'between'"),
        ({"ranks": 8, "inside": -1, "between": 1e9}, "inside of the network is a positive number, not -1"),
        ({"ranks": 1.5, "inside": 1, "between": 1e9}, "whole number"),
    ],
)
def test_mistakes_are_one_sentence(given: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        network(given)  # type: ignore[arg-type]
