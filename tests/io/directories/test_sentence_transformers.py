"""Directories of sentence-transformers: pooling, normalization, lengths and prompts are theirs, or refused by name."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors

import qkv
from qkv.io.directories import sentence_transformers as sentences
from qkv.io.directories.build import build
from qkv.io.families import preset
from qkv.nn.models.heads.sequence import SentenceVector
from qkv.runs.export.folder import write_settings
from qkv.runs.inference.run import Run, load

WORDS = ["[PAD]", "[CLS]", "[SEP]", "[UNK]", "a", "b", "c", "d", "q:"]
TEXTS = ["a b c", "d", "c c a b d a"]
SPECIAL = {"pad_token": "[PAD]", "cls_token": "[CLS]", "sep_token": "[SEP]", "unk_token": "[UNK]"}
STEPS = ("Transformer", "Pooling", "Normalize")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small BERT with a tokenizer, as sentence-transformers lays it out; no pooling yet."""
    made = tmp_path_factory.mktemp("made")
    sizes = {"d_model": 16, "n_layers": 2, "n_heads": 2, "d_ff": 24, "vocab_size": len(WORDS), "max_positions": 16}
    model = build(preset("bert-base", **sizes, head=False, labels=0), seed=4).eval()
    Run(model, None, task="read").save(made, to="hub")
    raw = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, "[UNK]"))
    raw.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    raw.add_special_tokens(WORDS[:4])
    raw.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B [SEP]", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
    )
    raw.save(str(made / "tokenizer.json"))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 16, **SPECIAL}
    (made / "tokenizer_config.json").write_text(json.dumps(settings))
    config = json.loads((made / "config.json").read_text())
    del config["qkv"]  # as it comes from elsewhere
    (made / "config.json").write_text(json.dumps(config))
    return made


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    """A copy of it, to be changed."""
    return Path(shutil.copytree(made, tmp_path, dirs_exist_ok=True))


def laid_out(folder: Path, *, pooling: Any = "mean_tokens", steps: tuple[str, ...] = STEPS, **settings: Any) -> Path:
    names = ("", "1_Pooling", *(f"{i}_{step}" for i, step in enumerate(steps[2:], 2)))
    listed = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{step}"}
        for i, (step, path) in enumerate(zip(steps, names, strict=True))
    ]
    (folder / "modules.json").write_text(json.dumps(listed))
    (folder / "1_Pooling").mkdir(exist_ok=True)
    modes = ("cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens", "lasttoken")
    given = {f"pooling_mode_{mode}": mode == pooling for mode in modes} if isinstance(pooling, str) else pooling
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"word_embedding_dimension": 16, **given}))
    for name, said in settings.items():
        (folder / f"{name}.json").write_text(json.dumps(said))
    return folder


@torch.no_grad()
def theirs(folder: Path, texts: list[str], pooling: str, longest: int | None = None) -> torch.Tensor:
    """What sentence-transformers computes, by transformers' own model and tokenizer: padded, masked, pooled, normalized."""
    transformers = pytest.importorskip("transformers")
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_file=str(folder / "tokenizer.json"), pad_token="[PAD]", cls_token="[CLS]", sep_token="[SEP]"
    )
    batch = tokenizer(texts, padding=True, truncation=longest is not None, max_length=longest, return_tensors="pt")
    batch.pop("token_type_ids", None)
    states = transformers.BertModel.from_pretrained(folder)(**batch).last_hidden_state
    mask = batch["attention_mask"][..., None]
    pooled = {
        "mean_tokens": (states * mask).sum(1) / mask.sum(1),
        "cls_token": states[:, 0],
        "max_tokens": states.masked_fill(mask == 0, -1e9).amax(1),
        "lasttoken": states[torch.arange(len(texts)), mask[..., 0].sum(1) - 1],
    }
    return torch.nn.functional.normalize(pooled[pooling], dim=-1)


