"""A tiny Idefics 3 in a directory, with a tokenizer that has the places of pictures, and its processor."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

SIDE = 12
TEMPLATE = (
    "{% for message in messages %}{{ message.role }}:{% if message.content is string %}{{ message.content }}{% else %}"
    "{% for part in message.content %}{% if part.type == 'image' %}<image>{% else %}{{ part.text }}{% endif %}{% endfor %}"
    "{% endif %}</s>{% endfor %}{% if add_generation_prompt %}assistant:{% endif %}"
)


def save_idefics3(folder: Path) -> tuple[Any, Any]:
    """Write the directory; their model and processor."""
    import tokenizers
    from tokenizers import AddedToken, models, pre_tokenizers, trainers
    from transformers import (
        Idefics3Config,
        Idefics3ForConditionalGeneration,
        Idefics3ImageProcessorPil,
        Idefics3Processor,
        PreTrainedTokenizerFast,
    )

    raw = tokenizers.Tokenizer(models.BPE())
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = tokenizers.decoders.ByteLevel()
    special = ["</s>", "<image>", "<fake_token_around_image>", "<global-img>", "<end_of_utterance>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=300, special_tokens=[AddedToken(name, special=True) for name in special], initial_alphabet=alphabet
    )
    raw.train_from_iterator(["what is in the picture? a red circle"], trainer)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=raw, eos_token="</s>", pad_token="</s>")
    tokenizer.chat_template = TEMPLATE
    images = Idefics3ImageProcessorPil(
        size={"longest_edge": 40}, max_image_size={"longest_edge": SIDE}, do_image_splitting=False
    )
    processor = Idefics3Processor(images, tokenizer, image_seq_len=4)
    text = {"vocab_size": len(tokenizer), "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 2}
    text |= {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 512, "model_type": "llama"}
    text |= {"eos_token_id": 0, "bos_token_id": 0, "pad_token_id": 0}
    vision = {"hidden_size": 16, "intermediate_size": 28, "num_hidden_layers": 2, "num_attention_heads": 2}
    vision |= {"image_size": SIDE, "patch_size": 3}
    torch.manual_seed(0)
    place = tokenizer.convert_tokens_to_ids("<image>")
    config = Idefics3Config(text_config=text, vision_config=vision, image_token_id=place, scale_factor=2)
    model = Idefics3ForConditionalGeneration(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.3)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    images.save_pretrained(folder)
    return model, processor


def save_see(folder: Path) -> Path:
    """Write an untrained run of the recipe `see`, and two pictures, a.png and b.png."""
    import small_recipes
    from PIL import Image

    import qkv
    from qkv.generation import Generation

    recipe, tokenizer, model, _ = small_recipes.prepared("see")
    qkv.Run(model, tokenizer, Generation(max_new_tokens=3, min_new_tokens=3), recipe=recipe).save(folder / "see", "qkv")
    for name, color in (("a", "red"), ("b", "blue")):
        Image.new("RGB", (20, 30), color).save(folder / f"{name}.png")
    return folder / "see"
