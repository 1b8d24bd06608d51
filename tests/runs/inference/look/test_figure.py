"""What `look` shows: the weights that the reference computes, of every family, only what is on display."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import run_untrained
import test_predict_by_head
import torch
from hub_pairs import save_hub_pair
from PIL import Image
from test_predict_by_head import named, of_hub

import qkv
from qkv.nn.models.heads.language_model import LanguageModel
from qkv.nn.models.heads.sequence import SequenceClassifier
from qkv.runs.inference.look.figure import look
from qkv.runs.inference.run import Run, load

TEXT = "Ada lives in Oslo, and Ben's tuba in Norway."
PROCESSOR = {
    "image_processor_type": "ViTImageProcessor",
    "size": {"height": 16, "width": 16},
    "image_mean": [0.5] * 3,
    "image_std": [0.5] * 3,
    "do_resize": True,
    "do_rescale": True,
    "do_normalize": True,
    "resample": 2,
    "rescale_factor": 1 / 255,
}
ANIMAL = "The animal didn't cross the street because it was too tired"


def lm(**sizes: object) -> Run:
    return run_untrained.of("gpt2", run_untrained.words(), "continue", **sizes)  # type: ignore[arg-type]


def recurrent() -> Run:
    tokenizer = run_untrained.words()
    spec = qkv.preset("rnnsearch", vocab_size=tokenizer.vocab_size, d_e=8, d_h=8, d_s=8, d_a=8)
    return Run(qkv.build(spec, seed=0).eval(), tokenizer, task="translate")


def close(weights: torch.Tensor, theirs: torch.Tensor) -> None:
    torch.testing.assert_close(weights.double(), theirs.double(), atol=1e-6, rtol=0)


def test_weights_of_a_bert_match_transformers(tmp_path: Path) -> None:
    theirs, tokenizer, _ = of_hub(tmp_path, "BertForMaskedLM")
    theirs.double().set_attn_implementation("eager")
    figure = load(tmp_path, device="cpu", dtype="float64").look(TEXT)
    inputs = tokenizer(TEXT, return_tensors="pt")
    with torch.no_grad():
        attentions = theirs(**inputs, output_attentions=True).attentions
    assert figure.views[0].axes["text"].labels == tuple(tokenizer.convert_ids_to_tokens(inputs["input_ids"][0]))
    for layer in range(2):
        for head in range(2):
            close(figure.weights(layer, head), attentions[layer][0, head])
    exact = json.loads(json.dumps(figure.to_json()))["views"][0]["attention"][0]["layers"][1]["weights"][0]
    close(torch.tensor(exact), attentions[1][0, 0])


@pytest.mark.parametrize("name", ["t5", "bart", "marian"])
def test_weights_of_an_encoder_decoder_match_transformers(name: str, tmp_path: Path) -> None:
    theirs, tokenizer = save_hub_pair(name, tmp_path)
    theirs.set_attn_implementation("eager")
    run = load(tmp_path, device="cpu")
    figure = run.look("a b c", target="c b a")
    source = tokenizer("a b c", return_tensors="pt")
    read = tokenizer(text_target="c b a", return_tensors="pt").input_ids
    start = torch.tensor([[theirs.config.decoder_start_token_id]])
    with torch.no_grad():
        out = theirs(**source, decoder_input_ids=torch.cat([start, read[:, :-1]], 1), output_attentions=True)
    for group, layers in zip(
        ("encoder", "decoder", "cross"),
        (out.encoder_attentions, out.decoder_attentions, out.cross_attentions),
        strict=True,
    ):
        for head in range(4):
            close(figure.weights(0, head, group), layers[0][0, head])
    assert figure.views[0].facts == (("target", "c b a"),)


def test_a_word_alone_in_a_sentence_of_the_paper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What "it" attends to, and what "street", of three pieces, does (Vaswani et al. 2017, figures 3 to 5)."""
    vocabulary = "[PAD] [UNK] [CLS] [SEP] [MASK] the animal didn ' t cross str ##e ##et because it was too tired"
    monkeypatch.setattr(test_predict_by_head, "WORDS", vocabulary)
    *_, run = of_hub(tmp_path, "BertModel", vocab_size=len(vocabulary.split()))
    for word, spelt in (("it", ["it"]), ("street", ["str", "##e", "##et"]), ("Animal", ["animal"])):
        (view,) = run.look(ANIMAL, word=word).views
        labels = view.axes["text"].labels
        assert [labels[i] for i in view.focus["text"]] == spelt
        weights = view.group().head(1, 0)[view.focus["text"]]
        torch.testing.assert_close(weights.sum(-1), torch.ones(len(spelt)))
    with pytest.raises(ValueError, match="no tokens on display spell the word 'dog'; choose a word of these: "):
        run.look(ANIMAL, word="dog")
    assert [group.name for group in view.groups] == ["encoder", "encoder rollout"]