@pytest.mark.parametrize("pooling", ["mean_tokens", "cls_token", "max_tokens", "lasttoken"])
def test_vectors_are_the_librarys(folder: Path, pooling: str) -> None:
    run = load(laid_out(folder, pooling=pooling), "cpu")
    torch.testing.assert_close(torch.stack(run.embed(TEXTS)), theirs(folder, TEXTS, pooling), rtol=1e-4, atol=1e-5)
    assert not torch.allclose(
        run.embed(TEXTS, pooling="mean")[2], run.embed(TEXTS)[2], atol=1e-3
    )  # asked by name: as it is


def test_without_a_normalization_there_is_none(folder: Path) -> None:
    run = load(laid_out(folder, pooling={"pooling_mode": "cls"}, steps=STEPS[:2]), "cpu")
    assert torch.equal(run.embed(TEXTS)[0], run.embed(TEXTS, pooling="cls")[0])


def test_long_texts_are_cut_with_a_word(folder: Path) -> None:
    run = load(laid_out(folder, sentence_bert_config={"max_seq_length": 5, "do_lower_case": True}), "cpu")
    with pytest.warns(UserWarning, match=r"1 of 3 texts are longer than max_seq_length \(5\) and cut there"):
        made = run.embed(["A B c", "d", "c c a b d a"])
    torch.testing.assert_close(torch.stack(made), theirs(folder, TEXTS, "mean_tokens", 5), rtol=1e-4, atol=1e-5)


def test_the_tokenizer_beside_an_exported_model_cuts_where_the_run_does(folder: Path, tmp_path: Path) -> None:
    run = load(laid_out(folder, sentence_bert_config={"max_seq_length": 5}), "cpu")
    (tmp_path / "exported").mkdir()
    write_settings(run, tmp_path / "exported")
    exported = Tokenizer.from_file(str(tmp_path / "exported" / "tokenizer.json"))
    whole = [run.encode(text) for text in TEXTS]
    assert [one.ids for one in exported.encode_batch(TEXTS)] == [
        ids if len(ids) <= 5 else [*ids[:4], ids[-1]] for ids in whole
    ]
    assert max(map(len, whole)) > 5


