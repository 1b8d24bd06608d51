"""Tiny CLIP and SigLIP of transformers in directories, with their tokenizers and processors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

WORDS = "a photo of a red cat and two dogs, the picture shows a blue circle's edge"


def save_clip(folder: Path, eos: int | None = None) -> tuple[Any, Any]:
    """Write the directory; their model and processor. `eos`: what the configuration says, by default the token."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers
    from transformers import CLIPConfig, CLIPImageProcessorPil, CLIPModel, CLIPProcessor, CLIPTokenizer

    raw = Tokenizer(models.BPE(end_of_word_suffix="</w>"))
    raw.normalizer = normalizers.Lowercase()
    raw.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Whitespace(), pre_tokenizers.ByteLevel(False)])
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=650, initial_alphabet=alphabet, end_of_word_suffix="</w>")
    raw.train_from_iterator([WORDS] * 3, trainer)
    pieces = [*alphabet, *(f"{one}</w>" for one in alphabet)]
    made = sorted(raw.get_vocab(), key=raw.get_vocab().__getitem__)
    names = list(dict.fromkeys([*pieces, *made, "<|startoftext|>", "<|endoftext|>"]))
    import json

    merges = [tuple(pair) for pair in json.loads(raw.to_str())["model"]["merges"]]
    tokenizer = CLIPTokenizer(vocab={name: i for i, name in enumerate(names)}, merges=merges, model_max_length=16)
    images = CLIPImageProcessorPil(size={"shortest_edge": 10}, crop_size={"height": 8, "width": 8})
    text = {"hidden_size": 12, "intermediate_size": 20, "num_hidden_layers": 2, "num_attention_heads": 3}
    text |= {"vocab_size": len(names), "max_position_embeddings": 16, "eos_token_id": eos or len(names) - 1}
    vision = {"hidden_size": 16, "intermediate_size": 12, "num_hidden_layers": 2, "num_attention_heads": 2}
    vision |= {"image_size": 8, "patch_size": 4}
    return _saved(CLIPModel(CLIPConfig(text_config=text, vision_config=vision, projection_dim=6)), folder), _beside(
        CLIPProcessor(images, tokenizer), folder
    )


def save_siglip(folder: Path, model: Path) -> tuple[Any, Any]:
    """Write the directory, with a SentencePiece model; their model and processor."""
    from transformers import SiglipConfig, SiglipImageProcessorPil, SiglipModel, SiglipProcessor, SiglipTokenizer

    tokenizer = SiglipTokenizer(str(model), model_max_length=12)
    images = SiglipImageProcessorPil(size={"height": 8, "width": 8})
    text = {"hidden_size": 16, "intermediate_size": 20, "num_hidden_layers": 2, "num_attention_heads": 4}
    text |= {"vocab_size": len(tokenizer), "max_position_embeddings": 12, "eos_token_id": 1, "bos_token_id": 1}
    vision = {"hidden_size": 16, "intermediate_size": 12, "num_hidden_layers": 2, "num_attention_heads": 2}
    vision |= {"image_size": 8, "patch_size": 4}
    return _saved(SiglipModel(SiglipConfig(text_config=text, vision_config=vision)), folder), _beside(
        SiglipProcessor(images, tokenizer), folder
    )


def save_siglip2(folder: Path, model: Path) -> tuple[Any, Any, Any]:
    """As `save_siglip`, of SigLIP 2 for pictures of any shape; their model, and their processors of pictures and texts."""
    from transformers import Siglip2Config, Siglip2ImageProcessorPil, Siglip2Model, SiglipTokenizer

    tokenizer = SiglipTokenizer(str(model), model_max_length=12)
    images = Siglip2ImageProcessorPil(patch_size=4, max_num_patches=21)
    text = {"hidden_size": 16, "intermediate_size": 20, "num_hidden_layers": 2, "num_attention_heads": 4}
    text |= {"vocab_size": len(tokenizer), "max_position_embeddings": 12, "eos_token_id": 1, "bos_token_id": 1}
    vision = {"hidden_size": 16, "intermediate_size": 12, "num_hidden_layers": 2, "num_attention_heads": 2}
    vision |= {"num_patches": 9, "patch_size": 4}
    theirs = _saved(Siglip2Model(Siglip2Config(text_config=text, vision_config=vision)), folder)
    return theirs, _beside(images, folder), _beside(tokenizer, folder)


def _saved(model: Any, folder: Path) -> Any:
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.4)
    model.save_pretrained(folder)
    return model.eval()


def _beside(processor: Any, folder: Path) -> Any:
    processor.save_pretrained(folder)
    return processor