def test_a_language_model_shows_next_tokens_and_continues() -> None:
    run = lm()
    figure = run.look("abc", generate=2)
    (axis,) = figure.views[0].axes.values()
    assert axis.total == 6 and len(axis.writes) == 6 and axis.labels[:4] == ("<s>", "a", "b", "c")
    logits = run.model(torch.tensor([run.encode("abc")]))
    assert axis.writes[3] == run.words.tokens([int(logits[0, -1].argmax())])[0]
    computed = figure.views[0].groups[0].layers[0].computed
    assert computed is not None and torch.equal(computed[0], torch.ones(6, 6).tril().bool())


def test_a_translator_shows_what_it_generates(trained: Path) -> None:
    run = load(trained, device="cpu")
    figure = run.look("a b c")
    view = figure.views[0]
    assert view.facts[0] == ("output", run.generate("a b c", num_beams=run.generation.num_beams))
    assert view.facts[1][0] == "ended by"
    assert "Beam search" in [panel["title"] for panel in view.panels] or run.generation.num_beams == 1
    assert [g.name for g in view.groups] == ["encoder", "decoder", "cross"]
    assert (view.groups[2].query, view.groups[2].key) == ("output", "source")


def test_a_recurrent_translator_shows_its_alignment() -> None:
    run = recurrent()
    view = run.look("abc", target="xy").views[0]
    (group,) = view.groups
    assert group.name == "cross" and view.axes["output"].labels == ("x", "y", "</s>")
    torch.testing.assert_close(group.head(0, 0).sum(-1), torch.ones(3))
    score = run.look("abc", target="xy").score(0, 0, 1, 2)
    assert score.weight == pytest.approx(float(group.head(0, 0)[1, 2])) and score.q == []


def test_a_picture_has_all_patches_as_keys(tmp_path: Path) -> None:
    run = run_untrained.vit()
    run.model.cpu().eval()
    folder = run.save(tmp_path / "vit", to="hub")
    (folder / "preprocessor_config.json").write_text(json.dumps(PROCESSOR))
    path = tmp_path / "one.png"
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (16, 16, 3), np.uint8)).save(path)
    loaded = load(folder, device="cpu")
    view = look(loaded, str(path)).views[0]
    axis = view.axes["picture"]
    assert axis.grid is not None and (axis.total, axis.grid.patches) == (5, 4) and axis.labels[0] == "class"
    assert axis.picture is not None and axis.picture[:4] == b"\x89PNG"
    assert view.facts[0][0] == "prediction"
    assert view.groups[0].layers[0].weights.shape == (2, 5, 5)


def test_a_classifier_shows_its_prediction(tmp_path: Path) -> None:
    *_, run = of_hub(tmp_path, "BertForSequenceClassification", **named(("no", "yes", "maybe")))
    view = run.look(TEXT).views[0]
    best = run.classify(TEXT).label
    assert view.facts[0][0] == "prediction" and best in view.facts[0][1]
    assert view.axes["text"].labels[0] == "[CLS]" and len(view.groups[0].layers) == 2


def test_experts_are_shown_by_token() -> None:
    run = run_untrained.of("mixtral-8x7b", run_untrained.words(), "continue", n_kv_heads=1, d_head=8, n_experts=3)
    view = run.look("abcd").views[0]
    panel, lens, heads = view.panels
    assert (lens["title"], heads["title"]) == ("Logit lens", "Scores of heads")
    assert panel["kind"] == "heat" and panel["columns"] == list(view.axes["text"].labels)
    experts = [set(text.split("+")) for text in panel["texts"][0]]
    assert all(len(pair) == 2 and pair <= {"0", "1", "2"} for pair in experts)
    assert all(0.5 - 1e-6 <= gate <= 1 for gate in panel["values"][0])