def test_a_prompt_stands_before_every_text(folder: Path) -> None:
    prompts = {"prompts": {"query": "q: ", "passage": ""}, "default_prompt_name": "query"}
    run = load(laid_out(folder, config_sentence_transformers=prompts), "cpu")
    wanted = theirs(folder, [f"q: {text}" for text in TEXTS], "mean_tokens")
    torch.testing.assert_close(torch.stack(run.embed(TEXTS)), wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("to", ["hub", "qkv"])
def test_what_is_saved_makes_the_same_vectors(folder: Path, tmp_path: Path, to: Any) -> None:
    run = load(laid_out(folder, pooling="cls_token", sentence_bert_config={"max_seq_length": 12}), "cpu")
    again = load(run.save(tmp_path / "again", to=to), "cpu")
    assert sentences.read(tmp_path / "again") == sentences.read(folder) is not None
    torch.testing.assert_close(torch.stack(again.embed(TEXTS)), torch.stack(run.embed(TEXTS)))


@pytest.mark.parametrize(
    "layout, said",
    [
        ({"steps": ("Transformer", "Pooling", "CNN")}, "lists the module 'CNN', which is not supported"),
        ({"steps": ("Transformer", "CNN", "Pooling")}, "lists the modules 'Transformer → CNN → Pooling'"),
        ({"steps": ("Transformer", "Pooling", "Dense")}, "2_Dense/config.json: in_features is missing"),
        (
            {"pooling": {"pooling_mode": "median"}},
            "pools by 'median', which is not supported; choose from cls, max, mean",
        ),
        ({"pooling": {"pooling_mode_median": True}}, "pools by 'median', which is not supported; choose from cls, max"),
        ({"pooling": {"pooling_mode": 3}}, "pooling_mode must be a name or a list of names, not 3"),
        ({"sentence_bert_config": {"max_seq_length": "long"}}, "max_seq_length must be an integer"),
        ({"config_sentence_transformers": {"default_prompt_name": "x"}}, "prompts has no such text"),
        ({"modules": {"a": 1}}, "must be a list"),
        (
            {"modules": [{"type": "Transformer", "path": ""}, {"type": "Pooling", "path": "../x"}]},
            "names the folder '../x'",
        ),
    ],
)
def test_what_is_not_known_is_refused_where_vectors_are_asked_for(
    folder: Path, layout: dict[str, Any], said: str
) -> None:
    run = load(laid_out(folder, **layout), "cpu")
    with pytest.raises(ValueError) as error:
        run.embed(TEXTS)
    assert said in str(error.value)
    assert len(run.embed(TEXTS, pooling="none")) == 3  # the advice works


# -- the library itself --------------------------------------------------------------------------------------------------


def assert_parity(folder: Path, **options: Any) -> None:
    """`run.embed` and the library give the same vectors within 1e-5 (relative L²)."""
    library = pytest.importorskip("sentence_transformers").SentenceTransformer(str(folder), device="cpu")
    prompt, normalize = options.get("prompt"), bool(options.get("normalize"))
    expected = torch.from_numpy(library.encode(TEXTS, prompt_name=prompt, normalize_embeddings=normalize))
    vectors = load(folder, "cpu").embed_array(TEXTS, **options)
    assert vectors.shape == expected.shape and vectors.dtype == "float32"
    assert (torch.from_numpy(vectors) - expected).norm() <= 1e-5 * expected.norm()


@pytest.mark.parametrize(
    "pooling",
    [*sentences.POOLINGS, ["mean", "cls"], ["lasttoken", "weightedmean", "max"]],
    ids=lambda pooling: "+".join(pooling) if isinstance(pooling, list) else pooling,
)
def test_every_pooling_matches_the_library(folder: Path, pooling: Any) -> None:
    assert_parity(laid_out(folder, pooling={"pooling_mode": pooling}, steps=STEPS[:2]))


@pytest.mark.parametrize("include", [True, False])
@pytest.mark.parametrize("pooling", ["mean", "cls", "weightedmean", "max"])
def test_prompts_by_name_are_pooled_or_left_out(folder: Path, pooling: str, include: bool) -> None:
    prompts = {"prompts": {"query": "q: a ", "passage": ""}, "default_prompt_name": "query"}
    settings = {"pooling_mode": pooling, "include_prompt": include}
    laid_out(folder, pooling=settings, config_sentence_transformers=prompts)
    assert_parity(folder)
    assert_parity(folder, prompt="passage")
    with pytest.raises(ValueError, match=r"has no prompt 'passages'; .*passage"):
        load(folder, "cpu").embed(TEXTS, prompt="passages")


@pytest.mark.parametrize("activation", ["Tanh", "Identity", "GELU"])
@pytest.mark.parametrize("residual", [False, True])
def test_dense_layers_and_norms_match_the_library(
    folder: Path, tmp_path: Path, activation: str, residual: bool
) -> None:
    modules = pytest.importorskip("sentence_transformers.sentence_transformer.modules")
    library = pytest.importorskip("sentence_transformers")
    torch.manual_seed(0)
    function = getattr(torch.nn, activation)()
    layers = [
        modules.Transformer(str(laid_out(folder)), processor_kwargs=SPECIAL),
        modules.Pooling(16, ["cls", "mean"]),
        modules.Dense(32, 12, activation_function=function, bias=not residual, use_residual=residual),
        modules.LayerNorm(12),
        modules.Dense(12, 12, activation_function=function, use_residual=residual),
        modules.Dropout(),
        modules.Normalize(),
    ]
    library.SentenceTransformer(modules=layers, device="cpu").save(str(tmp_path / "theirs"))
    assert_parity(tmp_path / "theirs")
    run = load(tmp_path / "theirs", "cpu")
    run.save(tmp_path / "copy", to="hub")
    assert_parity(tmp_path / "copy")
    lengths = torch.stack(run.embed(TEXTS, normalize=False)).norm(dim=-1)
    assert (lengths - 1).abs().max() > 0.01  # without the last normalization


@pytest.mark.parametrize("name", ["cosine", "dot", "euclidean", "manhattan", None])
def test_similarities_are_the_librarys(folder: Path, name: str | None) -> None:
    settings = {"prompts": {"query": "q: "}, "default_prompt_name": "query", "similarity_fn_name": name}
    run = load(laid_out(folder, steps=STEPS[:2], config_sentence_transformers=settings), "cpu")
    library = pytest.importorskip("sentence_transformers").SentenceTransformer(str(folder), device="cpu")
    expected = library.similarity_pairwise(library.encode(TEXTS), library.encode(TEXTS[::-1]))
    torch.testing.assert_close(torch.tensor(run.similarity(TEXTS, TEXTS[::-1])), expected, rtol=1e-5, atol=2e-4)


def test_an_unknown_similarity_is_refused_and_another_is_told_before_tuning(folder: Path) -> None:
    laid_out(folder, config_sentence_transformers={"similarity_fn_name": "dot"})
    notes = sentences.of_a_tuned_model(folder, SentenceVector())
    assert any(
        "compares texts by dot, as it does (similarity_fn_name); training by the cosine" in note for note in notes
    )
    laid_out(folder, config_sentence_transformers={"similarity_fn_name": "cosin"})
    with pytest.raises(ValueError, match=r"similarity_fn_name is 'cosin'; did you mean 'cosine'"):
        load(folder, "cpu").similarity("a", "b")


def saved_by_the_library(folder: Path, target: Path, **settings: Any) -> Path:
    """The directory as the installed version of the library writes it, loaded with these settings."""
    library = pytest.importorskip("sentence_transformers").SentenceTransformer(
        str(laid_out(folder)), device="cpu", truncate_dim=settings.get("size")
    )
    library.tokenizer.truncation_side = settings.get("side", "right")
    if "longest" in settings:
        library.max_seq_length = settings["longest"]
    library.save(str(target))
    return target


@pytest.mark.filterwarnings("ignore:.*longer than max_seq_length")
@pytest.mark.parametrize(
    "settings",
    [{"longest": 5}, {"longest": 5, "side": "left"}, {"size": 6}, {"size": 6, "longest": 4}, {"size": 99}],
    ids=str,
)
def test_length_and_size_that_the_library_saves_are_kept(
    folder: Path, tmp_path: Path, settings: dict[str, Any]
) -> None:
    made = saved_by_the_library(folder, tmp_path / "theirs", **settings)
    assert_parity(made)
    run = load(made, "cpu")
    assert run.embed_array(TEXTS).shape[1] == min(settings.get("size", 16), 16)
    assert_parity(run.save(tmp_path / "hub", to="hub"))
    torch.testing.assert_close(
        load(run.save(tmp_path / "own", to="qkv"), "cpu").embed_array(TEXTS), run.embed_array(TEXTS)
    )
    (tmp_path / "tuned").mkdir()
    sentences.keep(made, tmp_path / "tuned")
    kept, own = sentences.read(tmp_path / "tuned"), sentences.read(made)
    assert kept is not None and own is not None and (kept.longest, kept.size) == (own.longest, own.size)
    said = " ".join(sentences.of_a_tuned_model(made, SentenceVector()))
    assert ("6 numbers" in said) == (settings.get("size") == 6)
    assert (f"{settings.get('longest')} tokens" in said) == ("longest" in settings)


def test_the_length_of_a_call_and_of_earlier_files_count(folder: Path) -> None:
    laid_out(folder, sentence_bert_config={"processing_kwargs": {"text": {"max_length": 4}}})
    with pytest.warns(UserWarning, match=r"max_seq_length \(4\)"):
        assert_parity(folder)
    (folder / "sentence_bert_config.json").unlink()
    laid_out(folder, sentence_roberta_config={"max_seq_length": 6, "do_lower_case": False})
    with pytest.warns(UserWarning, match=r"max_seq_length \(6\)"):
        assert_parity(folder)


@pytest.mark.parametrize(
    "reading, said",
    [
        ({"modality_config": {"message": {"method": "forward"}}}, "puts texts into a chat template"),
        ({"modality_config": {"text": {"method": "forward", "method_output_name": "logits"}}}, "logits"),
        ({"processing_kwargs": {"text": {"add_special_tokens": False}}}, "add_special_tokens=False"),
        ({"processing_kwargs": {"text": {"max_length": "long"}}}, "1 token or more, not 'long'"),
        ({"module_output_name": "all_layer_embeddings"}, "all_layer_embeddings"),
    ],
)
def test_another_reading_of_texts_is_refused(folder: Path, reading: dict[str, Any], said: str) -> None:
    run = load(laid_out(folder, sentence_bert_config=reading), "cpu")
    with pytest.raises(ValueError, match=said):
        run.embed(TEXTS)


def test_a_normalization_of_tokens_is_refused(folder: Path) -> None:
    laid_out(folder)
    (folder / "2_Normalize").mkdir()
    (folder / "2_Normalize" / "config.json").write_text('{"module_input_name": "token_embeddings"}')
    with pytest.raises(ValueError, match=r"module_input_name is 'token_embeddings'"):
        load(folder, "cpu").embed(TEXTS)


def test_a_tokenizer_saved_back_keeps_its_length(folder: Path, tmp_path: Path) -> None:
    config = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps({**config, "model_max_length": 7}))
    load(folder, "cpu").save(tmp_path / "again", to="hub")
    assert json.loads((tmp_path / "again/tokenizer_config.json").read_text())["model_max_length"] == 7


