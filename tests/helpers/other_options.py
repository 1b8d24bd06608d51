"""The options of other libraries, and docs/options.md, which says what each is in qkv.

`python tests/helpers/other_options.py` writes that page.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from pathlib import Path

import qkv
from qkv.core.synonyms.keywords import ARGUMENTS, IN_SPECS
from qkv.core.synonyms.table import (
    CLAUSES,
    DIFFERENT,
    DIFFERENT_OPTIONS,
    OPTIONS,
    SAME,
)
from qkv.runs.recipes.keys import keys
from qkv.runs.recipes.recipe import Recipe, tree
from qkv.runs.recipes.sizes import sizes_of

PAGE = Path(__file__).parents[2] / "docs" / "options.md"

# The options of the libraries, as their versions of 2026 list them; `test_the_lists_are_those_of_transformers` compares.
GENERATION = """max_length max_new_tokens min_length min_new_tokens early_stopping max_time stop_strings do_sample
num_beams use_mtp use_cache cache_implementation cache_config max_cache_len temperature top_k top_p min_p top_h typical_p
epsilon_cutoff eta_cutoff repetition_penalty encoder_repetition_penalty length_penalty no_repeat_ngram_size bad_words_ids
renormalize_logits forced_bos_token_id forced_eos_token_id remove_invalid_values exponential_decay_length_penalty
suppress_tokens begin_suppress_tokens sequence_bias token_healing guidance_scale watermarking_config num_return_sequences
output_attentions output_hidden_states output_scores output_logits return_dict_in_generate pad_token_id bos_token_id
eos_token_id encoder_no_repeat_ngram_size decoder_start_token_id is_assistant num_assistant_tokens
num_assistant_tokens_schedule assistant_confidence_threshold prompt_lookup_num_tokens max_matching_ngram_size
assistant_early_exit assistant_lookbehind target_lookbehind assistant_ensemble_weight speculation_type compile_config
disable_compile continuous_batching_config low_memory penalty_alpha dola_layers diversity_penalty num_beam_groups
constraints force_words_ids prefill_chunk_size"""
TRAINING = """output_dir per_device_train_batch_size num_train_epochs max_steps learning_rate lr_scheduler_type
lr_scheduler_kwargs warmup_steps optim optim_args weight_decay adam_beta1 adam_beta2 adam_epsilon optim_target_modules
gradient_accumulation_steps average_tokens_across_devices max_grad_norm label_smoothing_factor bf16 fp16 bf16_full_eval
fp16_full_eval tf32 activation_checkpointing activation_checkpointing_kwargs gradient_checkpointing
gradient_checkpointing_kwargs torch_compile torch_compile_backend torch_compile_mode use_liger_kernel liger_kernel_config
use_cache neftune_noise_alpha torch_empty_cache_steps auto_find_batch_size logging_strategy logging_steps
logging_first_step log_on_each_node logging_nan_inf_filter include_num_input_tokens_seen log_level log_level_replica
disable_tqdm report_to run_name project trackio_space_id trackio_bucket_id trackio_static_space_id eval_strategy
eval_steps eval_delay per_device_eval_batch_size prediction_loss_only eval_on_start eval_do_concat_batches
eval_use_gather_object eval_accumulation_steps include_for_metrics batch_eval_metrics save_only_model save_strategy
save_steps save_on_each_node save_total_limit enable_jit_checkpoint push_to_hub hub_token hub_private_repo hub_model_id
hub_strategy hub_always_push hub_revision load_best_model_at_end metric_for_best_model greater_is_better ignore_data_skip
restore_callback_states_from_checkpoint full_determinism seed data_seed use_cpu accelerator_config parallelism_config
dataloader_drop_last dataloader_num_workers dataloader_pin_memory dataloader_persistent_workers dataloader_prefetch_factor
dataloader_multiprocessing_context dataloader_in_order remove_unused_columns label_names train_sampling_strategy
length_column_name ddp_find_unused_parameters ddp_bucket_cap_mb ddp_broadcast_buffers ddp_static_graph ddp_backend
ddp_timeout fsdp fsdp_config deepspeed debug skip_memory_metrics do_train do_eval do_predict resume_from_checkpoint
local_rank"""
CONFIGURATION = """architectures dtype is_encoder_decoder id2label label2id problem_type model_type vocab_size hidden_size
intermediate_size num_hidden_layers num_attention_heads num_key_value_heads hidden_act max_position_embeddings
initializer_range rms_norm_eps pretraining_tp tie_word_embeddings rope_parameters rope_theta rope_scaling attention_bias
attention_dropout mlp_bias head_dim n_positions n_embd n_layer n_head n_inner activation_function resid_pdrop embd_pdrop
attn_pdrop layer_norm_epsilon summary_type summary_use_proj summary_activation summary_proj_to_labels
summary_first_dropout scale_attn_weights scale_attn_by_inverse_layer_idx reorder_and_upcast_attn add_cross_attention
hidden_dropout_prob attention_probs_dropout_prob type_vocab_size layer_norm_eps classifier_dropout is_decoder d_model d_kv
d_ff num_layers num_decoder_layers num_heads relative_attention_num_buckets relative_attention_max_distance dropout_rate
initializer_factor feed_forward_proj dense_act_fn is_gated_act encoder_layers encoder_ffn_dim encoder_attention_heads
decoder_layers decoder_ffn_dim decoder_attention_heads encoder_layerdrop decoder_layerdrop dropout activation_dropout
init_std scale_embedding sliding_window num_experts_per_tok num_local_experts router_aux_loss_coef router_jitter_noise
image_size patch_size num_channels attn_implementation"""
CALLS = """input_ids attention_mask token_type_ids position_ids past_key_values inputs_embeds labels use_cache
output_attentions output_hidden_states return_dict logits_to_keep decoder_input_ids decoder_attention_mask encoder_outputs
logits torch_dtype device_map trust_remote_code load_in_4bit load_in_8bit quantization_config cache_dir revision token
low_cpu_mem_usage train_dataset eval_dataset processing_class streamer logits_processor stopping_criteria assistant_model
pretrained_model_name_or_path inputs generation_config use_safetensors weights_only gguf_file subfolder variant
ignore_mismatched_sizes key_mapping output_loading_info state_dict from_tf from_flax tp_plan tp_size device_mesh"""
LITGPT = """save_interval log_interval global_batch_size micro_batch_size lr_warmup_steps lr_warmup_fraction epochs
max_tokens max_steps max_time max_seq_length tie_embeddings max_norm min_lr max_iters initial_validation final_validation
evaluate_example block_size n_layer n_embd padded_vocab_size norm_class_name norm_eps norm_qk norm_qk_type
post_attention_norm post_mlp_norm parallel_residual shared_attention_norm n_head head_size n_query_groups attn_bias
attention_scores_scalar sliding_window_size sliding_window_indices attention_logit_softcapping rope_base rotary_percentage
rope_condense_ratio rope_adjustments intermediate_size moe_intermediate_size bias mlp_class_name gelu_approximate n_expert
n_shared_expert n_expert_per_token norm_topk_prob scale_embeddings lm_head_bias final_logit_softcapping latent_attention
checkpoint_dir out_dir precision quantize devices num_nodes lora_r lora_alpha lora_dropout lora_query lora_key lora_value
lora_projection lora_mlp lora_head logger_name access_token"""
X_TRANSFORMERS = """dim depth heads dim_head causal cross_attend num_tokens max_seq_len emb_dropout attn_dropout
ff_dropout layer_dropout ff_mult ff_glu ff_swish ff_relu_squared use_rmsnorm use_scalenorm use_simple_rmsnorm
rotary_pos_emb rotary_emb_dim rotary_xpos rotary_interpolation_factor alibi_pos_bias alibi_num_heads rel_pos_bias
rel_pos_num_buckets rel_pos_max_distance dynamic_pos_bias attn_flash attn_kv_heads attn_one_kv_head attn_qk_norm
tie_embedding use_abs_pos_emb scaled_sinu_pos_emb sandwich_norm pre_norm pre_norm_has_final_norm macaron num_memory_tokens
attn_num_mem_kv attn_sparse_topk attn_talking_heads weight_tie_layers residual_attn cross_residual_attn gate_residual
shift_tokens attn_max_attend_past post_emb_norm l2norm_embed softclamp_output pad_value seq_len eos_token filter_logits_fn
filter_kwargs cache_kv return_embeddings use_cls_token average_pool_embed tie_token_emb image_size patch_size num_classes
channels temperature"""
FAIRSEQ = """arch task criterion optimizer lr lr_scheduler max_epoch max_update stop_time_hours clip_norm sentence_avg
update_freq stop_min_lr warmup_updates total_num_update adam_betas adam_eps weight_decay label_smoothing save_dir
restore_file finetune_from_model reset_dataloader reset_lr_scheduler reset_meters reset_optimizer optimizer_overrides
save_interval save_interval_updates keep_interval_updates keep_last_epochs keep_best_checkpoints no_save
no_epoch_checkpoints no_last_checkpoints no_save_optimizer_state best_checkpoint_metric maximize_best_checkpoint_metric
patience write_checkpoints_asynchronously num_workers skip_invalid_size_inputs_valid_test max_tokens batch_size
required_batch_size_multiple dataset_impl data_buffer_size train_subset valid_subset validate_interval
validate_interval_updates validate_after_updates disable_validation max_tokens_valid batch_size_valid max_valid_steps
curriculum gen_subset no_progress_bar log_interval log_format log_file tensorboard_logdir wandb_project seed cpu fp16
memory_efficient_fp16 amp user_dir empty_cache_freq model_parallel_size profile distributed_world_size distributed_rank
distributed_backend ddp_backend ddp_comm_hook bucket_cap_mb find_unused_parameters heartbeat_timeout nprocs_per_node
pipeline_model_parallel zero_sharding cpu_offload encoder_embed_dim decoder_embed_dim encoder_ffn_embed_dim
decoder_ffn_embed_dim encoder_layers decoder_layers encoder_attention_heads decoder_attention_heads
encoder_normalize_before decoder_normalize_before encoder_learned_pos decoder_learned_pos encoder_layerdrop
decoder_layerdrop encoder_embed_path activation_fn dropout attention_dropout activation_dropout relu_dropout
max_source_positions max_target_positions share_decoder_input_output_embed share_all_embeddings
no_token_positional_embeddings adaptive_input adaptive_softmax_cutoff layernorm_embedding no_scale_embedding
checkpoint_activations offload_activations no_cross_attention cross_self_attention char_inputs no_decoder_final_norm
source_lang target_lang truncate_source num_batch_buckets eval_bleu eval_bleu_print_samples sample_break_mode
tokens_per_sample output_dictionary_size add_bos_token shorten_method beam nbest max_len_a max_len_b min_len unnormalized
no_early_stop no_beamable_mm lenpen unkpen replace_unk sacrebleu score_reference no_repeat_ngram_size sampling
sampling_topk sampling_topp constraints temperature diverse_beam_groups diverse_beam_strength diversity_rate
print_alignment lm_path lm_weight results_path quiet context_window ema_decay store_ema"""
MORE = """num_labels num_experts n_routed_experts final_logit_softcapping norm_topk_prob
moe_intermediate_size moe_num_experts moe_top_k num_kv_heads ffn_dim n_ctx add_pooling_layer
attn_logit_softcapping query_pre_attn_scalar jitter_noise norm_epsilon hidden_dropout hidden_activation
multi_query alibi position_embedding_type qkv_bias use_parallel_residual parallel_attn partial_rotary_factor rotary_pct
rope_interleave use_qk_norm qk_layernorm drop_path_rate layerdrop attention_type classifier_pooling kv_lora_rank q_lora_rank
routed_scaling_factor first_k_dense_replace decoder_sparse_step chunk_size_feed_forward output_router_logits
normalize_before stochastic_depth warmup_ratio num_warmup_steps evaluation_strategy half_precision_backend logging_dir
group_by_length sharded_ddp early_stopping_patience early_stopping_threshold compute_metrics generation_num_beams
generation_max_length predict_with_generate overwrite_output_dir no_cuda save_safetensors include_tokens_per_second
model_name_or_path train_file validation_file test_file dataset_name max_eval_samples max_predict_samples
max_source_length max_target_length tokenizer_name use_fast text_column label_column input_features pixel_values
input_values cache_position past_key_value num_items_in_batch last_hidden_state decoder_inputs_embeds head_mask
stop_sequences prefix_allowed_tokens_fn use_flash_attention_2 local_files_only force_download use_auth_token hf_token
offload_folder max_memory safe_serialization skip_special_tokens add_special_tokens text_pair return_tensors padding
truncation return_offsets_mapping return_attention_mask return_token_type_ids padding_side model_max_length bos_token
pad_token set_seed train_batch_size eval_batch_size max_length"""
PEFT = "r lora_alpha lora_dropout target_modules modules_to_save use_rslora peft_config base_model"
TRL = """padding_free dataset_text_field chat_template_path max_seq_length max_length packing peft_config
tokenizer_name_or_path"""
NANOGPT = """n_layer n_head n_embd block_size bias dropout out_dir eval_interval log_interval eval_iters
always_save_checkpoint init_from wandb_log wandb_project dataset gradient_accumulation_steps batch_size learning_rate
max_iters weight_decay beta1 beta2 grad_clip decay_lr warmup_iters lr_decay_iters min_lr device dtype compile"""
JOEYNMT = """random_seed optimizer learning_rate learning_rate_min learning_rate_warmup weight_decay clip_grad_norm
clip_grad_val batch_size batch_multiplier scheduling patience label_smoothing epochs updates validation_freq logging_freq
early_stopping_metric model_dir load_model keep_best_ckpts use_cuda num_workers max_output_length min_output_length
beam_size beam_alpha n_best max_sent_length voc_limit src trg embedding_dim ff_size hidden_size num_heads num_layers
activation normalization overwrite"""
LIGHTNING = """accelerator devices num_nodes max_epochs max_steps max_time accumulate_grad_batches gradient_clip_val
val_check_interval check_val_every_n_epoch log_every_n_steps limit_val_batches limit_test_batches default_root_dir
save_top_k monitor every_n_train_steps ckpt_path precision stochastic_weight_avg"""
PYTORCH = """nhead dim_feedforward num_encoder_layers num_decoder_layers embed_dim num_heads add_zero_kv is_causal
num_threads manual_seed num_workers max_norm lr betas eps"""
ACCELERATE = "mixed_precision num_processes"
X_TRANSFORMERS_TOO = """kv_heads attn_dim_head one_kv_head mult no_bias ff_no_bias qk_rmsnorm attn_qk_rmsnorm
logit_softclamp_value softclamp_logits softclamp_output_value swish relu_squared solu pre_and_post_norm polar_pos_emb
rotary_base_rescale_factor disable_abs_pos_emb tie_embedding_scale max_attend_past attn_head_learned_sink head_learned_sink
attn_add_zero_kv sigmoid flash only_cross onnxable num_output_heads use_latent_q use_latent_kv dim_latent_kv dim_latent_q
talking_heads pre_talking_heads post_talking_heads num_mem_kv unet_skips recycling mixture_of_softmax
num_residual_streams use_dynamic_tanh return_only_embed return_intermediates prompts amateur_model
contrastive_decode_kwargs max_mem_len"""
FAIRSEQ_TOO = """max_sentences decoder_embed_path residual_dropout adaptive_softmax_dropout adaptive_softmax_factor
tie_adaptive_weights quant_noise quant_noise_pq macaron_net min_loss_scale fp16_init_scale amp_init_scale aim_repo
azureml_logging distributed_port distributed_init_method distributed_num_procs broadcast_buffers tpu tpu_num_cores
required_seq_len_multiple num_shards shard_id continue_once device_id iter_decode_max_iter scoring"""

LISTS = (GENERATION, TRAINING, CONFIGURATION, CALLS, LITGPT, X_TRANSFORMERS, FAIRSEQ)
LIBRARIES = {
    "transformers": (GENERATION, TRAINING, CONFIGURATION, CALLS, MORE),
    "PEFT": (PEFT,),
    "TRL": (TRL,),
    "accelerate": (ACCELERATE,),
    "LitGPT": (LITGPT,),
    "x-transformers": (X_TRANSFORMERS, X_TRANSFORMERS_TOO),
    "fairseq": (FAIRSEQ, FAIRSEQ_TOO),
    "nanoGPT": (NANOGPT,),
    "JoeyNMT": (JOEYNMT,),
    "Lightning": (LIGHTNING,),
    "PyTorch": (PYTORCH,),
}

BEGINNING = """# Options of other libraries

