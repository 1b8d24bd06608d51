"""Tables of other libraries' options: the synonyms that qkv accepts, and the messages for all others.

The names come from transformers (`GenerationConfig`, `TrainingArguments`, configurations, `forward`, `from_pretrained`),
PEFT, TRL, LitGPT, x-transformers, fairseq, nanoGPT, JoeyNMT and Lightning.
"""

from __future__ import annotations

from collections.abc import Mapping

# Setting: names in other libraries that mean exactly the same, in the same unit. qkv accepts them.
_SAME = {
    "model.d_model": "hidden_size n_embd dim model_dim",
    "model.n_layers": "num_hidden_layers num_layers n_layer layers depth num_blocks",
    "model.encoder_layers": "num_encoder_layers",
    "model.decoder_layers": "num_decoder_layers",
    "model.n_heads": "num_attention_heads num_heads n_head nhead heads attention_heads",
    "model.encoder_heads": "encoder_attention_heads",
    "model.decoder_heads": "decoder_attention_heads",
    "model.n_kv_heads": "num_key_value_heads num_kv_heads n_query_groups kv_heads attn_kv_heads",
    "model.d_head": "head_dim head_size dim_head attn_dim_head d_kv",
    "model.d_ff": "intermediate_size ff_size ffn_dim n_inner dim_feedforward ffn_embed_dim",
    "model.encoder_d_ff": "encoder_ffn_dim encoder_ffn_embed_dim",
    "model.decoder_d_ff": "decoder_ffn_dim decoder_ffn_embed_dim",
    "model.attention_dropout": "attention_probs_dropout_prob attn_pdrop attn_dropout",
    "model.embedding_dropout": "embd_pdrop emb_dropout embed_dropout",
    "model.activation_dropout": "relu_dropout",
    "model.eps": "layer_norm_eps rms_norm_eps layer_norm_epsilon norm_eps norm_epsilon",
    "model.tied": "tie_word_embeddings tie_embedding tie_embeddings",
    "model.max_positions": "max_position_embeddings n_positions max_seq_len n_ctx block_size",
    "model.vocab_size": "num_tokens padded_vocab_size",
    "model.feedforward_bias": "mlp_bias",
    "model.scaled": "scale_embedding",
    "model.buckets": "relative_attention_num_buckets rel_pos_num_buckets",
    "model.max_distance": "relative_attention_max_distance rel_pos_max_distance",
    "model.softcap": "attn_logit_softcapping attention_logit_softcapping",
    "model.logits_softcap": "final_logit_softcapping",
    "model.n_experts": "num_local_experts num_experts n_expert n_routed_experts moe_num_experts",
    "model.top_k": "num_experts_per_tok n_expert_per_token moe_top_k router_top_k",
    "model.d_expert": "moe_intermediate_size",
    "model.balance_weight": "router_aux_loss_coef aux_loss_coef",
    "model.jitter": "router_jitter_noise jitter_noise",
    "model.renormalize": "norm_topk_prob",
    "model.token_types": "type_vocab_size",
    "model.labels": "num_labels num_classes n_classes",
    "model.pooler": "add_pooling_layer",
    "model.channels": "num_channels",
    "training.optimizer.lr": "learning_rate lr",
    "training.optimizer.weight_decay": "wd weight_decay",
    "training.optimizer.eps": "adam_epsilon adam_eps epsilon",
    "training.schedule.warmup": "warmup_steps warmup_iters warmup_updates learning_rate_warmup num_warmup_steps "
    "lr_warmup_steps",
    "training.schedule.steps": "lr_decay_iters total_num_update",
    "training.max_epochs": "epochs epoch num_epochs n_epochs num_train_epochs max_epoch",
    "training.max_steps": "steps updates max_update max_updates train_steps num_steps max_steps",
    "training.max_time": "max_time",
    "training.accumulate": "gradient_accumulation_steps accumulate_grad_batches update_freq batch_multiplier grad_accum",
    "training.clip_norm": "max_grad_norm grad_clip gradient_clip_val clip_grad_norm max_norm gradient_clipping "
    "clip_norm",
    "training.clip_value": "clip_grad_val",
    "training.compile": "torch_compile compile_model",
    "training.eval_every": "eval_steps eval_interval validation_freq validate_interval_updates",
    "training.save_every": "save_steps save_interval_updates every_n_train_steps",
    "training.log_every": "logging_steps logging_freq log_every_n_steps",
    "training.keep": "keep_interval_updates",
    "training.async_save": "write_checkpoints_asynchronously",
    "training.patience": "early_stopping_patience",
    "training.min_delta": "early_stopping_threshold",
    "training.wandb": "wandb_log use_wandb",
    "training.threads": "num_threads",
    "batching.context": "block_size tokens_per_sample",
    "batching.packing": "packed",
    "batching.workers": "num_workers dataloader_num_workers",
    "objective.label_smoothing": "label_smoothing_factor smoothing",
    "adapter.rank": "lora_r r",
    "adapter.alpha": "lora_alpha",
    "adapter.dropout": "lora_dropout",
    "adapter.rank_stabilized": "use_rslora",
    "evaluation.examples": "max_eval_samples",
    "evaluation.test_examples": "max_predict_samples",
    "generation.num_beams": "beam_size beam beam_width generation_num_beams",
    "generation.num_samples": "num_return_sequences nbest n_best",
    "generation.max_new_tokens": "max_output_length max_gen_len seq_len",
    "generation.min_new_tokens": "min_len",
    "generation.length_penalty": "lenpen",
    "generation.do_sample": "sampling",
    "generation.top_k": "sampling_topk",
    "generation.top_p": "sampling_topp",
    "data.path": "train_file",
    "data.validation_path": "validation_file eval_file",
    "data.test_path": "test_file",
    "seed": "random_seed manual_seed",
    "name": "run_name experiment_name",
}
_SAME_OPTIONS = {
    "--out": "output_dir out_dir model_dir",
    "--overwrite": "overwrite_output_dir",
    "--nproc": "num_processes nprocs_per_node distributed_num_procs",
}