def test_pickled_dense_layers_need_permission_and_become_safetensors(folder: Path, tmp_path: Path) -> None:
    laid_out(folder, steps=("Transformer", "Pooling", "Dense"))
    (folder / "2_Dense").mkdir()
    (folder / "2_Dense" / "config.json").write_text(json.dumps({"in_features": 16, "out_features": 4}))
    torch.save(
        {"linear.weight": torch.randn(4, 16), "linear.bias": torch.zeros(4)}, folder / "2_Dense/pytorch_model.bin"
    )
    with pytest.raises(ValueError, match="allow_pickle=True reads only tensors"):
        load(folder, "cpu").embed(TEXTS)
    run = load(folder, "cpu", allow_pickle=True)
    run.save(tmp_path / "copy", to="hub")
    again = load(tmp_path / "copy", "cpu")
    torch.testing.assert_close(again.embed_array(TEXTS), run.embed_array(TEXTS))


def test_vectors_are_normalized_on_request(folder: Path) -> None:
    assert_parity(laid_out(folder, steps=STEPS[:2]), normalize=True)


@pytest.mark.parametrize("pool", ["mean", "first", "last", "max"])
def test_a_model_of_text_similarity_is_saved_for_the_library(folder: Path, tmp_path: Path, pool: Any) -> None:
    run = load(folder, "cpu")
    trained = Run(run.model, run.tokenizer, task="read")
    spec = trained.model.spec.replace(head=SentenceVector(pool=pool))
    model = build(spec, seed=4).eval()
    model.load_state_dict(trained.model.state_dict())
    trained = Run(model, run.tokenizer, task="read")
    trained.save(tmp_path / "hub", to="hub")
    assert_parity(tmp_path / "hub")
    again = load(tmp_path / "hub", "cpu")
    assert again.model.spec == spec
    torch.testing.assert_close(again.embed_array(TEXTS), trained.embed_array(TEXTS))
    assert trained.similarity(TEXTS[:1], TEXTS[1:2]) == pytest.approx(again.similarity(TEXTS[:1], TEXTS[1:2]))
    again.save(tmp_path / "twice", to="hub")
    assert_parity(tmp_path / "twice")


