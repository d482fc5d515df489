#!/usr/bin/env python3
"""Counts the parameters of public models with transformers, on the meta device: no weights are made.

  count_parameters.py > tests/hf/public_models.jsonl      (with the packages of tools/setup.sh --hf)

One line per model: its name, the keys of its published config.json that set sizes, and the count. tests/hf/counts_test.cc
compares our models, built from the same keys, with the counts.
"""

import json
import os

os.environ["TRANSFORMERS_VERBOSITY"] = "error"
import torch
import transformers

CLASSES = {"llama": "LlamaConfig", "mistral": "MistralConfig", "qwen2": "Qwen2Config", "qwen3": "Qwen3Config", "gpt2": "GPT2Config",
           "mixtral": "MixtralConfig", "qwen2_moe": "Qwen2MoeConfig", "qwen3_moe": "Qwen3MoeConfig", "deepseek_v2": "DeepseekV2Config",
           "deepseek_v3": "DeepseekV3Config", "gemma2": "Gemma2Config", "gemma3_text": "Gemma3TextConfig", "olmo2": "Olmo2Config",
           "smollm3": "SmolLM3Config", "phi3": "Phi3Config", "gpt_neox": "GPTNeoXConfig", "glm4_moe": "Glm4MoeConfig",
           "gpt_oss": "GptOssConfig", "dbrx": "DbrxConfig", "llama4_text": "Llama4TextConfig", "bert": "BertConfig"}


def dense(layers, embed, ffn, heads, kv, vocab, tied=False, **more):
    return dict(num_hidden_layers=layers, hidden_size=embed, intermediate_size=ffn, num_attention_heads=heads, num_key_value_heads=kv,
                vocab_size=vocab, tie_word_embeddings=tied, **more)


def gpt2(layers, embed, heads):
    return dict(n_layer=layers, n_embd=embed, n_head=heads, n_positions=1024, vocab_size=50257)


def bert(layers, embed, heads, vocab):
    return dict(num_hidden_layers=layers, hidden_size=embed, intermediate_size=4 * embed, num_attention_heads=heads, vocab_size=vocab)


def neox(layers, embed, heads, vocab):
    return dict(num_hidden_layers=layers, hidden_size=embed, intermediate_size=4 * embed, num_attention_heads=heads, vocab_size=vocab,
                rotary_pct=0.25)


def glm4_moe(layers, embed, ffn, experts, expert_ffn, **more):
    return dense(layers, embed, ffn, 96, 8, 151552, head_dim=128, attention_bias=True, n_routed_experts=experts, n_shared_experts=1,
                 num_experts_per_tok=8, moe_intermediate_size=expert_ffn, partial_rotary_factor=0.5, num_nextn_predict_layers=0, **more)


NO_IDS = dict(pad_token_id=None, bos_token_id=None, eos_token_id=None)


def qwen3_moe(layers, embed, ffn, heads, expert_ffn, kv=4):
    return dense(layers, embed, ffn, heads, kv, 151936, head_dim=128, num_experts=128, num_experts_per_tok=8, moe_intermediate_size=expert_ffn,
                 norm_topk_prob=True, decoder_sparse_step=1, mlp_only_layers=[])


