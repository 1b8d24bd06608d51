"""The code of a model card: how a model is used in qkv and in transformers, and the Hub's name for what it does."""

from __future__ import annotations

from pathlib import Path

from ....io.directories.layout import PREPROCESSOR
from ....io.directories.locate import has_tokenizer, is_hub
from ..loaded import LoadedModel

PIPELINES = {
    "SequenceClassifier": "text-classification",
    "TokenClassifier": "token-classification",
    "Span": "question-answering",
    "ImageClassifier": "image-classification",
    "SentenceVector": "sentence-similarity",
    "Forecaster": "time-series-forecasting",
}
"""The Hub's names of what models with these heads do."""
OF_TASKS = {
    "sound": "audio-classification",
    "recognize": "automatic-speech-recognition",
    "recognize-ctc": "automatic-speech-recognition",
    "detect": "object-detection",
    "segment": "image-segmentation",
    "caption": "image-to-text",
    "see": "image-text-to-text",
    "choice": "multiple-choice",
    "video-classify": "video-classification",
    "retrieve": "zero-shot-image-classification",
    "image-classify": "image-classification",
    "forecast": "time-series-forecasting",
    "masked-patches": "image-feature-extraction",
    "upscale": "image-to-image",
    "restore": "image-to-image",
}
"""The same for tasks of recipes, which say more than the head."""
AUTO = {
    "ForCausalLM": "AutoModelForCausalLM",
    "LMHeadModel": "AutoModelForCausalLM",
    "ForSeq2SeqLM": "AutoModelForSeq2SeqLM",
    "ForMaskedLM": "AutoModelForMaskedLM",
    "ForSequenceClassification": "AutoModelForSequenceClassification",
    "ForTokenClassification": "AutoModelForTokenClassification",
    "ForQuestionAnswering": "AutoModelForQuestionAnswering",
    "ForImageClassification": "AutoModelForImageClassification",
}
"""The Auto classes of classes by their endings; other classes are imported by their own names."""
EXAMPLE = "The sun sets over the sea."


def pipeline_of(run: LoadedModel) -> str | None:
    """The Hub's name for what a model does; None if the Hub has none for it."""
    kind = getattr(run.trained_on, "kind", "")
    if kind in OF_TASKS:
        return OF_TASKS[kind]
    head = type(getattr(run.model.spec, "head", None)).__name__
    if head in PIPELINES:
        return PIPELINES[head]
    if run.tokenizer is None or head != "LanguageModel":
        return None if run.tokenizer is None else "feature-extraction"
    if run.model.is_encoder_decoder:
        return "translation" if run.recipe is not None and run.recipe.task is None else "text2text-generation"
    return "fill-mask" if getattr(run.model.spec, "decoder", None) is None else "text-generation"


def usage(run: LoadedModel, folder: Path, name: str, architecture: str) -> str:
    """Code that loads a directory by `name` and uses it, in qkv and in transformers."""
    ours = f"```python\nimport qkv\n\nrun = qkv.load({name!r})\n{_call(run)}\n```"
    command = f"```sh\npip install 'qkv[hub]'\n{_command(run, name)}\n```"
    return f"With [qkv](https://pypi.org/project/qkv):\n\n{command}\n\n{ours}" + _theirs(
        run, folder, name, architecture
    )


def _example(run: LoadedModel) -> str:
    """A text to try: one of the evaluation's if qkv generates the data, as other people's are not for a public card."""
    if not type(run.source).__module__.startswith("qkv.data.synthetic"):
        return EXAMPLE
    from ....io.directories.layout import EVALUATION, read_json

    found = read_json(run.path / EVALUATION) if run.path is not None and (run.path / EVALUATION).is_file() else {}
    sources = (str(one.get("source", "")) for one in found.get("samples") or ())
    return next((text for text in sources if text and "\n" not in text), EXAMPLE)


def _masked(run: LoadedModel) -> str:
    mask = "[MASK]" if run.words.mask_id is None else run.words.tokens([run.words.mask_id])[0]
    return f"The sun sets over the {mask}."


