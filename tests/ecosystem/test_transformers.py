"""Any spec behind transformers' Auto classes: saved, loaded, generating, trained by its Trainer and PEFT, in pipelines."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from auto_models import DECODERS, IDS, SIZES, bert, config, llama, words
from torch import Tensor, nn

import qkv

pytestmark = pytest.mark.slow  # importing transformers' models takes seconds


@pytest.mark.parametrize("accumulate", [1, 2])
def test_the_trainer_of_transformers_trains_as_a_loop_of_torch(accumulate: int, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

    rows = [{"input_ids": row, "labels": row} for row in torch.randint(3, 48, (16, 7), generator=torch.manual_seed(0))]
    model = AutoModelForCausalLM.from_config(config(llama()))
    arguments = TrainingArguments(
        tmp_path,
        per_device_train_batch_size=4 // accumulate,
        gradient_accumulation_steps=accumulate,
        max_steps=4,
        learning_rate=1e-2,
        lr_scheduler_type="constant",
        logging_steps=1,
        report_to=[],
        save_strategy="no",
        use_cpu=True,
        dataloader_drop_last=True,
    )
    trainer = Trainer(model, arguments, train_dataset=rows)
    trainer._get_train_sampler = lambda *args: None  # type: ignore[method-assign]  # in their order
    trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    alone = qkv.build(llama(), seed=0).train()
    optimizer = torch.optim.AdamW(alone.parameters(), 1e-2, weight_decay=0.0)
    expected = []
    for i in range(4):
        ids = torch.stack([row["input_ids"] for row in rows[4 * i : 4 * i + 4]])
        loss = nn.functional.cross_entropy(alone(ids)[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(alone.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        expected.append(float(loss))
    assert losses == pytest.approx(expected, abs=2e-4)  # the log is rounded


def test_peft_trains_the_facade_with_its_task_type(tmp_path: Path) -> None:
    import peft
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_config(config(llama()))
    lora = peft.LoraConfig(task_type="CAUSAL_LM", target_modules=["q", "v"], r=2, init_lora_weights=False)
    adapted: Any = peft.get_peft_model(model, lora)
    adapted(IDS, labels=IDS).loss.backward()
    assert all((p.grad is not None) == ("lora" in name) for name, p in adapted.named_parameters())
    adapted.eval()
    expected = adapted.generate(input_ids=IDS, max_new_tokens=5, do_sample=False)
    adapted.save_pretrained(tmp_path)
    again = peft.PeftModel.from_pretrained(AutoModelForCausalLM.from_config(config(llama())), tmp_path).eval()
    assert torch.equal(again.generate(input_ids=IDS, max_new_tokens=5, do_sample=False), expected)
    merged = adapted.merge_and_unload()
    assert torch.equal(merged.generate(input_ids=IDS, max_new_tokens=5, do_sample=False), expected)


def test_a_model_goes_to_the_hub_and_comes_back_by_its_name(tmp_path: Path) -> None:
    """`push_to_hub` of the class and of its tokenizer, to a server on this machine; qkv reads the same repository."""
    from hub_here import hub_here
    from transformers import AutoModelForCausalLM

    model: Any = AutoModelForCausalLM.from_config(config(DECODERS["ALiBi Llama"](), seed=3)).eval()
    with hub_here(tmp_path) as hub:
        model.push_to_hub("me/alibi")
        words().push_to_hub("me/alibi")
        assert {"config.json", "model.safetensors", "tokenizer.json"} <= hub.repositories["me/alibi"].files().keys()
        run = qkv.load("me/alibi", "cpu")
    assert torch.equal(run.model(IDS), model(IDS).logits) and run.encode("w1 w2") == words()("w1 w2").input_ids


def test_directories_of_qkv_and_of_the_auto_classes_are_the_same(tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM

    import qkv.transformers  # registers the model type

    spec = DECODERS["ALiBi Llama"]()
    alone = qkv.build(spec, seed=3).eval()
    alone.save(tmp_path / "ours", "qkv")
    theirs: Any = AutoModelForCausalLM.from_pretrained(tmp_path / "ours").eval()
    assert torch.equal(theirs(IDS).logits, alone(IDS))
    theirs.save_pretrained(tmp_path / "theirs")
    assert torch.equal(qkv.load(tmp_path / "theirs").model(IDS), alone(IDS))
    words().save_pretrained(tmp_path / "theirs")
    run = qkv.load(tmp_path / "theirs")
    ids = theirs.generate(torch.tensor([[6, 7]]), max_new_tokens=5, do_sample=False)[0, 2:]
    assert run.generate("w1 w2", max_new_tokens=5).split() == words().decode(ids).split()
    spec = qkv.preset("transformer-base", **SIZES)
    qkv.build(spec, seed=1).save(tmp_path / "pairs", "qkv")
    pairs: Any = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "pairs").eval()
    assert torch.equal(pairs(input_ids=IDS, decoder_input_ids=IDS).logits, qkv.build(spec, seed=1).eval()(IDS, IDS))


@pytest.mark.parametrize("name", DECODERS)
@pytest.mark.filterwarnings("ignore")
def test_what_convert_writes_for_the_hub_is_read_by_auto_classes_alone(name: str, tmp_path: Path) -> None:
    import transformers
    from made_tokenizers import made

    import qkv.transformers  # registers the model type

    tokenizer = made("word")
    spec = DECODERS[name]().with_vocabulary(tokenizer.vocab_size)
    run = qkv.Run(qkv.build(spec, seed=4).eval(), tokenizer, task="continue")
    run.save(tmp_path / "hub", to="hub")
    text = tokenizer.decode(list(range(8, 12)))
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "hub")
    model: Any = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "hub").eval()
    ids = run.encode(text)  # begins with <s>
    assert theirs(text)["input_ids"] == ids == tokenizer.encode(text, bos=True)
    told = model.generate(torch.tensor([ids]), max_new_tokens=6)[0, len(ids) :]
    assert theirs.decode(told, skip_special_tokens=True).split() == run.generate(text, max_new_tokens=6).split()
    assert qkv.load(tmp_path / "hub").generate(text, max_new_tokens=6) == run.generate(text, max_new_tokens=6)


@pytest.mark.parametrize("template", [None, "[BOS] $A", "[BOS] $A [EOS]"])
@pytest.mark.parametrize("kind", ["reads", "continues"])
@pytest.mark.filterwarnings("ignore:.*is saved under the model type")
def test_texts_of_what_transformers_wrote_have_the_tokens_of_its_tokenizer(
    kind: str, template: str | None, tmp_path: Path
) -> None:
    import transformers
    from tokenizers.processors import TemplateProcessing

    from qkv.transformers import QkvConfig

    spec = bert(decoder=None, head=None) if kind == "reads" else llama(decoder__position=qkv.ALiBi())
    auto = transformers.AutoModel if kind == "reads" else transformers.AutoModelForCausalLM
    auto.from_config(QkvConfig(spec=spec)).eval().save_pretrained(tmp_path)
    tokenizer = words()
    if template:
        special = [(token, tokenizer.convert_tokens_to_ids(token)) for token in ("[BOS]", "[EOS]")]
        tokenizer.backend_tokenizer.post_processor = TemplateProcessing(template, special_tokens=special)
    tokenizer.save_pretrained(tmp_path)
    run = qkv.load(tmp_path, "cpu")
    assert run.encode("w1 w2") == tokenizer("w1 w2")["input_ids"]
    if kind == "reads":
        pipe = transformers.pipeline("feature-extraction", str(tmp_path), tokenizer=tokenizer)
        states = torch.tensor(pipe("w1 w2")[0])
        torch.testing.assert_close(run.embed(["w1 w2"], pooling="none")[0], states, rtol=1e-5, atol=1e-5)
    again = qkv.load(run.save(tmp_path / "again"), "cpu")
    assert again.encode("w1 w2") == run.encode("w1 w2")


def test_classes_with_names_are_read_by_auto_classes_alone(tmp_path: Path) -> None:
    import transformers
    from made_tokenizers import made

    import qkv.transformers  # registers the model type

    tokenizer = made("word")
    spec = bert(decoder=None).with_vocabulary(tokenizer.vocab_size)
    spec = spec.replace({"encoder.position": qkv.ALiBi(), "head": qkv.SequenceClassifier(labels=3)})
    run = qkv.Run(qkv.build(spec, seed=4).eval(), tokenizer, task="read")
    with pytest.warns(UserWarning, match="no Hub family matches"):
        run.save(tmp_path / "hub", to="hub")
    pipe = transformers.pipeline("text-classification", str(tmp_path / "hub"), top_k=None)
    text = tokenizer.decode(list(range(8, 12)))
    found = {each["label"]: each["score"] for each in pipe([text])[0]}
    assert found == pytest.approx(dict(run.classify(text).probabilities), abs=1e-5)


def test_pipelines_take_the_models(tmp_path: Path) -> None:
    import transformers

    tokenizer = words()
    decoder = transformers.AutoModelForCausalLM.from_config(config(llama()))
    told = transformers.pipeline("text-generation", decoder, tokenizer=tokenizer)(
        "w1 w2", max_new_tokens=4, do_sample=False, return_full_text=False
    )
    ids = qkv.build(llama(), seed=0).generate(torch.tensor([[6, 7]]), max_new_tokens=4, eos_id=2)[0, 2:]
    assert told[0]["generated_text"].split() == tokenizer.decode(ids, skip_special_tokens=True).split()
    masked = transformers.AutoModelForMaskedLM.from_config(config(bert()))
    assert len(transformers.pipeline("fill-mask", masked, tokenizer=tokenizer)("w1 [MASK] w2", top_k=3)) == 3
    classifier = transformers.AutoModelForSequenceClassification.from_config(config(bert(), num_labels=3))
    assert transformers.pipeline("text-classification", classifier, tokenizer=tokenizer)("w1 w2")[0]["score"] > 0
    tagger = transformers.AutoModelForTokenClassification.from_config(config(bert(), num_labels=3))
    assert len(transformers.pipeline("token-classification", tagger, tokenizer=tokenizer)("w1 w2")) == 2
    features = transformers.pipeline(
        "feature-extraction", transformers.AutoModel.from_config(config(bert())), tokenizer=tokenizer
    )
    assert torch.tensor(features("w1 w2")).shape == (1, 2, 32)


def trl_settings(path: Path) -> dict[str, Any]:
    settings = {"max_steps": 3, "per_device_train_batch_size": 4, "learning_rate": 1e-2, "logging_steps": 1}
    settings |= {
        "lr_scheduler_type": "constant",
        "report_to": [],
        "save_strategy": "no",
        "use_cpu": True,
        "bf16": False,
    }
    return {"output_dir": str(path), **settings}


def losses_of(trainer: Any) -> list[float]:
    trainer._get_train_sampler = lambda *args: None  # in the data's order
    trainer.train()
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


def by_hand(loss_of: Callable[[Any, int], Tensor]) -> list[float]:
    """The losses of three steps of AdamW on qkv's model."""
    model, losses = qkv.build(llama(), seed=0).train(), []
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2, weight_decay=0.0)
    for step in range(3):
        loss = loss_of(model, step)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss.detach()))
    return losses