def test_special_tokens_within_a_text_are_told(folder: Path) -> None:
    run = load(laid_out(folder), "cpu")
    with pytest.warns(UserWarning, match=r"1 of 3 texts: '\[SEP\]' within a text is read as plain text"):
        run.embed(["a b", "a [SEP] b", "[ SEP ]"])


def tuned(folder: Path, out: Path, **changes: Any) -> Run:
    """A directory trained for two steps."""
    pairs = [
        (" ".join("abcd"[i // n % 4] for n in (1, 2, 3, 5)), " ".join("abcd"[i // n % 4] for n in (7, 2)))
        for i in range(60)
    ]
    rows = "first,second,score\n" + "".join(f"{a},{b},{i / 60:.3f}\n" for i, (a, b) in enumerate(pairs))
    (folder / "pairs.csv").write_text(rows)
    data = {
        "data.kind": "labelled",
        "data.path": str(folder / "pairs.csv"),
        "data.text": "first",
        "data.pair": "second",
    }
    short = {"data.score": "score", "training.max_steps": 2, "batching.context": 16, "task.longest": 12}
    changes = {"model": str(folder), **data, **short, **changes}
    return qkv.train("similarity", out, changes=changes)


@pytest.mark.slow
def test_a_tuned_directory_keeps_its_settings(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = {"prompts": {"query": "q: "}, "default_prompt_name": "query", "similarity_fn_name": "dot"}
    limits = {"max_seq_length": 6, "do_lower_case": False}
    laid_out(folder, sentence_bert_config=limits, config_sentence_transformers=settings)
    run = tuned(folder, tmp_path / "run")
    said = "".join(capsys.readouterr())
    assert "default prompt 'q: '" in said and "up to 6 tokens" in said
    with pytest.warns(UserWarning, match=r"longer than max_seq_length \(6\)"):
        vectors = run.embed_array([TEXTS[2]])
    assert abs((vectors**2).sum() - 1) < 1e-5
    saved = run.save(tmp_path / "saved", to="hub")
    for name in (
        "modules.json",
        "sentence_bert_config.json",
        "config_sentence_transformers.json",
        "1_Pooling/config.json",
    ):
        assert json.loads((saved / name).read_text()) == json.loads((folder / name).read_text()), name
    theirs = pytest.importorskip("sentence_transformers").SentenceTransformer(str(saved), device="cpu")
    assert theirs.similarity_fn_name == "dot"
    assert abs(theirs.encode([TEXTS[2]]) - vectors).max() < 1e-5
    again = run.save(tmp_path / "own", to="qkv")
    with pytest.warns(UserWarning, match="max_seq_length"):
        assert abs(load(again, "cpu").embed_array([TEXTS[2]]) - vectors).max() < 1e-6


def test_what_a_tuned_model_can_not_keep_is_said(folder: Path, tmp_path: Path) -> None:
    head = SentenceVector()
    steps = ("Transformer", "Pooling", "Dense", "Normalize")
    notes = sentences.of_a_tuned_model(laid_out(folder, steps=steps), head)
    assert notes == [
        "Its modules Dense are left out: training compares the pooled vectors.",
        "The trained model embeds up to 16 tokens of a text, as it does (max_seq_length).",
    ]
    sentences.keep(folder, tmp_path)
    kept = json.loads((tmp_path / "modules.json").read_text())
    assert [module["path"] for module in kept] == ["", "1_Pooling", "3_Normalize"]
    with pytest.raises(ValueError, match=r"pools by cls, and head.pool is mean; give head.pool=first"):
        sentences.of_a_tuned_model(laid_out(folder, pooling="cls_token"), head)
    assert len(sentences.of_a_tuned_model(folder, SentenceVector(pool="first"))) == 1
    with pytest.raises(ValueError, match=r"pools by mean-sqrt.*remove modules.json"):
        sentences.of_a_tuned_model(laid_out(folder, pooling="mean_sqrt_len_tokens"), head)