def _call(run: LoadedModel) -> str:
    """The line of Python that asks a run."""
    pipeline, text = pipeline_of(run), _example(run)
    if pipeline in ("text-generation", "text2text-generation", "translation"):
        return f"print(run.generate({text!r}))"
    if pipeline == "fill-mask":
        return f"print(run.fill({_masked(run)!r}))"
    if pipeline == "text-classification":
        return f"print(run.classify({text!r}))"
    if pipeline in ("sentence-similarity", "feature-extraction"):
        return f"print(run.embed({text!r}))"
    return f"print(run.predict({_file(pipeline)!r}))"


def _file(pipeline: str | None) -> str:
    kind = "" if pipeline is None else pipeline.partition("-")[0]
    return {"image": "picture.png", "audio": "sound.wav", "automatic": "sound.wav", "object": "picture.png"}.get(
        kind, "input.csv" if kind == "time" else EXAMPLE
    )


def _command(run: LoadedModel, name: str) -> str:
    """The command that asks a run."""
    pipeline, text = pipeline_of(run), _example(run)
    if pipeline in ("text-generation", "text2text-generation", "translation"):
        return f'qkv generate {name} "{text}"'
    if pipeline == "fill-mask":
        return f'qkv fill {name} "{_masked(run)}"'
    if pipeline in ("sentence-similarity", "feature-extraction"):
        return f'qkv embed {name} "{text}"'
    return f'qkv predict {name} "{text if pipeline == "text-classification" else _file(pipeline)}"'


def _theirs(run: LoadedModel, folder: Path, name: str, architecture: str) -> str:
    """The same with transformers: a class of a family, or of `qkv.transformers`."""
    auto = next((auto for ending, auto in AUTO.items() if architecture.endswith(ending)), None)
    if architecture.endswith("ForConditionalGeneration") and run.model.is_encoder_decoder and run.tokenizer is not None:
        auto = "AutoModelForSeq2SeqLM"
    family = is_hub(folder)
    model = auto or (architecture if family else "AutoModel")
    reads = "AutoTokenizer" if has_tokenizer(folder) and run.tokenizer is not None else None
    if auto == "AutoModelForImageClassification" and (folder / PREPROCESSOR).is_file():
        reads = "AutoImageProcessor"
    names = ", ".join(sorted(filter(None, (model, reads))))
    lines = [] if family else ["import qkv.transformers  # the model type `qkv`"]
    lines += [f"from transformers import {names}", "", f"model = {model}.from_pretrained({name!r})"]
    if reads == "AutoTokenizer":
        lines += [f"tokenizer = AutoTokenizer.from_pretrained({name!r})", *_asked(run, auto)]
    elif reads is not None:
        lines += [
            f"processor = AutoImageProcessor.from_pretrained({name!r})",
            'inputs = processor(Image.open("picture.png"), return_tensors="pt")',
            "print(model.config.id2label[int(model(**inputs).logits.argmax())])",
        ]
        lines.insert(len(lines) - 4 if family else 1, "from PIL import Image")
    return (
        "\n\nWith [transformers](https://huggingface.co/docs/transformers):\n\n```python\n" + "\n".join(lines) + "\n```"
    )


def _asked(run: LoadedModel, auto: str | None) -> list[str]:
    """The lines that ask a model of transformers about a text."""
    masked = auto == "AutoModelForMaskedLM" and run.words.mask_id is not None
    text = _masked(run) if masked else _example(run)
    lines = [f'inputs = tokenizer({text!r}, return_tensors="pt")']
    if auto in ("AutoModelForCausalLM", "AutoModelForSeq2SeqLM"):
        return [*lines, "print(tokenizer.batch_decode(model.generate(**inputs), skip_special_tokens=True))"]
    if auto == "AutoModelForMaskedLM":
        return [*lines, "print(tokenizer.batch_decode(model(**inputs).logits.argmax(-1)))"]
    if auto in ("AutoModelForSequenceClassification", "AutoModelForTokenClassification"):
        return [*lines, "print(model.config.id2label, model(**inputs).logits.softmax(-1))"]
    return [*lines, "print(model(**inputs))"]