qkv accepts the name of another library's option if it means exactly the same as an option of qkv, in the same unit. The name
can be used

- in `qkv.preset(…)`,
- in recipes and settings: `learning_rate=3e-4`, `training.learning_rate=3e-4`, `model.hidden_size=64`,
- in `changes` and keywords of `qkv.train`, and in keywords of `qkv.load`,
- in the constructors of specs and their `replace`: `qkv.Attention(num_attention_heads=8)`,
- in `Generation` and the options of `generate`,
- as an option of `qkv train` and `qkv generate`.

Runs and specs contain only qkv's names. An option that is given by two names is refused.

Every other name is refused with a message that says what to use instead. Three groups of names look the same as options of
qkv but mean something else:

- Dropout of the hidden states (`hidden_dropout_prob`, `resid_pdrop`, `dropout_rate` …): each architecture applies dropout in
  different places. The preset of an architecture applies `dropout` in the same places as the original, so a value for one
  architecture trains a different model with another.
- Windows (`sliding_window`, `max_attend_past` …): in transformers, other keys of the configuration decide which layers have
  a window, and only some libraries count the token itself. `windows` gives the number of tokens for each layer.
- Positions (`rope_theta`, `rope_scaling`, `alibi` …): each describes a part of a scheme. `position` describes the whole.

