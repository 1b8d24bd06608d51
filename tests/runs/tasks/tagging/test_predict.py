"""Tags of new texts are the tags of the evaluation."""

from __future__ import annotations

from short_runs import Train, evaluated, examples


def test_tags_match_the_evaluation(short_run: Train) -> None:
    run = short_run("tag", "data.train=300", "task.longest=16")  # so short that sentences become several rows
    told = evaluated(run)
    texts = [one["text"] for one in examples(run)]
    made = run.predict(texts)
    assert {one.input: one.text for one in made} == {text: sample["output"] for text, sample in told.items()}
    assert len({tag for one in made for tag in one.value}) > 1
    for one in made:
        words, tags = one.fields["words"], one.fields["tags"]
        assert words == one.input.split() and len(tags) == len(words)
        for entity in one.fields["entities"]:
            assert entity["text"] == " ".join(words[entity["start"] : entity["stop"]])
            assert tags[entity["start"]] == f"B-{entity['type']}"
    assert run.predict([f"  {texts[0]} "])[0].value == made[0].value


def test_symbols_have_tags_where_words_are_symbols(short_run: Train) -> None:
    run = short_run("protein", "data.train=200")
    told = evaluated(run)
    made = run.predict([one["text"] for one in examples(run)])
    assert {one.input: one.text for one in made} == {text: sample["output"] for text, sample in told.items()}
    assert [one.value for one in run.predict([made[0].input] * 2)] == [made[0].value] * 2  # one text, asked twice
    assert "entities" not in made[0].fields and len(made[0].fields["tags"]) == len(made[0].input)
