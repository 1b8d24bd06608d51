"""Tiny PaliGemma, Gemma 3 and Qwen-VL of transformers in directories, with tokenizers and processors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

SIDE = 12  # of PaliGemma's and Gemma 3's pictures
WORDS = "what is in the picture?\n\n\n\na red circle, two dogs and a blue square\nuser model"
GEMMA = (
    "{{ bos_token }}{% for message in messages %}<start_of_turn>{{ message.role }}\n{% if message.content is string %}"
    "{{ message.content }}{% else %}{% for part in message.content %}{% if part.type == 'image' %}{{ place }}"
    "{% else %}{{ part.text }}{% endif %}{% endfor %}{% endif %}<end_of_turn>\n{% endfor %}"
    "{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}"
)
QWEN = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{% if message.content is string %}{{ message.content }}"
    "{% else %}{% for part in message.content %}{% if part.type == 'image' %}<|vision_start|><|image_pad|><|vision_end|>"
    "{% elif part.type == 'video' %}<|vision_start|><|video_pad|><|vision_end|>"
    "{% else %}{{ part.text }}{% endif %}{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def save(kind: str, folder: Path, **images: Any) -> tuple[Any, Any]:
    """Write the directory of a model with random weights; their model and processor. `images` are settings of its
    pictures' processor."""
    tokenizer = _tokenizer(kind)
    model, processor = {"paligemma": _paligemma, "gemma3": _gemma3}.get(kind, _qwen)(kind, tokenizer, images)
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.3)
    model.eval().save_pretrained(folder)
    if kind.startswith("qwen"):
        processor.image_processor.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    else:
        processor.save_pretrained(folder)
    return model, processor


def _tokenizer(kind: str) -> Any:
    """A tokenizer as the model's: pieces of SentencePiece for Gemma, of bytes for Qwen."""
    import tokenizers
    from tokenizers import models, normalizers, pre_tokenizers, trainers
    from transformers import GemmaTokenizer, Qwen2Tokenizer

    gemma = not kind.startswith("qwen")
    raw = tokenizers.Tokenizer(models.BPE())
    if gemma:
        raw.normalizer = normalizers.Replace(" ", "▁")
        raw.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    else:
        raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    special = ["<pad>", "<eos>", "<bos>", "<unk>"] if gemma else []
    alphabet = sorted(set(WORDS.replace(" ", "▁"))) if gemma else pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=len(alphabet) + 30, special_tokens=special, initial_alphabet=alphabet)
    raw.train_from_iterator([*WORDS.split(" "), "\n\n", "\n\n\n"] * 3, trainer)
    made = json.loads(raw.to_str())["model"]
    merges = [tuple(pair) for pair in made["merges"]]
    if gemma:
        names = {"image_token": "<image_soft_token>", "boi_token": "<start_of_image>", "eoi_token": "<end_of_image>"}
        tokenizer = GemmaTokenizer(
            vocab=made["vocab"], merges=merges, extra_special_tokens=names if kind == "gemma3" else {}
        )
        place = "<start_of_image>" if kind == "gemma3" else "<image>"
        tokenizer.chat_template = GEMMA.replace("{{ place }}", place)
        tokenizer.add_special_tokens({"additional_special_tokens": ["<start_of_turn>", "<end_of_turn>"]})
        return tokenizer
    tokenizer = Qwen2Tokenizer(vocab=made["vocab"], merges=merges)
    tokenizer.add_special_tokens(
        {
            "additional_special_tokens": [
                *("<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>"),
            ]
        }
    )
    tokenizer.chat_template = QWEN
    return tokenizer