`qkv.load` reads all of these from a directory's `config.json` if they belong to its family.

The names come from transformers (`GenerationConfig`, `TrainingArguments`, configurations, `forward`, `from_pretrained`),
PEFT, TRL, accelerate, LitGPT, x-transformers, fairseq, nanoGPT, JoeyNMT, Lightning and PyTorch; names without a library are
common in other code.
`python tests/helpers/other_options.py` writes this page from the tables in `src/qkv/core/synonyms`, and
`tests/core/test_synonyms.py` tries every name.
"""
SETTINGS = """
## Settings

A name that matches several settings, such as `block_size`, is accepted only in a part of a recipe: `batching.block_size`.

| in qkv | accepted names | refused names, and what the option is in qkv |
|---|---|---|
"""
COMMAND = """
## Options of commands

| in qkv | accepted names | refused names, and what the option is in qkv |
|---|---|---|
"""
FUNCTIONS = """
## Python arguments

`qkv.train` also accepts each name of the first table that matches a single setting: `qkv.train("lm", learning_rate=3e-4)`.

| function | in qkv | accepted names |
|---|---|---|
"""
CALLS_BY = {"generate": "model.generate", "load": "qkv.load", "train": "qkv.train"}
SPECS = """
## Fields of specs

The fields of a spec accept the names that the first table lists for these settings. A row for a role applies to each of
its classes that has such a field, unless the class has its own row.

