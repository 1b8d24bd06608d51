"""Each row of the table is answered as a setting, as an option of the command line and as a keyword, with what exists."""

from __future__ import annotations

import inspect
import re
import warnings
from typing import Any

import pytest
import torch
import typer

import qkv
from qkv.cli import app
from qkv.cli import train as command
from qkv.cli.errors import describe
from qkv.core.synonyms import elsewhere
from qkv.core.synonyms.table import CLAUSES, OPTIONS, REMARKS, SYNONYMS
from qkv.io.families.named import PRESETS
from qkv.runs.recipes.keys import keys
from qkv.runs.recipes.recipe import Recipe, tree
from qkv.runs.recipes.sizes import sizes_of

NAMES = [*SYNONYMS, *OPTIONS, *CLAUSES]
PLACES = sorted({place for places in SYNONYMS.values() for place in places})

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
low_cpu_mem_usage train_dataset eval_dataset processing_class streamer logits_processor stopping_criteria assistant_model"""
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
LISTS = (GENERATION, TRAINING, CONFIGURATION, CALLS, LITGPT, X_TRANSFORMERS, FAIRSEQ)


def ours() -> set[str]:
    """The names that qkv has too, as settings, sizes, keywords or options."""
    whole = {key.rpartition(".")[2] for part in Recipe.model_fields for key in keys(tree("lm"), [part], Recipe)}
    sizes = {name for preset in ("gpt", "t5-small", "bart-base", "vit-base-16") for name in sizes_of(preset)}
    called = {
        name
        for one in (qkv.load, qkv.train, qkv.TransformerModel.forward)
        for name in inspect.signature(one).parameters
    }
    return whole | sizes | called | set(Recipe.model_fields) | set(qkv.Generation.model_fields)


def test_every_usual_option_of_other_libraries_is_ours_or_told() -> None:
    mine = ours()
    missing = [name for names in LISTS for name in names.split() if name not in mine and elsewhere(name) is None]
    assert not missing


@pytest.mark.slow
def test_the_lists_are_those_of_transformers() -> None:
    transformers = pytest.importorskip("transformers")
    named = set(vars(transformers.GenerationConfig())) - {"_from_model_config", "transformers_version"}
    mine = ours()
    assert not [name for name in named | set(TRAINING.split()) if name not in mine and elsewhere(name) is None]
    fields = transformers.TrainingArguments.__dataclass_fields__
    assert not [name for name in fields if name not in mine and elsewhere(name) is None]


def exists(place: str) -> bool:
    if place.startswith("model."):
        return place in ("model.preset", "model.weights") or any(place[6:] in sizes_of(preset) for preset in PRESETS)
    *path, _ = place.split(".")
    data = tree("translate" if place in ("data.source", "data.target") else "lm")
    data["training"]["schedule"], data["adapter"] = {"kind": "cosine"}, {"kind": "lora"}
    return place in Recipe.model_fields or place in set(keys(data, path, Recipe))


@pytest.mark.parametrize("place", PLACES)
def test_every_place_that_is_named_exists(place: str) -> None:
    assert exists(place) or (place == "model.initialization" and "initialization" in qkv.Transformer.model_fields)


@pytest.mark.parametrize("option", sorted(set(OPTIONS.values())))
def test_every_option_that_is_named_exists(option: str) -> None:
    assert option.removeprefix("--") in inspect.signature(command.train).parameters


def test_clauses_name_commands_names_and_options_that_exist() -> None:
    options = set()
    for name in app.COMMANDS:
        found: Any = typer.main.get_command(app.app).get_command(None, name)  # type: ignore[arg-type, attr-defined]
        options |= {option for each in found.params for option in each.opts}
    for clause in set(CLAUSES.values()):
        assert set(re.findall(r"--[a-z-]+", clause)) <= options, clause
        assert all(name in app.COMMANDS for name in re.findall(r"`qkv (\w+)", clause)), clause
        for name in re.findall(r"\bqkv\.([A-Z]\w+|load|train|record_attention)\b", clause):
            assert name in qkv.__all__, clause
        for place in re.findall(r"\b((?:training|batching)\.\w+)", clause):
            assert exists(place), clause
    assert REMARKS.keys() <= {*PLACES, *SYNONYMS}


def test_each_row_is_answered_as_a_keyword_and_however_it_is_spelled() -> None:
    for name in NAMES:
        clause = elsewhere(name)
        assert clause and "\n" not in clause
        assert elsewhere(f"--{name.replace('_', '-')}".upper()) == clause
        if name not in qkv.Generation.model_fields:
            with pytest.raises(ValueError) as error:
                qkv.Generation(**{name: 1})
            assert elsewhere(name, qkv.Generation.model_fields) in str(error.value)


@pytest.mark.parametrize("name", sorted(set(NAMES) - ours())[::40])
def test_a_row_is_answered_where_it_is_typed(name: str) -> None:
    given: dict[str, Any] = {name: 1}
    for function in (qkv.train, qkv.load):
        with pytest.raises(ValueError) as error:
            function("lm", **given)
        assert str(elsewhere(name, inspect.signature(function).parameters)) in str(error.value)
    with pytest.raises(ValueError) as error:
        Recipe.load("lm", [f"{name}=1"])
    assert str(elsewhere(name)) in str(error.value)
    found: Any = typer.main.get_command(app.app).get_command(None, "train")  # type: ignore[arg-type, attr-defined]
    with pytest.raises(Exception) as wrong:
        found.make_context("train", ["lm", f"--{name}", "1"])
    status, said = describe(wrong.value)  # type: ignore[arg-type]
    assert status == 2 and said.startswith(f"there is no option --{name}; ")


def model() -> Any:
    return qkv.build(qkv.preset("gpt2", d_model=16, n_layers=1, n_heads=2, vocab_size=30))


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda m, ids: m(input_ids=ids), "a model takes ids first, model(ids), and gives the tensor of logits itself"),
        (lambda m, ids: m(ids, return_dict=True), "gives the tensor of logits itself"),
        (
            lambda m, ids: m(ids, attention_maks=ids),
            "a model has no argument 'attention_maks'; did you mean 'attention_mask'?",
        ),
        (lambda m, ids: m(), "ids is missing"),
        (lambda m, ids: m.generate(ids, eos_token_id=2), "model.generate takes eos_id"),
        (lambda m, ids: m.generate(input_ids=ids), "a model takes ids first"),
        (lambda m, ids: m.generate(ids, max_length=9), "it is max_new_tokens here (the prompt is not counted)"),
        (lambda m, ids: qkv.preset("gpt2", n_embd=64), "it is d_model here"),
        (lambda m, ids: qkv.Attention(n_heads=2, num_key_value_heads=1), "it is n_kv_heads here"),
        (lambda m, ids: m.spec.replace(hidden_size=3), "it is d_model here"),
        (lambda m, ids: qkv.train("lm", num_train_epochs=3), "changes={'training.max_epochs': …}"),
        (lambda m, ids: qkv.train("lm", output_dir="x"), "it is out here"),
        (lambda m, ids: qkv.load("x", device_map="cpu"), "it is device here"),
        (lambda m, ids: qkv.load("x", torch_dtype="bf16"), "qkv.load takes dtype="),
    ],
)
def test_keywords_of_other_libraries_are_told_ours(call: Any, said: str) -> None:
    with pytest.raises(ValueError) as error:
        call(model(), torch.arange(6)[None])
    assert said in str(error.value)


def test_underscores_in_options_are_dashes() -> None:
    found: Any = typer.main.get_command(app.app).get_command(None, "generate")  # type: ignore[arg-type, attr-defined]
    context = found.make_context("generate", ["run", "--max_new_tokens=4", "--top_k", "3", "--", "--top_p"])
    assert (context.params["max_new_tokens"], context.params["top_k"]) == (4, 3)
    assert "--top_p" in context.params["texts"]


def test_labels_that_equal_the_ids_are_told_once() -> None:
    ids, one = torch.arange(6)[None], model()
    with pytest.warns(UserWarning, match="labels are the next tokens here"):
        one(ids, labels=ids)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        one(ids, labels=ids)
        model()(ids[:, :-1], labels=ids[:, 1:])
        model()(torch.full((1, 6), 3), labels=torch.full((1, 6), 3))  # the next tokens of a constant text
        encoder = qkv.build(qkv.preset("bert-base", d_model=16, n_layers=1, n_heads=2, vocab_size=30))
        encoder(ids, labels=ids)


def test_names_of_transformers_load_and_save(tmp_path: Any) -> None:
    assert model().save_pretrained(tmp_path / "model")
    run = qkv.from_pretrained(tmp_path / "model")
    assert (
        run.save_pretrained(tmp_path / "again")
        and qkv.from_pretrained(tmp_path / "again", device="cpu").model.spec == run.model.spec
    )
