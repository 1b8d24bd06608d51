"""The harness runs every table at tiny size, keeps what it measured, and the page says what the files say."""

from __future__ import annotations

import json
import math
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from bench.__main__ import chosen, main, run
from bench.contenders import shapes
from bench.contenders.gate import Gate
from bench.lockstep import Case, Contender, measure, ring
from bench.results import RESULTS, Record, Result, latest
from bench.tables import TABLES, steps
from bench.tables.table import Table, probe, verdict
from preloaded_python import program as preloaded

from bench import checks, overview, peers, render


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of this environment, with a Python that starts sooner because it has already imported qkv."""
    folder = tmp_path_factory.mktemp("bin")
    for program in Path(sys.executable).parent.iterdir():
        if not program.name.startswith("python"):
            (folder / program.name).symlink_to(program)
    return preloaded(folder).parent


@pytest.fixture
def quick_start(monkeypatch: pytest.MonkeyPatch, programs: Path) -> None:
    """Contenders of qkv's own environment start in `programs`."""
    real = peers.python
    monkeypatch.setattr(peers, "python", lambda name: programs / "python" if name == peers.OURS else real(name))


def few(table: Table) -> list[Case]:
    """A table's first case, and its last of memory, with few contenders and no peer that needs an environment."""
    cases = table.cases(True)
    timed = [case for case in cases if not case.once][:1]
    return [fewer(case) for case in (*timed, *[case for case in cases if case.once][-1:])]


def fewer(case: Case) -> Case:
    here = {c.name: c for c in case.contenders if c.environment == peers.OURS}
    names = list(here)
    kept = names[:1] if case.once or case.whole else dict.fromkeys([names[0], names[-1]])
    return replace(case, contenders=tuple(here[name] for name in kept))


# What they do otherwise than `train` is little, and takes many processes.
SLOW = (
    *("rows", "shakespeare", "moe", "attention", "growth", "precision", "objectives", "optimizers", "cache"),
    *("decode", "loading", "vit", "recurrent", "startup", "dropout", "families", "multi30k"),
)


@pytest.mark.usefixtures("quick_start")
@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in TABLES])
def test_a_table_runs_and_its_file_reads_back(name: str, tmp_path: Path) -> None:
    if TABLES[name].lacks():
        pytest.skip(TABLES[name].lacks())
    result = run(TABLES[name], few(TABLES[name]), rounds=1, quick=True, threads=1, notes=["Tiny."])
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
    for file, svg in TABLES[name].draw(again).items():
        assert f"]({file})" in text and ElementTree.fromstring(svg).tag.endswith("svg")


def test_the_docs_say_and_draw_what_the_results_say() -> None:
    pages = [page.read_text() for page in render.PAGES]
    assert pages == [render.rendered(page) for page in pages], "run python -m bench render"
    assert all(f"<!-- bench:{name} -->" in "".join(pages) for name in TABLES)
    for file, svg in render.figures().items():
        assert (render.DOCS / file).read_text() == svg, "run python -m bench render"


def test_kept_results_are_whole_and_not_quick() -> None:
    for path in RESULTS.glob("*.json"):
        result = Result.read(path)
        assert result.table in TABLES and not result.quick
        assert result.machine["processor"] and result.code["commit"]
        for case in result.cases:
            counts = {len(part["rounds"]) for part in case["contenders"].values()}
            assert len(counts) == 1, "a round is taken by all"


@pytest.mark.slow
@pytest.mark.usefixtures("quick_start")
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


@pytest.mark.usefixtures("quick_start")
def test_a_contender_that_fails_is_named_and_the_others_continue() -> None:
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


def test_pair_flops_agree_with_the_cost_model() -> None:
    from bench.contenders.ours_pairs import spec
    from bench.contenders.pairs import PairShape

    shape = {**shapes.pairs(), "target": 48}
    own = 3 * spec(PairShape(**shape)).cost(shape["target"], source=shape["source"]).flops * shape["batch"]
    assert shapes.pair_flops(shape) == pytest.approx(own, rel=0.01)


def test_verdicts_know_which_side_is_better() -> None:
    assert verdict("x", 1.5, 1.6).endswith(": met.")
    assert verdict("x", 1.7, 1.6).endswith(": not met.")
    assert verdict("x", 1.2, 1.15, least=True).endswith(": met.")


@pytest.mark.slow
@pytest.mark.usefixtures("quick_start")
def test_cases_measured_later_take_the_place_of_the_earlier_or_stand_beside_them() -> None:
    first = run(nothing("xy"), nothing("xy").cases(True), rounds=1, quick=True, threads=1)
    later = run(nothing("xz"), nothing("xz").cases(True), rounds=1, quick=True, threads=1, notes=["Quiet."])
    assert first.comparable(later)
    whole = first.renewed(later, [case.key for case in nothing("zyx").cases(True)])
    assert whole.cases == [later.cases[1], first.cases[1], later.cases[0]] and whole.date == first.date
    assert whole.notes[0] == "Quiet." and "2 of 3 cases" in whole.notes[1]
    elsewhere = replace(later, machine={**later.machine, "processor": "another"})
    assert not first.comparable(elsewhere) and not first.comparable(replace(later, threads=3))


@pytest.mark.slow
@pytest.mark.usefixtures("quick_start")
def test_an_interrupted_run_continues_where_it_stopped(tmp_path: Path) -> None:
    part = tmp_path / "startup.json.part"
    run(nothing("xy"), nothing("x").cases(True), rounds=1, quick=True, threads=1, part=part)
    first = Result.read(part)
    run(nothing("xy"), nothing("xy").cases(True), rounds=1, quick=True, threads=1, part=part, done=first)
    both = Result.read(part)
    assert [case["key"]["what"] for case in both.cases] == ["x", "y"] and both.cases[0] == first.cases[0]
    assert "1 of 2 cases" in both.notes[0]


