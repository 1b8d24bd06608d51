"""The harness runs every table at tiny size, keeps what it measured, and the page says what the files say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from bench.__main__ import main, run
from bench.contenders import shapes
from bench.lockstep import Case, Contender, measure, ring
from bench.results import RESULTS, Record, Result, latest
from bench.tables import TABLES
from bench.tables.table import Table, probe, verdict

from bench import peers, render


def shortened(table: Table) -> Table:
    """A table's first case, and its last of memory, with few contenders and no peer that needs an environment."""

    def cases(quick: bool) -> list[Case]:
        whole = table.cases(quick)
        timed = [case for case in whole if not case.once][:1]
        return [few(case) for case in (*timed, *[case for case in whole if case.once][-1:])]

    def few(case: Case) -> Case:
        here = [c for c in case.contenders if c.environment == peers.OURS]
        chosen = here[:1] if case.once else [here[0], here[-1]]
        return Case(case.key, tuple(chosen), case.once, case.fresh, case.profiled)

    return Table(table.name, table.rounds, cases, table.render)


@pytest.mark.parametrize("name", TABLES)
def test_a_table_runs_and_its_file_reads_back(name: str, tmp_path: Path) -> None:
    result = run(shortened(TABLES[name]), rounds=1, quick=True, threads=1, notes=["Tiny."])
    assert result.cases and not any(case["errors"] for case in result.cases)
    result.write(tmp_path / "kept.json")
    again = Result.read(tmp_path / "kept.json")
    assert again.table == name and again.rounds == 1
    for case in again.cases:
        record = Record(case)
        for contender in record.names:
            assert all(ms > 0 for ms in record.all(contender))
    text = render.render(again)
    assert "| --- |" in text and "Tiny." in text


def test_the_page_says_what_the_results_say() -> None:
    page = render.PAGE.read_text()
    assert page == render.rendered(page), "run python -m bench render"
    assert all(f"<!-- bench:{name} -->" in page for name in TABLES)


def test_kept_results_are_whole_and_not_quick() -> None:
    for path in RESULTS.glob("*.json"):
        result = Result.read(path)
        assert result.table in TABLES and not result.quick
        assert result.machine["processor"] and result.code["commit"]
        for case in result.cases:
            counts = {len(part["rounds"]) for part in case["contenders"].values()}
            assert len(counts) == 1, "a round is taken by all"


def test_rounds_interleave_and_ratios_are_taken_within_them(tmp_path: Path) -> None:
    log = tmp_path / "log"
    note = "import pathlib,sys; p=pathlib.Path(sys.argv[1]); p.open('a').write(sys.argv[2])"
    contenders = tuple(Contender(n, command=("python", "-c", note, str(log), n)) for n in "AB")
    with ring(1) as entered:
        record = Record(measure(Case({"what": "turns"}, contenders), entered, 3, probe(quick=True)))
    turns = log.read_text()
    warmed, rounds = turns[:4], turns[4:]
    repeats = [record.case["contenders"][n]["repeats"] for n in "AB"]
    assert warmed == "AABB" and len(record.case["probes"]) == 3
    a, b = ("A" * repeats[0], "B" * repeats[1])
    assert rounds == a + b + b + a + a + b
    expected = [x / y for x, y in zip(record.all("A"), record.all("B"), strict=True)]
    assert record.ratios("A", "B") == expected


def test_a_contender_that_fails_is_named_and_the_others_go_on() -> None:
    shape = shapes.tiny()
    good = Contender("good", "bench.contenders.bare:TrainingStep", {"shape": shape, "precision": "fp32"})
    bad = Contender(
        "bad", "bench.contenders.bare:TrainingStep", {"shape": {**shape, "n_heads": 7}, "precision": "fp32"}
    )
    absent = Contender("absent", "bench.contenders.bare:Absent")
    with ring(1) as entered:
        record = measure(Case({}, (bad, good, absent)), entered, 1, probe(quick=True))
    assert list(record["contenders"]) == ["good"]
    assert set(record["errors"]) == {"bad", "absent"} and "Absent" in record["errors"]["absent"]


def test_step_flops_agree_with_the_cost_model() -> None:
    from bench.contenders.gpt import Shape
    from bench.contenders.ours import spec

    shape = shapes.training(8192)
    own = 3 * spec(Shape(**shape)).cost(shape["context"]).flops * shape["batch"]
    assert shapes.step_flops(shape) == pytest.approx(own, rel=0.01)


def test_verdicts_know_which_side_is_better() -> None:
    assert verdict("x", 1.5, 1.6).endswith(": met.")
    assert verdict("x", 1.7, 1.6).endswith(": not met.")
    assert verdict("x", 1.2, 1.15, least=True).endswith(": met.")


def test_cases_measured_again_take_the_place_of_the_earlier(tmp_path: Path) -> None:
    first = run(startup_only(), rounds=1, quick=True, threads=1)
    second = run(startup_only(), rounds=1, quick=True, threads=1, again="b")
    assert [case["key"]["what"] for case in second.cases] == ["b"]
    whole = first.renewed(second)
    assert whole.cases == [first.cases[0], second.cases[0]] and "1 of 2 cases" in whole.notes[-1]


def startup_only() -> Table:
    """Two cases of a command that does nothing."""
    nothing = (Contender("pass", command=("python", "-c", "pass")),)
    return Table("startup", 1, lambda quick: [Case({"what": what}, nothing) for what in "ab"], lambda result: "")


def test_latest_takes_the_newest_of_its_table(tmp_path: Path) -> None:
    for name, table, date in (
        ("a", "train", "2026-01-02"),
        ("b", "train", "2026-03-01"),
        ("c", "decode", "2026-05-01"),
    ):
        (tmp_path / f"{name}.json").write_text(json.dumps({"table": table, "date": date}))
    found = latest("train", tmp_path)
    assert found is not None and found.stem == "b"
    assert latest("startup", tmp_path) is None


def test_unknown_peers_and_missing_environments_say_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="there is no peer 'fairseq'; known: huggingface"):
        peers.python("fairseq")
    monkeypatch.setattr(peers, "ENVS", tmp_path)
    with pytest.raises(ValueError, match=r"python -m bench\.peers"):
        peers.python("huggingface")


def test_bad_arguments_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["all", "--out", "x.json"])
    with pytest.raises(SystemExit):
        main(["train", "--rounds", "0"])
    assert "--rounds is at least 1" in capsys.readouterr().err