| class or role | fields |
|---|---|
"""
REST = """
## Options without a setting

| what the message says | names |
|---|---|
"""


def libraries(name: str) -> list[str]:
    """The libraries that have an option."""
    return [library for library, lists in LIBRARIES.items() if name in " ".join(lists).split()]


def _named(names: Iterable[str]) -> str:
    shown = ((name, ", ".join(libraries(name))) for name in names)
    return ", ".join(f"`{name}`" + (f" ({found})" if found else "") for name, found in shown)


def _grouped(pairs: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    groups: dict[str, list[str]] = {}
    for key, name in pairs:
        groups.setdefault(key, []).append(name)
    return groups


def _rows(same: Mapping[str, list[str]], different: Mapping[str, Mapping[str, list[str]]]) -> str:
    lines = []
    for place in dict.fromkeys([*same, *different]):
        told = [f"{reason}: {_named(names)}" for reason, names in different.get(place, {}).items()]
        lines.append(f"| `{place}` | {_named(same.get(place, ()))} | {'; '.join(told)} |\n")
    return "".join(lines).replace("|  |", "| |").replace("|  |", "| |")


def _by_reason(triples: Iterable[tuple[str, str, str]]) -> dict[str, dict[str, list[str]]]:
    found: dict[str, dict[str, list[str]]] = {}
    for place, reason, name in triples:
        found.setdefault(place, {}).setdefault(reason, []).append(name)
    return found


def names_here() -> set[str]:
    """The names that qkv has too, as settings, sizes, keywords or options."""
    whole = {key.rpartition(".")[2] for part in Recipe.model_fields for key in keys(tree("lm"), [part], Recipe)}
    sizes = {name for preset in ("gpt", "t5-small", "bart-base", "vit-base-16") for name in sizes_of(preset)}
    called = {
        name
        for one in (qkv.load, qkv.train, qkv.TransformerModel.forward)
        for name in inspect.signature(one).parameters
    }
    return whole | sizes | called | set(Recipe.model_fields) | set(qkv.Generation.model_fields)


def text() -> str:
    """What the page should hold."""
    settings = _rows(
        _grouped((place, name) for name, places in SAME.items() for place in places),
        _by_reason((place, reason, name) for (place, name), reason in DIFFERENT.items()),
    )
    options = _rows(
        _grouped((option, name) for name, option in OPTIONS.items()),
        _by_reason((option, reason, name) for name, (option, reason) in DIFFERENT_OPTIONS.items()),
    )
    arguments = "".join(
        f"| `{CALLS_BY[function]}` | `{ours}` | {_named(names)} |\n"
        for function, theirs in ARGUMENTS.items()
        for ours, names in _grouped((ours, name) for name, ours in theirs.items()).items()
    )
    specs = "".join(
        f"| `{name}` | {', '.join(f'`{place}`' for place in places)} |\n" for name, places in IN_SPECS.items()
    )
    clauses = _grouped((clause, name) for name, clause in CLAUSES.items())
    rest = "".join(f"| {clause.replace('|', chr(92) + '|')} | {_named(names)} |\n" for clause, names in clauses.items())
    return f"{BEGINNING}{SETTINGS}{settings}{COMMAND}{options}{FUNCTIONS}{arguments}{SPECS}{specs}{REST}{rest}"


if __name__ == "__main__":
    PAGE.write_text(text(), encoding="utf-8")
    print(
        f"{len({*SAME, *(name for _, name in DIFFERENT), *OPTIONS, *DIFFERENT_OPTIONS, *CLAUSES})} names, written to {PAGE}"
    )