def nothing(letters: str) -> Table:
    """A case for each letter, of a command that does nothing."""
    idle = (Contender("pass", command=("python", "-c", "pass")),)
    return Table("startup", 1, lambda quick: [Case({"what": what}, idle) for what in letters], lambda result: "")


def test_only_chooses_the_cases_with_all_the_words() -> None:
    titles = [case.title for case in chosen(TABLES["train"], False, "50257 bf16 compiled same")]
    assert len(titles) == 3 and all("vocab_size 50257, precision bf16" in title for title in titles)
    with pytest.raises(SystemExit, match=r"no case of train has all of \['50258'\]"):
        main(["train", "--quick", "--only", "50258"])


def test_peers_get_qkvs_allocator_only_where_the_case_says_so() -> None:
    for case in TABLES["train"].cases(True):
        keep = {contender.name: contender.keep_pages for contender in case.contenders}
        assert keep.pop(steps.OURS)
        assert set(keep.values()) == {case.key["allocator"] == steps.SAME}


@pytest.mark.usefixtures("quick_start")
def test_models_of_different_sizes_stop_the_measurement() -> None:
    shape = shapes.tiny()
    what = "bench.contenders.bare:TrainingStep"
    one, other = (Contender(str(d), what, {"shape": {**shape, "d_model": d}, "precision": "fp32"}) for d in (64, 128))
    with ring(1) as entered, pytest.raises(AssertionError, match="not models of one size"):
        measure(Case({}, (one, other)), entered, 1, probe(quick=True))
    checks.same_size({"a": {"parameters": 1000}, "b": {"parameters": 995}, "command": {}})


def losses(*values: float) -> dict[str, Any]:
    first, *rounds = ({"ms": 1.0, "values": {"loss": value}} for value in values)
    return {"first": first, "rounds": rounds}


def test_a_loss_begins_near_ln_v_and_falls() -> None:
    assert checks.not_learning(losses(math.log(50) + 0.2, 3.0, 2.5), 50) == ""
    assert "began at 12.00" in checks.not_learning(losses(12.0, 3.0), 50)
    assert "began at 0.50" in checks.not_learning(losses(0.5, 0.4), 50)
    assert checks.not_learning(losses(2.5, 2.4), 50, steps=20) == ""
    assert "began at 0.50" in checks.not_learning(losses(0.5, 0.4), 50, steps=20)
    assert "nan" in checks.not_learning(losses(math.nan, 0.4), 50)
    assert "did not fall" in checks.not_learning(losses(4.0, 4.1), 50)
    assert checks.not_learning({"rounds": [{"ms": 1.0, "values": {}}]}, 50) == "it told no loss"


@pytest.mark.slow
@pytest.mark.usefixtures("quick_start")
def test_a_contender_that_does_not_learn_is_left_out() -> None:
    options = {"shape": shapes.tiny(), "precision": "fp32"}
    trains = Contender("trains", "bench.contenders.bare:TrainingStep", options)
    decodes = Contender("decodes", "bench.contenders.bare:Decoding", {**options, "prompt": 2, "new": 2})
    with ring(1) as entered:
        record = measure(Case({}, (trains, decodes), vocab_size=64), entered, 1, probe(quick=True))
    assert list(record["contenders"]) == ["trains"] and record["errors"] == {"decodes": "it told no loss"}


def test_a_gate_lets_a_loop_take_so_many_steps_and_no_more() -> None:
    gate, taken = Gate(), []

    def train() -> None:
        for step in range(5):
            gate.begin(tokens=step)
            taken.append(step)
            gate.done(loss=10.0 - step)
        raise OSError("the disk is full")

    gate.open(train)
    assert taken == []
    assert gate.advance(2) == {"tokens": 1, "loss": 9.5} and taken == [0, 1]
    assert gate.advance(1) == {"tokens": 2, "loss": 8.0} and taken == [0, 1, 2]
    with pytest.raises(OSError, match="the disk is full"):
        gate.advance(3)


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
    with pytest.raises(ValueError, match=r"python -m bench\.peers huggingface"):
        peers.python("huggingface")
    monkeypatch.delenv("QKV_BENCH_NANOGPT", raising=False)
    with pytest.raises(ValueError, match=r"github\.com/karpathy/nanoGPT .* or set QKV_BENCH_NANOGPT"):
        peers.source("nanogpt")
    monkeypatch.setenv("QKV_BENCH_NANOGPT", str(tmp_path))
    assert peers.source("nanogpt") == tmp_path


def test_a_peer_that_cannot_be_made_does_not_stop_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []

    def make(name: str) -> None:
        if name == "eole":
            raise OSError("no network")
        made.append(name)

    monkeypatch.setattr(peers, "make", make)
    assert peers.main(["eole", "joeynmt"]) == 1 and made == ["joeynmt"]
    assert [line.partition("==")[0] for line in peers.pinned()] == list(peers.SHARED)


def test_bad_arguments_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["all", "--out", "x.json"])
    with pytest.raises(SystemExit):
        main(["train", "--rounds", "0"])
    assert "--rounds is at least 1" in capsys.readouterr().err


def test_every_benchmark_with_peers_has_its_row_in_the_summary() -> None:
    rows = overview.comparisons()
    assert len({row.title for row in rows}) == len(rows) > 20
    assert all(ratios and min(ratios) > 0 for row in rows for ratios in row.ratios.values())
    text = overview.render()
    assert all(f"| {row.title} |" in text and all(peer in text for peer in row.ratios) for row in rows)
