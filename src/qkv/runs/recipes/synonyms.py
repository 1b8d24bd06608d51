"""Recipes by the names of tasks and data sets, for messages about unknown recipes."""

from __future__ import annotations

from ...core.spec import brief

_RECIPES = {
    "classify": "sentiment imdb sst2 sst-2 spam intent intents topic emotion toxicity nli mnli text-classification "
    "sequence-classification classification classifier labels",
    "tag": "ner pos conll conll2003 tagging token-classification entities named-entities chunking",
    "answer": "qa squad question-answering extractive-qa reading-comprehension",
    "choose": "multiple-choice swag hellaswag copa",
    "similarity": "sts stsb embedding embeddings sentence-similarity sentence-transformers sbert retrieval bi-encoder",
    "translate": "translation translator mt nmt machine-translation wmt multi30k iwslt",
    "summarize": "summary summarization summarisation cnn-dailymail xsum paraphrase text2text",
    "chat": "sft instruct instruction instructions instruction-tuning dialog dialogue assistant alpaca sharegpt chatbot",
    "lm": "text language-model language-modeling causal-lm clm text-generation wikitext finetune",
    "nanogpt": "shakespeare tinyshakespeare char-lm charlm",
    "bert": "mlm masked-lm fill-mask",
    "vit": "image images pictures image-classification cifar cifar10 mnist imagenet",
    "detect": "detection object-detection detr yolo coco boxes",
    "segment": "segmentation semantic-segmentation mask masks",
    "restore": "denoise image-denoising image-restoration deblur deblurring inpainting",
    "upscale": "super-resolution superresolution upscaling image-to-image",
    "caption": "captioning captions image-captioning image-to-text",
    "see": "vqa visual-question-answering multimodal vision-language vlm llava paligemma image-text-to-text",
    "omni": "omni-modal any-to-text audio-text-to-text video-text-to-text several-modalities multimodality",
    "speech": "sound sounds audio audio-classification speech-commands keyword-spotting",
    "video": "videos video-classification action-recognition",
    "music": "midi melody",
    "forecast": "time-series timeseries series forecasting prediction",
    "protein": "proteins secondary-structure",
    "scaling": "scaling-laws chinchilla",
}

RECIPES = {name: recipe for recipe, names in _RECIPES.items() for name in names.split()}
"""Recipes by the names of tasks and data sets."""


def recipe_for(name: str) -> str | None:
    """A clause that names the recipe for a task or a data set; None if the name is unknown."""
    found = RECIPES.get(name.lower().replace("_", "-"))
    return None if found is None else f"the recipe for it is {brief(found)}"
