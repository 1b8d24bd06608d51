"""The names that other libraries use for the fields of specs and the arguments of functions."""

from __future__ import annotations

# Class or role of specs: the settings, or parts of a recipe, whose synonyms the constructor and `replace` accept.
_IN_SPECS = {
    "attention": "model.n_heads model.n_kv_heads model.d_head model.softcap",
    "LatentAttention": "model.n_heads",  # DeepSeek's head_dim is the width of the rotated part
    "feedforward": "model.d_ff",
    "MixtureOfExperts": "model.n_experts model.top_k model.d_expert model.balance_weight model.jitter model.renormalize",
    "norm": "model.eps",
    "embedding": "model.token_types model.channels",
    "T5Buckets": "model.buckets model.max_distance",
    "LanguageModel": "model.tied",
    "SequenceClassifier": "model.labels",
    "TokenClassifier": "model.labels",
    "ImageClassifier": "model.labels",
    "Transformer": "model.d_model model.vocab_size model.max_positions",
    "Recurrent": "model.encoder_layers model.decoder_layers model.vocab_size",
    "adapter": "adapter",
    "optimizer": "training.optimizer",
    "Adafactor": "training.optimizer.lr training.optimizer.weight_decay",  # its eps is a pair
    "schedule": "training.schedule",
    "objective": "objective",
    "Training": "training",
    "Batching": "batching",
    "Evaluation": "evaluation",
}

IN_SPECS = {name: tuple(places.split()) for name, places in _IN_SPECS.items()}
"""Maps a class or role of specs to the settings, or parts of a recipe, whose synonyms it accepts."""
ARGUMENTS = {
    "generate": {
        "input_ids": "ids",
        "inputs": "ids",
        "eos_token_id": "eos_id",
        "pad_token_id": "pad_id",
        "decoder_start_token_id": "bos_id",
    },
    "load": {
        "pretrained_model_name_or_path": "path",
        "model_name_or_path": "path",
        "torch_dtype": "dtype",
    },
    "train": {
        "output_dir": "out",
        "out_dir": "out",
        "model_dir": "out",
        "overwrite_output_dir": "overwrite",
        "train_dataset": "data",
        "eval_dataset": "eval_data",
    },
}
"""Maps each function that accepts synonyms to its arguments: from the name in another library to the name in qkv."""