# Setting: what it is in qkv, and the names of similar options in other libraries. They are refused with this explanation.
_NEAREST = {
    "model.d_model": {
        "one width for both stacks": "encoder_embed_dim decoder_embed_dim",
        "the width of every layer": "embed_dim embedding_dim",
    },
    "model.n_heads": {"one number for both stacks": "encoder_attention_heads decoder_attention_heads"},
    "model.n_kv_heads": {"1 for multi-query attention": "one_kv_head attn_one_kv_head multi_query"},
    "model.d_ff": {
        "neurons, not a multiple of d_model": "ff_mult mult",
        "one width for both stacks": "encoder_ffn_embed_dim decoder_ffn_embed_dim",
    },
    "model.dropout": {
        "it covers different layers in different presets": "hidden_dropout_prob resid_pdrop hidden_dropout dropout_rate "
        "residual_dropout ff_dropout"
    },
    "model.activation": {
        "by qkv's names, such as silu or gelu-tanh": "hidden_act hidden_activation activation_function activation_fn "
        "dense_act_fn ff_glu ff_swish ff_relu_squared mlp_class_name feed_forward_proj is_gated_act swish relu_squared "
        "solu gelu_approximate"
    },
    "model.tied": {
        "the output's table is the decoder's": "tie_token_emb share_decoder_input_output_embed share_all_embeddings"
    },
    "model.max_positions": {"one number for both sides": "max_source_positions max_target_positions"},
    "model.vocab_size": {"the whole vocabulary": "output_dictionary_size"},
    "model.bias": {"true adds biases": "no_bias ff_no_bias", "of all layers": "lm_head_bias"},
    "model.attention_bias": {"it covers different products in different presets": "attn_bias qkv_bias"},
    "model.scale": {
        "true scales": "no_scale_embedding",
        "a word or a number that the preset explains": "scale_embeddings tie_embedding_scale",
    },
    "model.placement": {
        "pre, post, res-post or sandwich": "normalize_before encoder_normalize_before decoder_normalize_before "
        "sandwich_norm macaron post_attention_norm post_mlp_norm parallel_residual use_parallel_residual "
        "shared_attention_norm pre_and_post_norm parallel_attn"
    },
    "model.position": {
        "a scheme with its settings, such as {kind: rotary, base: 10000}": "rope_theta rope_base rope_parameters "
        "rope_scaling rope_adjustments rope_condense_ratio rotary_percentage partial_rotary_factor rotary_pct "
        "rotary_pos_emb rotary_emb_dim rotary_xpos rotary_interpolation_factor alibi alibi_pos_bias alibi_num_heads "
        "rel_pos_bias position_embedding_type use_abs_pos_emb disable_abs_pos_emb scaled_sinu_pos_emb learned_pos "
        "encoder_learned_pos decoder_learned_pos no_token_positional_embeddings polar_pos_emb "
        "rotary_base_rescale_factor rope_interleave"
    },
    "model.windows": {
        "of every layer, or one for each": "sliding_window sliding_window_size sliding_window_indices max_attend_past "
        "attn_max_attend_past"
    },
    "model.qk_norm": {
        "RMSNorm of queries and keys": "norm_qk use_qk_norm qk_rmsnorm attn_qk_norm attn_qk_rmsnorm norm_qk_type "
        "qk_layernorm"
    },
    "model.softcap": {"the bound itself, without a switch": "logit_softclamp_value softclamp_logits"},
    "model.logits_softcap": {"the bound itself, without a switch": "softclamp_output softclamp_output_value"},
    "model.drop_path": {
        "it grows from layer to layer": "drop_path_rate layerdrop layer_dropout encoder_layerdrop decoder_layerdrop "
        "stochastic_depth"
    },
    "model.labels": {"their number": "id2label label2id"},
    "model.image": {"height and width": "image_size"},
    "model.patch": {"height and width": "patch_size"},
    "model.initialization": {"a scheme": "initializer_range init_std initializer_factor"},
    "model.pattern": {"a pattern, such as local": "attention_type attn_sparse_topk"},
    "model.preset": {"`qkv list presets` names them": "arch architecture architectures model_type"},
    "model.weights": {
        "int8, int4, nf4, fp8 or mxfp4": "load_in_8bit load_in_4bit quantization_config quantize",
    },
    "model": {
        "a preset starts from nothing, and a directory or owner/name is a trained model": "model_name_or_path "
        "load_model pretrained base_model init_from checkpoint finetune_from_model checkpoint_dir"
    },
    "training.optimizer.lr": {"of the batch as it is": "base_lr"},
    "training.optimizer": {
        "a kind with its settings, such as {kind: adamw, lr: 0.001}": "optim optimizer optimizer_name optim_args"
    },
    "training.optimizer.betas": {"both in one: [0.9, 0.95]": "beta1 beta2 adam_beta1 adam_beta2 adam_betas"},
    "training.optimizer.freeze": {"patterns of parameters that stay": "freeze_layers optim_target_modules"},
    "training.schedule": {
        "a kind with its settings, such as {kind: cosine, warmup: 100}": "lr_scheduler_type lr_scheduler scheduler "
        "scheduling decay_lr lr_scheduler_kwargs"
    },
    "training.schedule.warmup": {"in steps": "warmup_ratio lr_warmup_fraction"},
    "training.schedule.final_ratio": {"as a part of the peak": "min_lr learning_rate_min stop_min_lr"},
    "training.max_steps": {"updates of the weights, whatever `accumulate` is": "max_iters max_iter iterations"},
    "training.max_time": {"in seconds, or 2h": "max_duration stop_time_hours time_limit"},
    "training.accumulate": {"batches in a step": "global_batch_size"},
    "training.precision": {
        "auto, fp32, bf16 or fp16": "dtype torch_dtype fp16 bf16 mixed_precision amp memory_efficient_fp16 "
        "half_precision_backend"
    },
    "training.compile": {"true, false or auto": "torch_compile_backend torch_compile_mode"},
    "training.recompute": {
        "none, alternate or blocks": "gradient_checkpointing activation_checkpointing checkpoint_activations "
        "gradient_checkpointing_kwargs activation_checkpointing_kwargs offload_activations"
    },
    "training.eval_every": {
        "in steps, or epoch": "eval_strategy evaluation_strategy val_check_interval check_val_every_n_epoch "
        "validate_interval interval"
    },
    "training.save_every": {
        "in steps, or epoch": "save_interval save_strategy checkpoint_every always_save_checkpoint"
    },
    "training.log_every": {"in steps": "log_interval logging_strategy logging_first_step"},
    "training.keep": {
        "besides the best one": "save_total_limit keep_best_ckpts save_top_k keep_last_epochs keep_best_checkpoints "
        "no_epoch_checkpoints"
    },
    "training.metric": {
        "by the name that evaluations here report": "metric_for_best_model early_stopping_metric best_checkpoint_metric "
        "monitor"
    },
    "training.mode": {"min or max": "greater_is_better maximize_best_checkpoint_metric"},
    "training.patience": {"a number of evaluations": "early_stopping"},
    "training.average": {
        "a kind with its settings, such as {kind: running, decay: 0.999}": "ema ema_decay store_ema "
        "stochastic_weight_avg swa"
    },
    "training.final": {"best or last": "load_best_model_at_end"},
    "training.wandb": {"true, or settings such as {project: mine}": "report_to wandb_project"},
    "training.tensorboard": {"true; the files stand in the run's directory": "logging_dir tensorboard_logdir"},
    "scale": {
        "how ranks divide a training, such as {shard: 8}": "fsdp fsdp_config deepspeed parallelism_config zero_sharding "
        "sharded_ddp model_parallel_size pipeline_model_parallel cpu_offload"
    },
    "scale.timeout": {"how long a rank may be silent": "ddp_timeout heartbeat_timeout"},
    "batching.tokens": {
        "counted in tokens, padding included; for rows give batching.max_rows": "batch_size "
        "per_device_train_batch_size per_device_eval_batch_size train_batch_size max_tokens micro_batch_size "
        "eval_batch_size auto_find_batch_size batch_size_valid max_tokens_valid"
    },
    "batching.max_rows": {"of all ranks together": "max_sentences"},
    "batching.max_length": {
        "of both sides, with the end of the sequence": "max_sent_length max_source_length max_target_length"
    },
    "batching.context": {
        "the width of rows, into which texts are cut or packed": "seq_len seq_length sequence_length max_seq_length "
        "model_max_length context_length max_length context_window"
    },
    "batching.over_long": {"skip or cut": "skip_invalid_size_inputs_valid_test truncate_source shorten_method"},
    "batching.packing": {"true packs examples, which do not see each other": "padding_free"},
    "batching.pool": {
        "how many examples are sorted by length together": "group_by_length train_sampling_strategy length_column_name "
        "num_batch_buckets grouped_shuffling"
    },
    "batching.rows": {"documents or stream": "sample_break_mode"},
    "objective": {"a kind, such as next-token": "criterion loss loss_fn loss_type"},
    "adapter": {"a kind with its settings, such as {kind: lora, rank: 8}": "peft_config lora"},
    "adapter.layers": {
        "by qkv's names": "target_modules lora_query lora_key lora_value lora_projection lora_mlp lora_head"
    },
    "adapter.train": {"by qkv's names": "modules_to_save"},
    "vectors": {"a file of vectors with settings": "embed_path encoder_embed_path decoder_embed_path"},
    "tokenizer.vocab_size": {"one vocabulary for all texts": "voc_limit n_vocab vocab"},
    "tokenizer.chat_template": {"the template's text": "chat_template_path"},
    "evaluation.metrics": {
        "a list, such as [bleu, chrf]": "prediction_loss_only include_for_metrics compute_metrics eval_bleu sacrebleu "
        "scoring"
    },
    "evaluation.examples": {"in examples, not batches": "eval_iters limit_val_batches max_valid_steps"},
    "evaluation.test_examples": {"in examples, not batches": "limit_test_batches"},
    "evaluation.samples": {"how many outputs are shown": "eval_bleu_print_samples evaluate_example"},
    "generation.max_new_tokens": {
        "the prompt is not counted": "max_length max_len max_len_a max_len_b generation_max_length"
    },
    "generation.min_new_tokens": {"the prompt is not counted": "min_length"},
    "generation.length_penalty": {
        "log-probabilities are divided by length**length_penalty": "beam_alpha alpha",
        "0 is a plain sum": "unnormalized",
    },
    "generation.early_stopping": {"true ends a search early": "no_early_stop"},
    "generation.cache": {"int8, int4, or settings": "cache_implementation cache_config"},
    "generation.speculate": {
        "lookup, draft, early-exit, or settings": "prompt_lookup_num_tokens max_matching_ngram_size "
        "num_assistant_tokens num_assistant_tokens_schedule assistant_confidence_threshold assistant_early_exit "
        "assistant_lookbehind target_lookbehind speculation_type assistant_ensemble_weight use_mtp is_assistant"
    },
    "data.path": {"a file or a folder": "dataset data_dir dataset_name train_data input"},
    "data.validation_path": {"a file or a folder": "valid_data"},
    "data.source": {"the file of this side": "src source_lang"},
    "data.target": {"the file of this side": "trg tgt target_lang"},
    "seed": {"of everything": "data_seed set_seed"},
    "imports": {"a list of modules": "user_dir"},
}
_NEAREST_OPTIONS = {
    "--out": {"the run's own directory": "default_root_dir save_dir results_path"},
    "--resume": {
        "it continues the run of `--out`": "resume_from_checkpoint ckpt_path restore_file continue_once",
    },
    "--device": {
        "cpu, cuda, cuda:1 or mps": "device devices accelerator use_cuda use_cpu no_cuda cpu gpu gpus device_map device_id"
    },
    "--nproc": {"processes of this machine": "local_rank distributed_world_size num_nodes"},
}

