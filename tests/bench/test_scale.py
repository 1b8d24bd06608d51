"""`python -m bench scale`: its table, and that its ways to train take the same steps."""

import pytest
from bench.scale.command import OF_ONE, QUICK, WAYS, main, measure, table


def test_the_table_names_ways_speeds_and_bytes():
    row = {"shape": "tiny", "way": "ZeRO 3", "tokens_per_s": 1234, "ratio": 0.9, "loss": 1.0}
    row["bytes"] = [{"parameters": 1_000_000, "optimizer": 2_000_000}] * 2
    result = {
        "rows": [row],
        "machine": {"processor": "CPU", "cores": 2},
        "code": {"commit": "abc"},
        "date": "2026-01-02",
    }
    text = table({**result, "versions": {"torch": "2.13.0"}, "rounds": 7, "load_before": 0.1})
    assert "| tiny | ZeRO 3 | 1,234 | 0.90 | 3.0, 3.0 |" in text and "commit abc" in text


@pytest.mark.slow
def test_every_way_gives_the_same_loss_and_the_memory_of_its_stage():
    rows = {row["way"]: row for row in measure(QUICK[0], rounds=1)}
    assert rows.keys() == {way.name for way in WAYS}
    losses = [row["loss"] for row in rows.values()]
    assert losses == pytest.approx([losses[0]] * len(losses), rel=1e-4)
    one = sum(rows["one rank, two threads"]["bytes"][0].values())
    for way, share in (("replicas", 1), ("ZeRO 1", (4 + 8 / 2) / 12), ("ZeRO 2", (4 + 8 / 2) / 12), ("ZeRO 3", 1 / 2)):
        for rank in rows[way]["bytes"]:
            assert sum(rank.values()) == pytest.approx(share * one, rel=0.05), way


@pytest.mark.slow
def test_a_mesh_of_one_rank_is_measured_beside_a_process_without_a_layout(capsys):
    assert main(["--one", "--quick"]) == 0
    lines = capsys.readouterr().out.splitlines()[2:]
    assert [line.split(" | ")[0].removeprefix("| ") for line in lines] == [way.name for way in OF_ONE]
    assert lines[0].endswith("| 1.000 |")