def test_long_texts_show_the_first_tokens_and_compute_no_others() -> None:
    run = lm(max_positions=256)
    text = "ab cd " * 30
    view = run.look(text).views[0]
    assert view.axes["text"].shown == tuple(range(64)) and "the first 64 are drawn" in view.notes[0]
    assert view.groups[0].layers[0].weights.shape == (2, 64, 64)
    later = run.look(text, tokens=(100, 110)).views[0]
    whole = run.look(text, tokens=(0, 200)).views[0]
    torch.testing.assert_close(
        later.groups[0].layers[0].weights, whole.groups[0].layers[0].weights[:, 100:110, 100:110]
    )


def test_layers_and_heads_that_are_chosen() -> None:
    run = lm(n_layers=3)
    figure = run.look("abc", layers=[0, 2], heads=[1])
    layers = figure.views[0].groups[0].layers
    assert [(layer.index, layer.heads) for layer in layers] == [(0, (1,)), (2, (1,))]
    with pytest.raises(ValueError, match=r"shows the layers 0, 2, not 1"):
        figure.weights(1, 1)
    with pytest.raises(ValueError, match=r"there is no layer 7; the layers of this model are 0 to 2"):
        run.look("abc", layers=[7])
    with pytest.raises(ValueError, match=r"there is no head 2; the heads of this model are 0 to 1"):
        run.look("abc", heads=[2])


def test_a_model_without_attention_says_what_is_shown() -> None:
    run = run_untrained.of("gpt2", run_untrained.words(), "continue")
    spec = run.model.spec.replace(
        {"decoder.blocks.*.attention": {"kind": "linear-attention", "n_heads": 2, "pattern": "causal"}}
    )
    other = Run(qkv.build(spec, seed=0).eval(), run.tokenizer, task="continue")
    figure = other.look("abc")
    assert not figure.views[0].groups and "(linear-attention) computes attention weights" in figure.views[0].notes[0]
    with pytest.raises(ValueError, match="there is no attention in this figure"):
        figure.weights(0, 0)
    assert "Attention" not in figure.views[0].facts and figure.html()


def test_what_cannot_be_looked_at(tmp_path: Path) -> None:
    run = lm()
    with pytest.raises(ValueError, match="the text is empty"):
        run.look("  ")
    with pytest.raises(ValueError, match="there is nothing to look at"):
        run.look([])
    path = tmp_path / "one.png"
    Image.new("L", (4, 4)).save(path)
    with pytest.raises(ValueError, match=r"one\.png is a file, and this run is a language model, which reads texts"):
        run.look(str(path))
    with pytest.raises(ValueError, match="a target is for encoder–decoders"):
        run.look("abc", target="x")
    with pytest.raises(ValueError, match="tokens 90:99 hold none of the 4 tokens"):
        run.look("abc", tokens=(90, 99))
    with pytest.raises(ValueError, match="generate is for language models"):
        run_untrained.bert(LanguageModel()).look("abc", generate=3)
    with pytest.raises(ValueError, match="a language model without a tokenizer, which reads neither texts nor"):
        run_untrained.of("gpt2", None, "continue").look("abc")


def test_a_classifier_without_classes_is_still_read() -> None:
    run = run_untrained.bert(SequenceClassifier(labels=None))
    view = run.look("abc").views[0]
    assert view.facts == () and view.groups[0].layers[0].weights.shape[1] == view.axes["text"].total


MEMORY = """
import resource, sys
import run_untrained
sizes = {"d_model": 768, "n_layers": 2, "n_heads": 12, "d_ff": 256, "max_positions": 4096}
run = run_untrained.of("gpt2", run_untrained.words(), "continue", **sizes)
figure = run.look("abcdefg " * 511 + "abcdefg")
(axis,) = figure.views[0].axes.values()
assert axis.total == 4096 and len(figure.views[0].groups[0].layers) == 2
figure.html()
used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
print(used)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="peak memory is asked of Unix")
def test_4096_tokens_take_less_than_two_gigabytes() -> None:
    folders = os.pathsep.join([str(Path(qkv.__file__).parents[1]), str(Path(run_untrained.__file__).parent)])
    environment = {**os.environ, "PYTHONPATH": folders, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", MEMORY], capture_output=True, text=True, env=environment, timeout=300
    )
    assert done.returncode == 0, done.stderr[-1000:]
    assert int(done.stdout.split()[-1]) < 2_000_000_000


def test_a_page_is_titled_by_the_name_of_the_run_and_not_by_the_path_to_it(trained_lm: Path) -> None:
    assert look(load(trained_lm, "cpu"), "the cat").title == trained_lm.name