# Names without a counterpart: what to use instead, or that there is nothing.
_CLAUSES = {
    # -- a model in Python
    "a model takes ids first: model(ids) returns a tensor of logits": "input_ids inputs inputs_ids "
    "input_features pixel_values input_values prompts",
    "an encoder–decoder takes the decoder's ids second, model(ids, target)": "decoder_input_ids",
    "it is target_mask here": "decoder_attention_mask",
    "it is token_types here": "token_type_ids segment_ids",
    "positions are those of the layout, layout=qkv.Layout(positions)": "position_ids cache_position",
    "model.start makes a cache, and model.step(ids, cache) feeds it; generate does both": "past_key_values "
    "past_key_value encoder_outputs",
    "model(ids) returns a tensor of logits, and with labels it returns sums of the loss": (
        "logits return_dict output_logits num_items_in_batch logits_to_keep last_hidden_state"
    ),
    "a model of qkv reads ids; qkv.transformers takes embeddings in the place of ids": "inputs_embeds "
    "decoder_inputs_embeds",
    "qkv.record_attention() records attention, and run.record() any activation": "output_attentions head_mask "
    "print_alignment",
    "run.record() records any activation, and model.hidden(ids) gives the last states": "output_hidden_states "
    "output_router_logits return_only_embed return_embeddings return_intermediates",
    "run.outputs(texts, scores=True) and `qkv generate --scores` give scores": "output_scores "
    "return_dict_in_generate score_reference",
    "generation keeps keys and values, and training does not": "use_cache cache_kv low_memory",
    # -- generation
    "model.generate takes eos_id, and a run knows it from its tokenizer": "eos_token_id eos_token",
    "model.generate takes bos_id, and a run knows it from its tokenizer": "bos_token_id decoder_start_token_id "
    "bos_token add_bos_token",
    "model.generate takes pad_id, and a run knows it from its tokenizer": "pad_token_id pad_value pad_token",
    "run.generate takes stop=, and `qkv generate` takes --stop": "stop_strings stop_sequences stopping_criteria",
    "qkv.generation.generate takes processors=": "logits_processor prefix_allowed_tokens_fn filter_logits_fn "
    "filter_kwargs",
    "generate takes a smaller model as draft=": "assistant_model",
    "run.stream gives tokens as they come": "streamer",
    "a directory's generation_config.json sets it, and there is no option for it": "bad_words_ids suppress_tokens "
    "begin_suppress_tokens forced_bos_token_id forced_eos_token_id",
    "qkv has no such sampling; top_p and min_p are nearest": "typical_p epsilon_cutoff eta_cutoff top_h",
    "qkv has no such search; num_beams and num_samples are nearest": "num_beam_groups diversity_penalty "
    "penalty_alpha dola_layers constraints force_words_ids diverse_beam_groups diverse_beam_strength diversity_rate "
    "amateur_model contrastive_decode_kwargs lm_path lm_weight iter_decode_max_iter",
    "qkv has no such penalty; repetition_penalty and no_repeat_ngram_size are nearest": "encoder_repetition_penalty "
    "encoder_no_repeat_ngram_size exponential_decay_length_penalty sequence_bias guidance_scale unkpen "
    "renormalize_logits",
    "qkv marks no text, and heals no token": "watermarking_config token_healing replace_unk",
    "NaN in logits is an error here": "remove_invalid_values",
    "qkv chooses it by itself": "max_cache_len compile_config disable_compile continuous_batching_config "
    "prefill_chunk_size no_beamable_mm",
    # -- what a spec says
    "a spec says it by its stacks: decoder alone is causal, encoder alone sees both sides": "is_decoder "
    "is_encoder_decoder causal is_causal add_cross_attention cross_attend only_cross no_cross_attention",
    "norms are classes: norm=qkv.RMSNorm() or qkv.LayerNorm() of a stack and its blocks": "norm_class_name "
    "use_rmsnorm use_scalenorm normalization_type pre_norm_has_final_norm no_decoder_final_norm layernorm_embedding "
    "use_simple_rmsnorm",
    "attention is a spec: qkv.Attention(scale=…, sink=…, weighting=…) in a block": "scale_attn_weights "
    "attention_scores_scalar query_pre_attn_scalar attn_head_learned_sink head_learned_sink attn_add_zero_kv "
    "scale_attn_by_inverse_layer_idx add_zero_kv sigmoid",
    "the kernel is chosen for each call; Attention(backend=…) fixes it": "attn_implementation attn_flash flash "
    "use_flash_attention_2 reorder_and_upcast_attn onnxable use_sdpa",
    "the head is a spec: qkv.SequenceClassifier, qkv.TokenClassifier …": "problem_type classifier_dropout "
    "summary_type summary_use_proj summary_activation summary_proj_to_labels summary_first_dropout num_output_heads "
    "use_cls_token average_pool_embed classifier_pooling",
    "experts are a spec: qkv.MixtureOfExperts in a block": "n_shared_expert n_expert_groups n_topk_groups "
    "routed_scaling_factor first_k_dense_replace decoder_sparse_step",
    "latent attention is a spec: qkv.LatentAttention in a block": "latent_attention kv_lora_rank q_lora_rank "
    "use_latent_q use_latent_kv dim_latent_kv dim_latent_q",
    "qkv has no such part": "talking_heads attn_talking_heads pre_talking_heads post_talking_heads num_memory_tokens "
    "attn_num_mem_kv num_mem_kv gate_residual residual_attn cross_residual_attn weight_tie_layers shift_tokens "
    "adaptive_input adaptive_softmax_cutoff adaptive_softmax_dropout adaptive_softmax_factor tie_adaptive_weights "
    "quant_noise quant_noise_pq char_inputs cross_self_attention neftune_noise_alpha dynamic_pos_bias unet_skips "
    "recycling mixture_of_softmax pretraining_tp post_emb_norm l2norm_embed num_residual_streams use_dynamic_tanh "
    "macaron_net max_mem_len chunk_size_feed_forward",
    # -- training
    "every token counts alike, on one rank as on many": "average_tokens_across_devices sentence_avg",
    "evaluation computes in fp32 by itself": "bf16_full_eval fp16_full_eval",
    "torch.set_float32_matmul_precision('high') allows TF32": "tf32",
    "qkv chooses its kernels by itself": "use_liger_kernel liger_kernel_config",
    "memory is kept by PyTorch's allocator": "torch_empty_cache_steps empty_cache_freq skip_memory_metrics",
    "progress=False of qkv.train prints nothing, and QKV_DEBUG=1 shows tracebacks": "disable_tqdm log_level "
    "log_level_replica log_on_each_node no_progress_bar quiet log_format log_file debug profile verbose",
    "bad steps are skipped and recorded, and training.max_bad_steps ends the run": "logging_nan_inf_filter "
    "min_loss_scale fp16_init_scale amp_init_scale",
    "metrics.jsonl always counts tokens": "include_num_input_tokens_seen include_tokens_per_second",
    "qkv logs to files, and with training.tensorboard and training.wandb there too": "project trackio_space_id "
    "trackio_bucket_id trackio_static_space_id aim_repo azureml_logging logger_name",
    "evaluation comes every training.eval_every steps and at the end, and collects its results itself": (
        "eval_delay eval_on_start eval_do_concat_batches eval_use_gather_object eval_accumulation_steps "
        "batch_eval_metrics validate_after_updates initial_validation final_validation disable_validation "
        "predict_with_generate"
    ),
    "a checkpoint always has what --resume needs, and `qkv convert RUN OUT --to hub` writes weights alone": (
        "save_only_model save_on_each_node enable_jit_checkpoint save_safetensors no_save no_last_checkpoints "
        "no_save_optimizer_state safe_serialization"
    ),
    "--resume continues everything, at the same place in the data": "ignore_data_skip "
    "restore_callback_states_from_checkpoint reset_optimizer reset_lr_scheduler reset_dataloader reset_meters "
    "optimizer_overrides",
    "`qkv push RUN owner/name` and run.push upload a run": "push_to_hub hub_private_repo hub_model_id hub_strategy "
    "hub_always_push hub_revision",
    "`qkv train` on the same machine and threads repeats a training exactly": "full_determinism",
    "the number of ranks is `--nproc`, and scale divides a training among them": "ddp_backend ddp_bucket_cap_mb "
    "ddp_find_unused_parameters ddp_broadcast_buffers ddp_static_graph accelerator_config bucket_cap_mb "
    "find_unused_parameters distributed_backend distributed_port distributed_init_method distributed_rank "
    "broadcast_buffers ddp_comm_hook tpu tpu_num_cores",
    "batching.workers builds batches ahead, and every example is used": "dataloader_drop_last dataloader_pin_memory "
    "dataloader_persistent_workers dataloader_prefetch_factor dataloader_multiprocessing_context dataloader_in_order "
    "data_buffer_size dataset_impl required_batch_size_multiple required_seq_len_multiple num_shards shard_id "
    "curriculum",
    "columns= of qkv.train and the settings of data name columns": "remove_unused_columns label_names "
    "dataset_text_field text_column label_column",
    "`qkv train` trains and evaluates, `qkv eval RUN` evaluates, and `qkv predict RUN FILE` predicts": (
        "do_train do_eval do_predict train_subset valid_subset gen_subset"
    ),
    # -- loading
    "qkv.load takes dtype=": "torch_dtype",
    "the argument of qkv.load is path": "pretrained_model_name_or_path",
    "qkv.load reads pickled weights only with allow_pickle=True": "use_safetensors weights_only",
    "qkv.load takes a GGUF file as its path": "gguf_file",
    "qkv.load reads the usual files of a directory; give the path of another": "subfolder variant",
    "weights must match the configuration in their directory": "ignore_mismatched_sizes key_mapping output_loading_info "
    "state_dict from_tf from_flax",
    "use run.generation, or settings= of generate": "generation_config",
    "qkv.load puts a model on a single device": "tp_plan tp_size device_mesh",
    "no code of a directory runs here": "trust_remote_code",
    "weights are read in place, by mmap": "low_cpu_mem_usage offload_folder max_memory",
    "the Hub's cache is set by HF_HOME, and HF_HUB_OFFLINE=1 asks it alone": "cache_dir local_files_only force_download",
    "`qkv push` takes the token of `hf auth login`, or of the variable HF_TOKEN, and so does loading": "token access_token "
    "use_auth_token hf_token hub_token",
    "it is skip_special of decode, where it is true by default": "skip_special_tokens",
    "tokenizer(texts, …) takes it, and encode takes bos, eos and control": "add_special_tokens text_pair "
    "return_tensors padding truncation return_offsets_mapping return_attention_mask return_token_type_ids padding_side",
    "qkv.load reads the tokenizer beside the model, as run.tokenizer": "processing_class tokenizer_name "
    "tokenizer_name_or_path use_fast",
    "qkv.train takes data= and eval_data=": "train_dataset eval_dataset",
}


