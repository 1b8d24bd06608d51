"""Names of settings in other libraries and their keys in a recipe, for messages about unknown keys; recipes by task.

The names come from nanoGPT's scripts, transformers' `TrainingArguments` and configurations, JoeyNMT, fairseq and
Lightning.
"""

from __future__ import annotations

from ...core.spec import brief

_MODEL = {
    "model.d_model": "hidden_size n_embd embed_dim dim model_dim embedding_dim",
    "model.n_layers": "num_hidden_layers num_layers n_layer layers",
    "model.n_heads": "num_attention_heads num_heads n_head nhead heads",
    "model.d_ff": "intermediate_size ff_size ffn_dim n_inner dim_feedforward ffn_embed_dim",
    "model.dropout": "hidden_dropout_prob resid_pdrop attention_probs_dropout_prob hidden_dropout",
    "model.max_positions": "max_position_embeddings n_positions max_seq_len max_source_positions",
    "model.preset": "arch architecture",
    "model": "model_name_or_path load_model pretrained base_model init_from checkpoint finetune_from_model",
}
_TRAINING = {
    "training.optimizer.lr": "learning_rate base_lr",
    "training.optimizer": "optim optimizer_name",
    "training.optimizer.weight_decay": "wd",
    "training.optimizer.betas": "beta1 beta2 adam_beta1 adam_beta2 adam_betas",
    "training.optimizer.eps": "adam_epsilon adam_eps epsilon",
    "training.schedule": "lr_scheduler_type lr_scheduler scheduler scheduling decay_lr",
    "training.schedule.warmup": "warmup_steps warmup_ratio warmup_iters warmup_updates learning_rate_warmup "
    "num_warmup_steps",
    "training.schedule.final_ratio": "min_lr learning_rate_min stop_min_lr",
    "training.schedule.steps": "lr_decay_iters",
    "training.max_epochs": "epochs epoch num_epochs n_epochs num_train_epochs max_epoch",
    "training.max_steps": "steps max_iters max_iter iterations updates max_update max_updates train_steps num_steps",
    "training.max_time": "max_duration stop_time_hours time_limit",
    "training.accumulate": "gradient_accumulation_steps accumulate_grad_batches update_freq batch_multiplier grad_accum",
    "training.clip_norm": "max_grad_norm grad_clip gradient_clip_val clip_grad_norm max_norm gradient_clipping",
    "training.clip_value": "clip_grad_val",
    "training.precision": "dtype fp16 bf16 mixed_precision amp",
    "training.compile": "torch_compile",
    "training.recompute": "gradient_checkpointing activation_checkpointing checkpoint_activations",
    "training.eval_every": "eval_steps eval_interval eval_strategy evaluation_strategy validation_freq val_check_interval "
    "check_val_every_n_epoch validate_interval validate_interval_updates",
    "training.save_every": "save_steps save_interval save_strategy save_interval_updates checkpoint_every "
    "always_save_checkpoint every_n_train_steps",
    "training.log_every": "logging_steps log_interval logging_freq log_every_n_steps",
    "training.keep": "save_total_limit keep_best_ckpts save_top_k keep_last_epochs keep_interval_updates",
    "training.metric": "metric_for_best_model early_stopping_metric best_checkpoint_metric monitor",
    "training.mode": "greater_is_better maximize_best_checkpoint_metric",
    "training.patience": "early_stopping early_stopping_patience",
    "training.min_delta": "early_stopping_threshold",
    "training.average": "ema ema_decay stochastic_weight_avg swa",
    "training.final": "load_best_model_at_end",
    "training.wandb": "report_to wandb_log use_wandb",
}
_REST = {
    "batching.tokens": "batch_size per_device_train_batch_size per_device_eval_batch_size train_batch_size max_tokens "
    "micro_batch_size eval_batch_size",
    "batching.max_rows": "max_sentences",
    "batching.max_length": "max_sent_length max_source_length max_target_length",
    "batching.context": "block_size seq_len seq_length sequence_length max_seq_length model_max_length context_length",
    "batching.workers": "num_workers dataloader_num_workers",
    "batching.rows": "sample_break_mode",
    "objective.label_smoothing": "label_smoothing_factor smoothing",
    "objective": "criterion loss loss_fn",
    "tokenizer.vocab_size": "voc_limit n_vocab vocab",
    "evaluation.examples": "eval_iters limit_val_batches max_eval_samples",
    "evaluation.test_examples": "limit_test_batches max_predict_samples",
    "generation.num_beams": "beam_size beam beam_width",
    "generation.max_new_tokens": "max_output_length max_gen_len",
    "generation.length_penalty": "beam_alpha lenpen alpha",
    "data.path": "dataset train_file data_dir dataset_name train_data input",
    "data.validation_path": "validation_file eval_file valid_data",
    "data.test_path": "test_file",
    "data.source": "src",
    "data.target": "trg tgt",
    "seed": "random_seed manual_seed",
    "name": "run_name experiment_name",
}
_OPTIONS = {
    "--out": "output_dir out_dir model_dir default_root_dir save_dir",
    "--overwrite": "overwrite_output_dir",
    "--resume": "resume_from_checkpoint ckpt_path restore_file",
    "--device": "device devices accelerator use_cuda cpu gpu gpus",
}
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
    "speech": "sound sounds audio audio-classification speech-commands keyword-spotting",
    "video": "videos video-classification action-recognition",
    "music": "midi melody",
    "forecast": "time-series timeseries series forecasting prediction",
    "protein": "proteins secondary-structure",
    "scaling": "scaling-laws chinchilla",
}
SYNONYMS = {
    name: place for table in (_MODEL, _TRAINING, _REST) for place, names in table.items() for name in names.split()
}
"""The name elsewhere → the place in a recipe."""
OPTIONS = {name: option for option, names in _OPTIONS.items() for name in names.split()}
"""The name elsewhere → the option of `qkv train`."""

RECIPES = {name: recipe for recipe, names in _RECIPES.items() for name in names.split()}
"""Recipes by the names of tasks and data sets."""

_REMARKS = {
    "batching.tokens": "counted in tokens, padding included; for rows give batching.max_rows",
    "training.optimizer.betas": "both in one: [0.9, 0.95]",
    "training.schedule.warmup": "in steps",
    "training.schedule.final_ratio": "as a part of the peak",
    "training.mode": "min or max",
    "training.final": "best or last",
    "training.precision": "auto, fp32, bf16 or fp16",
}


def elsewhere(name: str) -> str | None:
    """A clause that names the setting of qkv for one of another library; None if the name is unknown."""
    known = name.lower().replace("-", "_")
    if known in OPTIONS:
        return f"it is the option {OPTIONS[known]} of `qkv train`"
    if known not in SYNONYMS:
        return None
    place = SYNONYMS[known]
    return f"it is {place} here" + (f" ({_REMARKS[place]})" if place in _REMARKS else "")


def recipe_for(name: str) -> str | None:
    """A clause that names the recipe for a task or a data set; None if the name is unknown."""
    found = RECIPES.get(name.lower().replace("_", "-"))
    return None if found is None else f"the recipe for it is {brief(found)}"