def _text(tokenizer: Any, kind: str) -> dict[str, Any]:
    sizes = {"hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 4}
    sizes |= {"num_key_value_heads": 2, "max_position_embeddings": 512, "vocab_size": len(tokenizer)}
    return {**sizes, "model_type": kind, "pad_token_id": 0, "eos_token_id": None, "bos_token_id": None}


VISION: dict[str, Any] = {"hidden_size": 16, "intermediate_size": 28, "num_hidden_layers": 2, "num_attention_heads": 2}
VISION |= {"image_size": SIDE, "patch_size": 3, "vision_use_head": False}


def _paligemma(kind: str, tokenizer: Any, images: dict[str, Any]) -> tuple[Any, Any]:
    from transformers import (
        PaliGemmaConfig,
        PaliGemmaForConditionalGeneration,
        PaliGemmaProcessor,
        SiglipImageProcessorPil,
    )

    seen = SiglipImageProcessorPil(**{"size": {"height": SIDE, "width": SIDE}, "image_seq_length": 16, **images})
    processor = PaliGemmaProcessor(seen, tokenizer)
    text = {**_text(tokenizer, "gemma"), "head_dim": 6}
    place = tokenizer.convert_tokens_to_ids("<image>")
    config = PaliGemmaConfig(text_config=text, vision_config=VISION, image_token_index=place, projection_dim=24)
    return PaliGemmaForConditionalGeneration(config), processor


def _gemma3(kind: str, tokenizer: Any, images: dict[str, Any]) -> tuple[Any, Any]:
    from transformers import Gemma3Config, Gemma3ForConditionalGeneration, Gemma3ImageProcessorPil, Gemma3Processor

    seen = Gemma3ImageProcessorPil(**{"size": {"height": SIDE, "width": SIDE}, **images})
    processor = Gemma3Processor(seen, tokenizer, image_seq_length=4)
    text = {**_text(tokenizer, "gemma3_text"), "head_dim": 6, "sliding_window": 8}
    config = Gemma3Config(
        text_config=text,
        vision_config=VISION,
        mm_tokens_per_image=4,
        image_token_index=tokenizer.image_token_id,
        boi_token_index=tokenizer.boi_token_id,
        eoi_token_index=tokenizer.eoi_token_id,
    )
    return Gemma3ForConditionalGeneration(config), processor


def _qwen(kind: str, tokenizer: Any, images: dict[str, Any]) -> tuple[Any, Any]:
    import transformers

    name = {"qwen2_vl": "Qwen2VL", "qwen2_5_vl": "Qwen2_5_VL", "qwen3_vl": "Qwen3VL"}[kind]
    size = {"shortest_edge": 80, "longest_edge": 400}
    seen = transformers.Qwen2VLImageProcessorPil(**{"size": size, "patch_size": 4, **images})
    text = {**_text(tokenizer, ""), "rope_parameters": {"rope_type": "default", "rope_theta": 100.0}}
    text["rope_parameters"]["mrope_section"] = [1, 1, 1]
    del text["model_type"]
    vision: dict[str, Any] = {"depth": 2, "num_heads": 2, "patch_size": 4}
    if kind == "qwen3_vl":
        vision |= {"hidden_size": 16, "intermediate_size": 20, "out_hidden_size": 24, "num_position_embeddings": 16}
        vision["deepstack_visual_indexes"], text["head_dim"] = [0, 1], 6
    elif kind == "qwen2_vl":
        vision |= {"embed_dim": 16, "mlp_ratio": 2, "hidden_size": 24}
    else:
        vision |= {"hidden_size": 16, "intermediate_size": 20, "out_hidden_size": 24, "window_size": 16}
        vision["fullatt_block_indexes"] = [1]
    ids = {f"{one}_token_id": tokenizer.convert_tokens_to_ids(f"<|{one}_pad|>") for one in ("image", "video")}
    ids |= {f"vision_{one}_token_id": tokenizer.convert_tokens_to_ids(f"<|vision_{one}|>") for one in ("start", "end")}
    config = getattr(transformers, f"{name}Config")(text_config=text, vision_config=vision, **ids)
    model = getattr(transformers, f"{name}ForConditionalGeneration")(config)
    return model, without_videos(getattr(transformers, f"{name}Processor"), seen, tokenizer)


def without_videos(kind: Any, images: Any, tokenizer: Any) -> Any:
    """Their processor of pictures and texts. The one of videos needs torchvision, which reading pictures does not."""
    processor = object.__new__(kind)
    processor.image_processor, processor.tokenizer, processor.video_processor = images, tokenizer, None
    processor.image_token, processor.video_token = "<|image_pad|>", "<|video_pad|>"
    for name in ("image", "video"):
        setattr(processor, f"{name}_token_id", tokenizer.convert_tokens_to_ids(f"<|{name}_pad|>"))
    processor.chat_template, processor.audio_tokenizer = tokenizer.chat_template, None
    return processor


def flattened(clip: Tensor, vision: Any) -> tuple[Tensor, list[int]]:
    """Patches as Qwen's processors order them, square by square of the merger, and the grid, of a video (F, C, H, W)."""
    p, m, f = vision.patch_size, vision.spatial_merge_size, vision.temporal_patch_size
    frames, channels, height, width = clip.shape
    grid = [frames // f, height // p, width // p]
    parts = clip.reshape(grid[0], f, channels, grid[1] // m, m, p, grid[2] // m, m, p)
    return parts.permute(0, 3, 6, 4, 7, 2, 1, 5, 8).reshape(-1, channels * f * p * p), grid


def movie(path: Path, count: int, rate: int, size: tuple[int, int], codec: str = "mpeg4") -> Path:
    """A file of a bar that moves, and a line that falls."""
    import av

    width, height = size
    draw = np.random.default_rng(count)
    with av.open(str(path), "w") as file:
        stream = file.add_stream(codec, rate=rate)
        stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
        for i in range(count):
            pixels = np.zeros((height, width, 3), np.uint8)
            pixels[:, 5 * i % width :][:, :12] = draw.integers(60, 256, 3)
            pixels[i % height] = 200
            file.mux(stream.encode(av.VideoFrame.from_ndarray(pixels, "rgb24")))
        file.mux(stream.encode())
    return path