def _by_name(table: Mapping[str, str]) -> dict[str, list[str]]:
    """The places of each name."""
    places: dict[str, list[str]] = {}
    for place, names in table.items():
        for name in names.split():
            places.setdefault(name, []).append(place)
    return places


def _reasons(table: Mapping[str, Mapping[str, str]]) -> dict[tuple[str, str], str]:
    """Return the explanation for each pair (setting, similar name)."""
    return {
        (place, name): reason
        for place, reasons in table.items()
        for reason, names in reasons.items()
        for name in names.split()
    }


SAME = _by_name(_SAME)
"""Maps each accepted name to the settings that it can mean."""
DIFFERENT = _reasons(_NEAREST)
"""Maps each pair (setting, similar name in another library) to an explanation of how the two differ."""
OPTIONS = {name: option for option, names in _SAME_OPTIONS.items() for name in names.split()}
"""Maps each accepted name to an option of `qkv train`."""
DIFFERENT_OPTIONS = {name: (option, reason) for (option, name), reason in _reasons(_NEAREST_OPTIONS).items()}
"""Maps each name in another library to the most similar option of `qkv train` and an explanation of how the two differ."""
CLAUSES = {name: clause for clause, names in _CLAUSES.items() for name in names.split()}
"""Maps each name in another library to a clause that says what to use in qkv."""

SYNONYMS: dict[str, list[str]] = {name: list(places) for name, places in SAME.items()}
"""Maps each name in another library to the settings with the same or a similar meaning."""
for _place, _name in DIFFERENT:
    SYNONYMS.setdefault(_name, []).append(_place)