MLA = dict(kv_lora_rank=512, qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128)
MODELS = [
    ("llama-7b", "llama", dense(32, 4096, 11008, 32, 32, 32000)),
    ("llama-13b", "llama", dense(40, 5120, 13824, 40, 40, 32000)),
    ("llama-30b", "llama", dense(60, 6656, 17920, 52, 52, 32000)),
    ("llama-65b", "llama", dense(80, 8192, 22016, 64, 64, 32000)),
    ("Llama-2-7b", "llama", dense(32, 4096, 11008, 32, 32, 32000)),
    ("Llama-2-13b", "llama", dense(40, 5120, 13824, 40, 40, 32000)),
    ("Llama-2-70b", "llama", dense(80, 8192, 28672, 64, 8, 32000)),
    ("Meta-Llama-3-8B", "llama", dense(32, 4096, 14336, 32, 8, 128256)),
    ("Meta-Llama-3-70B", "llama", dense(80, 8192, 28672, 64, 8, 128256)),
    ("Llama-3.1-405B", "llama", dense(126, 16384, 53248, 128, 8, 128256)),
    ("Llama-3.2-1B", "llama", dense(16, 2048, 8192, 32, 8, 128256, True, head_dim=64)),
    ("Llama-3.2-3B", "llama", dense(28, 3072, 8192, 24, 8, 128256, True, head_dim=128)),
    ("CodeLlama-7b", "llama", dense(32, 4096, 11008, 32, 32, 32016)),
    ("CodeLlama-13b", "llama", dense(40, 5120, 13824, 40, 40, 32016)),
    ("CodeLlama-34b", "llama", dense(48, 8192, 22016, 64, 8, 32000)),
    ("TinyLlama-1.1B", "llama", dense(22, 2048, 5632, 32, 4, 32000)),
    ("SmolLM2-135M", "llama", dense(30, 576, 1536, 9, 3, 49152, True)),
    ("SmolLM2-360M", "llama", dense(32, 960, 2560, 15, 5, 49152, True)),
    ("SmolLM2-1.7B", "llama", dense(24, 2048, 8192, 32, 32, 49152, True)),
    ("Yi-6B", "llama", dense(32, 4096, 11008, 32, 4, 64000)),
    ("Yi-9B", "llama", dense(48, 4096, 11008, 32, 4, 64000)),
    ("Yi-34B", "llama", dense(60, 7168, 20480, 56, 8, 64000)),
    ("deepseek-llm-7b", "llama", dense(30, 4096, 11008, 32, 32, 102400)),
    ("deepseek-llm-67b", "llama", dense(95, 8192, 22016, 64, 8, 102400)),
    ("deepseek-coder-1.3b", "llama", dense(24, 2048, 5504, 16, 16, 32256)),
    ("deepseek-coder-33b", "llama", dense(62, 7168, 19200, 56, 8, 32256)),
    ("Llama-3.1-Minitron-4B-Width", "llama", dense(32, 3072, 9216, 32, 8, 128256, head_dim=128)),
    ("Mistral-7B-v0.1", "mistral", dense(32, 4096, 14336, 32, 8, 32000)),
    ("Mistral-7B-v0.3", "mistral", dense(32, 4096, 14336, 32, 8, 32768)),
    ("Mistral-Nemo-12B", "mistral", dense(40, 5120, 14336, 32, 8, 131072, head_dim=128)),
    ("Mistral-Small-22B", "mistral", dense(56, 6144, 16384, 48, 8, 32768)),
    ("Mistral-Small-24B", "mistral", dense(40, 5120, 32768, 32, 8, 131072, head_dim=128)),
    ("Mistral-Large-123B", "mistral", dense(88, 12288, 28672, 96, 8, 32768)),
    ("zephyr-7b", "mistral", dense(32, 4096, 14336, 32, 8, 32000)),
    ("Qwen1.5-0.5B", "qwen2", dense(24, 1024, 2816, 16, 16, 151936, True)),
    ("Qwen1.5-1.8B", "qwen2", dense(24, 2048, 5504, 16, 16, 151936)),
    ("Qwen1.5-4B", "qwen2", dense(40, 2560, 6912, 20, 20, 151936)),
    ("Qwen1.5-7B", "qwen2", dense(32, 4096, 11008, 32, 32, 151936)),
    ("Qwen1.5-14B", "qwen2", dense(40, 5120, 13696, 40, 40, 152064)),
    ("Qwen1.5-32B", "qwen2", dense(64, 5120, 27392, 40, 8, 152064)),
    ("Qwen1.5-72B", "qwen2", dense(80, 8192, 24576, 64, 64, 152064)),
    ("Qwen1.5-110B", "qwen2", dense(80, 8192, 49152, 64, 8, 152064)),
    ("Qwen2-0.5B", "qwen2", dense(24, 896, 4864, 14, 2, 151936, True)),
    ("Qwen2-1.5B", "qwen2", dense(28, 1536, 8960, 12, 2, 151936, True)),
    ("Qwen2-7B", "qwen2", dense(28, 3584, 18944, 28, 4, 152064)),
    ("Qwen2-72B", "qwen2", dense(80, 8192, 29568, 64, 8, 152064)),
    ("Qwen2.5-0.5B", "qwen2", dense(24, 896, 4864, 14, 2, 151936, True)),
    ("Qwen2.5-1.5B", "qwen2", dense(28, 1536, 8960, 12, 2, 151936, True)),
    ("Qwen2.5-3B", "qwen2", dense(36, 2048, 11008, 16, 2, 151936, True)),
    ("Qwen2.5-7B", "qwen2", dense(28, 3584, 18944, 28, 4, 152064)),
    ("Qwen2.5-14B", "qwen2", dense(48, 5120, 13824, 40, 8, 152064)),
    ("Qwen2.5-32B", "qwen2", dense(64, 5120, 27648, 40, 8, 152064)),
    ("Qwen2.5-72B", "qwen2", dense(80, 8192, 29568, 64, 8, 152064)),
    ("Qwen3-0.6B", "qwen3", dense(28, 1024, 3072, 16, 8, 151936, True, head_dim=128)),
    ("Qwen3-1.7B", "qwen3", dense(28, 2048, 6144, 16, 8, 151936, True, head_dim=128)),
    ("Qwen3-4B", "qwen3", dense(36, 2560, 9728, 32, 8, 151936, True, head_dim=128)),
    ("Qwen3-8B", "qwen3", dense(36, 4096, 12288, 32, 8, 151936, head_dim=128)),
    ("Qwen3-14B", "qwen3", dense(40, 5120, 17408, 40, 8, 151936, head_dim=128)),
    ("Qwen3-32B", "qwen3", dense(64, 5120, 25600, 64, 8, 151936, head_dim=128)),
    ("Qwen3-30B-A3B", "qwen3_moe", qwen3_moe(48, 2048, 6144, 32, 768)),
    ("Qwen3-235B-A22B", "qwen3_moe", qwen3_moe(94, 4096, 12288, 64, 1536)),
    ("Qwen1.5-MoE-A2.7B", "qwen2_moe", dense(24, 2048, 5632, 16, 16, 151936, num_experts=60, num_experts_per_tok=4,
                                              moe_intermediate_size=1408, shared_expert_intermediate_size=5632)),
    ("Qwen2-57B-A14B", "qwen2_moe", dense(28, 3584, 18944, 28, 4, 151936, num_experts=64, num_experts_per_tok=8, moe_intermediate_size=2560,
                                           shared_expert_intermediate_size=20480)),
    ("Mixtral-8x7B-v0.1", "mixtral", dense(32, 4096, 14336, 32, 8, 32000, num_local_experts=8, num_experts_per_tok=2)),
    ("Mixtral-8x22B-Instruct-v0.1", "mixtral", dense(56, 6144, 16384, 48, 8, 32768, num_local_experts=8, num_experts_per_tok=2)),
    ("DeepSeek-V2-Lite", "deepseek_v2", dense(27, 2048, 10944, 16, 16, 102400, **MLA, q_lora_rank=None, n_routed_experts=64,
                                              n_shared_experts=2, num_experts_per_tok=6, moe_intermediate_size=1408, first_k_dense_replace=1)),
    ("DeepSeek-V2", "deepseek_v2", dense(60, 5120, 12288, 128, 128, 102400, **MLA, q_lora_rank=1536, n_routed_experts=160, n_shared_experts=2,
                                         num_experts_per_tok=6, moe_intermediate_size=1536, first_k_dense_replace=1)),
    ("DeepSeek-V3", "deepseek_v3", dense(61, 7168, 18432, 128, 128, 129280, **MLA, q_lora_rank=1536, n_routed_experts=256, n_shared_experts=1,
                                         num_experts_per_tok=8, moe_intermediate_size=2048, first_k_dense_replace=3, n_group=8, topk_group=4)),
    ("gemma-2-2b", "gemma2", dense(26, 2304, 9216, 8, 4, 256000, True, head_dim=256)),
    ("gemma-2-9b", "gemma2", dense(42, 3584, 14336, 16, 8, 256000, True, head_dim=256)),
    ("gemma-2-27b", "gemma2", dense(46, 4608, 36864, 32, 16, 256000, True, head_dim=128, query_pre_attn_scalar=144)),
    ("gemma-3-270m", "gemma3_text", dense(18, 640, 2048, 4, 1, 262144, True, head_dim=256, sliding_window=512)),
    ("gemma-3-1b", "gemma3_text", dense(26, 1152, 6912, 4, 1, 262144, True, head_dim=256, sliding_window=512)),
    ("gemma-3-4b (text)", "gemma3_text", dense(34, 2560, 10240, 8, 4, 262208, True, head_dim=256, sliding_window=1024)),
    ("gemma-3-12b (text)", "gemma3_text", dense(48, 3840, 15360, 16, 8, 262208, True, head_dim=256, sliding_window=1024)),
    ("gemma-3-27b (text)", "gemma3_text", dense(62, 5376, 21504, 32, 16, 262208, True, head_dim=128, sliding_window=1024)),
    ("OLMo-2-0425-1B", "olmo2", dense(16, 2048, 8192, 16, 16, 100352)),
    ("OLMo-2-1124-7B", "olmo2", dense(32, 4096, 11008, 32, 32, 100352)),
    ("OLMo-2-1124-13B", "olmo2", dense(40, 5120, 13824, 40, 40, 100352)),
    ("OLMo-2-0325-32B", "olmo2", dense(64, 5120, 27648, 40, 8, 100352)),
    ("SmolLM3-3B", "smollm3", dense(36, 2048, 11008, 16, 4, 128256, True)),
    ("Phi-3-mini-4k", "phi3", dense(32, 3072, 8192, 32, 32, 32064, sliding_window=2047)),
    ("Phi-3-medium-4k", "phi3", dense(40, 5120, 17920, 40, 10, 32064, sliding_window=2047)),
    ("phi-4", "phi3", dense(40, 5120, 17920, 40, 10, 100352, **NO_IDS)),
    ("Phi-4-mini (sizes)", "phi3", dense(32, 3072, 8192, 24, 8, 200064, True, partial_rotary_factor=0.75, **NO_IDS)),
    ("pythia-70m", "gpt_neox", neox(6, 512, 8, 50304)),
    ("pythia-410m", "gpt_neox", neox(24, 1024, 16, 50304)),
    ("pythia-1b", "gpt_neox", neox(16, 2048, 8, 50304)),
    ("pythia-6.9b", "gpt_neox", neox(32, 4096, 32, 50432)),
    ("pythia-12b", "gpt_neox", neox(36, 5120, 40, 50688)),
    ("GLM-4.5-Air", "glm4_moe", glm4_moe(46, 4096, 10944, 128, 1408, first_k_dense_replace=1)),
    ("GLM-4.5", "glm4_moe", glm4_moe(92, 5120, 12288, 160, 1536, first_k_dense_replace=3, use_qk_norm=True)),
    ("gpt-oss-20b", "gpt_oss", dense(24, 2880, 2880, 64, 8, 201088, head_dim=64, num_local_experts=32, num_experts_per_tok=4)),
    ("gpt-oss-120b", "gpt_oss", dense(36, 2880, 2880, 64, 8, 201088, head_dim=64, num_local_experts=128, num_experts_per_tok=4)),
    ("dbrx-base", "dbrx", dict(n_layers=40, d_model=6144, n_heads=48, vocab_size=100352, max_seq_len=32768,
                               attn_config=dict(kv_n_heads=8, clip_qkv=8, rope_theta=500000),
                               ffn_config=dict(ffn_hidden_size=10752, moe_num_experts=16, moe_top_k=4, moe_jitter_eps=0, moe_loss_weight=0.05))),
    ("Llama-4-Scout-17B-16E (text)", "llama4_text", dense(48, 5120, 8192, 40, 8, 202048, head_dim=128, intermediate_size_mlp=16384,
                                                          num_local_experts=16, num_experts_per_tok=1, interleave_moe_layer_step=1)),
    ("Llama-4-Maverick-17B-128E (text)", "llama4_text", dense(48, 5120, 8192, 40, 8, 202048, head_dim=128, intermediate_size_mlp=16384,
                                                              num_local_experts=128, num_experts_per_tok=1, interleave_moe_layer_step=2,
                                                              use_qk_norm=False)),
    ("gpt2", "gpt2", gpt2(12, 768, 12)),
    ("gpt2-medium", "gpt2", gpt2(24, 1024, 16)),
    ("gpt2-large", "gpt2", gpt2(36, 1280, 20)),
    ("gpt2-xl", "gpt2", gpt2(48, 1600, 25)),
    ("distilgpt2", "gpt2", gpt2(6, 768, 12)),
    ("bert-base-uncased", "bert", bert(12, 768, 12, 30522)),
    ("bert-large-uncased", "bert", bert(24, 1024, 16, 30522)),
    ("bert-base-cased", "bert", bert(12, 768, 12, 28996)),
    ("bert-base-multilingual-cased", "bert", bert(12, 768, 12, 119547)),
]

for name, kind, keys in MODELS:
    with torch.device("meta"):
        kinds = transformers.AutoModelForMaskedLM if kind == "bert" else transformers.AutoModelForCausalLM
        model = kinds.from_config(getattr(transformers, CLASSES[kind])(**keys))
    count = sum(p.numel() for p in model.parameters())
    print(json.dumps({"name": name, "parameters": count, "config": {"model_type": kind, **keys}}), flush=True)