def test_trl_tunes_on_texts_as_a_loop_of_torch(tmp_path: Path) -> None:
    trl = pytest.importorskip("trl")
    from datasets import Dataset
    from transformers import AutoModelForCausalLM

    tokenizer, texts = words(), [f"w{i} w{i + 1} w{i + 2} w{i + 3}" for i in range(12)]
    data = Dataset.from_list([{"text": text} for text in texts])
    for packed in (False, True):
        options = {"packing": True, "max_length": 16} if packed else {}
        settings = trl.SFTConfig(**trl_settings(tmp_path), **options)
        model = AutoModelForCausalLM.from_config(config(llama()))
        losses = losses_of(trl.SFTTrainer(model, args=settings, train_dataset=data, processing_class=tokenizer))
        assert len(losses) == 3 and all(loss > 0 for loss in losses)
        if not packed:

            def loss_of(model: Any, step: int) -> Tensor:
                ids = torch.tensor([[*tokenizer(text)["input_ids"], 2] for text in texts[4 * step : 4 * step + 4]])
                return nn.functional.cross_entropy(model(ids)[:, :-1].flatten(0, 1), ids[:, 1:].flatten())

            assert losses == pytest.approx(by_hand(loss_of), abs=2e-4)


def test_trl_prefers_as_its_paper_says(tmp_path: Path) -> None:
    """DPO (Rafailov et al. 2023): −log σ(β (Δ log p(chosen) − Δ log p(rejected)))."""
    trl = pytest.importorskip("trl")
    from datasets import Dataset
    from transformers import AutoModelForCausalLM

    rows = [(5 + i, 6 + i, 10 + i) for i in range(12)]
    data = Dataset.from_list(
        [{"prompt": f"w{p - 5}", "chosen": f" w{c - 5}", "rejected": f" w{r - 5}"} for p, c, r in rows]
    )
    models = [AutoModelForCausalLM.from_config(config(llama())) for _ in range(2)]
    settings = trl.DPOConfig(**trl_settings(tmp_path), beta=0.5)
    trainer = trl.DPOTrainer(
        models[0], ref_model=models[1], args=settings, train_dataset=data, processing_class=words()
    )
    losses, reference = losses_of(trainer), qkv.build(llama(), seed=0).eval()

    def loss_of(model: Any, step: int) -> Tensor:
        part = rows[4 * step : 4 * step + 4]

        def gains(index: int) -> Tensor:
            ids = torch.tensor([[row[0], row[index], 2] for row in part])
            now, then = (
                each(ids).log_softmax(-1)[:, :-1].gather(2, ids[:, 1:, None]).sum((1, 2)) for each in (model, reference)
            )
            return now - then.detach()

        return -nn.functional.logsigmoid(0.5 * (gains(1) - gains(2))).mean()

    assert losses == pytest.approx(by_hand(loss_of), abs=2e-4)


def test_trl_rewards_what_the_model_generates(tmp_path: Path) -> None:
    trl = pytest.importorskip("trl")
    from datasets import Dataset
    from transformers import AutoModelForCausalLM

    seen: list[str] = []

    def reward(completions: list[str], **about: Any) -> list[float]:
        seen.extend(completions)
        return [float(text.count("w1")) for text in completions]

    model = AutoModelForCausalLM.from_config(config(llama()))
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    data = Dataset.from_list([{"prompt": f"w{i} w{i + 1}"} for i in range(12)])
    settings = trl.GRPOConfig(**trl_settings(tmp_path), num_generations=4, max_completion_length=6)
    trainer = trl.GRPOTrainer(model, reward_funcs=reward, args=settings, train_dataset=data, processing_class=words())
    assert losses_of(trainer) == pytest.approx([0, 0, 0], abs=1e-5)  # with one update for each batch, its value is 0
    assert len(seen) == 12 and any(not torch.equal(p, before[name]) for name, p in model.named_parameters())
