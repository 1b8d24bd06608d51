import json

from qkv.training.logging.metrics_file import MetricsLog, from_json, read_metrics, to_json

NAN, INF = float("nan"), float("inf")


def test_numbers_that_are_none_are_written_as_words_in_valid_json(tmp_path):
    log = MetricsLog(tmp_path / "m.jsonl")
    log.write("train", 1, loss=NAN, grad_norm=INF, terms={"a": [-INF, 1.5]}, mfu=None)
    log.close()

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is not JSON")

    line = json.loads((tmp_path / "m.jsonl").read_text(), parse_constant=refuse)
    assert line["loss"] == "NaN" and line["terms"]["a"] == ["-Infinity", 1.5]
    (read,) = read_metrics(tmp_path / "m.jsonl")
    assert read["loss"] != read["loss"] and read["grad_norm"] == INF and read["mfu"] is None


def test_to_and_from_json_are_inverse():
    value = {"a": [1.0, INF, {"b": -INF}], "c": "text", "d": None, "e": 3}
    assert from_json(json.loads(json.dumps(to_json(value), allow_nan=False))) == value


def test_a_resumed_log_is_cut_at_its_step_and_continues(tmp_path):
    path = tmp_path / "m.jsonl"
    log = MetricsLog(path)
    for step in (1, 2, 3):
        log.write("train", step, loss=NAN)
    log.write("final", 2, loss=1.0)
    log.close()
    with path.open("a") as file:
        file.write('{"type": "train", "st')  # a process killed in the middle of a line
    log = MetricsLog(path, after=2)
    log.write("train", 3, loss=0.5)
    log.close()
    lines = list(read_metrics(path))
    assert [(line["type"], line["step"]) for line in lines] == [("train", 1), ("train", 2), ("train", 3)]
    assert lines[1]["loss"] != lines[1]["loss"] and lines[2]["loss"] == 0.5


def test_a_run_from_the_beginning_starts_an_empty_log(tmp_path):
    for _ in range(2):
        log = MetricsLog(tmp_path / "sub/m.jsonl")
        log.write("train", 1, loss=1.0)
        log.close()
    assert len(list(read_metrics(tmp_path / "sub/m.jsonl"))) == 1


def test_boards_are_shown_the_numbers_of_training_and_evaluations(tmp_path):
    class Shown(list):
        def write(self, type, step, values):
            self.append((type, step, dict(values)))

        def close(self):
            self.append("closed")

    board = Shown()
    log = MetricsLog(tmp_path / "m.jsonl", loggers=[board])
    log.write("train", 3, loss=1.0, mfu=None, terms={"a": 1.0})
    log.write("event", 3, event="bad step", loss=NAN)
    log.write("eval", 3, loss=2.0, best=True)
    log.write("final", 3, loss=1.5, weights="the weights")
    log.close()
    assert board == [
        *(("train", 3, {"loss": 1.0}), ("eval", 3, {"loss": 2.0, "best": True}), ("final", 3, {"loss": 1.5})),
        "closed",
    ]
