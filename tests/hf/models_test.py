#!/usr/bin/env python3
"""Models against transformers and PyTorch from PyPI (make test-hf).

  models_test.py QUINTET [--work FOLDER] [--only FAMILY,...] [--write-goldens]

For every family, a tiny model with random weights is saved by transformers, and then:
  f32      logits of `quintet logits` equal transformers' (eager attention) to 1e-5 of the largest
  f64      the same to 1e-10, with transformers' casts to float32 patched to float64 (see Patched)
  grad     loss and every gradient of one step in f64, from an SGD step of `quintet train` and `quintet export`
  adamw    all weights after 5 steps of AdamW in f64
  text     64 greedy tokens of `quintet generate` in f64 are transformers', in one batch with other prompts and on two tensor ranks
  load     the exported folder loads into transformers with no missing, unexpected or mismatched keys
  layouts  import, one step that changes nothing, export: every tensor byte-identical, in several layouts
Also: dense folders with experts made of their feed-forward networks, exported as a family with experts; experts fused as transformers 5 keeps them in memory, .bin files, distributed checkpoints, fp8 and MXFP4 weights,
`quintet convert` and `quintet diff`. Prints a table; exit status 1 if anything differs.
"""

import argparse
import json
import math
import os
import pathlib
import shutil
import subprocess
import sys

os.environ["TRANSFORMERS_VERBOSITY"] = "error"
os.environ["HF_HUB_OFFLINE"] = "1"
import torch
import transformers
from safetensors import safe_open
from safetensors.torch import load_file, save_file

torch.set_num_threads(1)
transformers.utils.logging.disable_progress_bar()
parser = argparse.ArgumentParser()
parser.add_argument("quintet")
parser.add_argument("--work", default="build/hf-models")
parser.add_argument("--only", default="")
parser.add_argument("--write-goldens", action="store_true", help="rewrite tests/hf/golden, which make test reads")
options = parser.parse_args()
ROOT = pathlib.Path(__file__).resolve().parents[2]
work = pathlib.Path(options.work).resolve()
quintet = str(pathlib.Path(options.quintet).resolve())
SEQ = 24
BATCH = 2
TEXT = bytes((37 * i * i + 11 * i + 5) % 251 for i in range(SEQ)) * 64  # one sequence, again and again
IDS = list(TEXT[:SEQ])
LABELS = list(TEXT[1:SEQ + 1])

LLAMA3_ROPE = {"rope_type": "llama3", "rope_theta": 500.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
               "original_max_position_embeddings": 16}
LONGROPE = {"rope_type": "longrope", "rope_theta": 10000.0, "partial_rotary_factor": 0.75, "short_factor": [1.0, 1.5, 2.0],
            "long_factor": [1.25, 4.0, 16.0], "original_max_position_embeddings": 16}
YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 16}
DEEPSEEK_YARN = {**YARN, "mscale": 0.707, "mscale_all_dim": 0.707, "beta_fast": 32, "beta_slow": 1}
DENSE = dict(hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
             vocab_size=256, max_position_embeddings=64)
LATENT = dict(num_key_value_heads=4, kv_lora_rank=8, qk_nope_head_dim=8, qk_rope_head_dim=4, v_head_dim=6, moe_intermediate_size=16,
              first_k_dense_replace=1, num_hidden_layers=3)
GEMMA3_ROPE = {"full_attention": {"rope_type": "linear", "rope_theta": 5000.0, "factor": 8.0},
               "sliding_attention": {"rope_type": "default", "rope_theta": 100.0}}
NEOX = {k: v for k, v in DENSE.items() if k != "num_key_value_heads"}
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
# Name: (config class, its arguments). Names before ":" are model types.
FAMILIES = {
    "llama": ("LlamaConfig", {**DENSE}),
    "llama:3": ("LlamaConfig", {**DENSE, "head_dim": 16, "rope_parameters": LLAMA3_ROPE, "tie_word_embeddings": True, "rms_norm_eps": 1e-5}),
    "llama:yarn": ("LlamaConfig", {**DENSE, "rope_parameters": YARN}),
    "mistral": ("MistralConfig", {**DENSE, "sliding_window": 7}),
    "qwen2": ("Qwen2Config", {**DENSE, "tie_word_embeddings": True}),
    "qwen3": ("Qwen3Config", {**DENSE, "head_dim": 16}),
    "gemma2": ("Gemma2Config", {**DENSE, "head_dim": 16, "num_hidden_layers": 3, "sliding_window": 7, "query_pre_attn_scalar": 24,
                                "attn_logit_softcapping": 2.0, "final_logit_softcapping": 3.0}),
    "gemma3_text": ("Gemma3TextConfig", {**DENSE, "head_dim": 16, "num_hidden_layers": 4, "sliding_window": 7, "query_pre_attn_scalar": 24,
                                         "sliding_window_pattern": 3, "rope_parameters": GEMMA3_ROPE}),
    "olmo2": ("Olmo2Config", {**DENSE}),
    "smollm3": ("SmolLM3Config", {**DENSE, "num_hidden_layers": 4, "no_rope_layer_interval": 2, "pad_token_id": None, "bos_token_id": None,
                                  "eos_token_id": None}),
    "phi3": ("Phi3Config", {**DENSE, "sliding_window": 9, "pad_token_id": None, "bos_token_id": None, "eos_token_id": None}),
    "phi3:partial": ("Phi3Config", {**DENSE, "head_dim": 8, "tie_word_embeddings": True, "pad_token_id": None, "bos_token_id": None,
                                    "eos_token_id": None, "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default",
                                                                              "partial_rotary_factor": 0.75}}),
    "phi3:longrope": ("Phi3Config", {**DENSE, "pad_token_id": None, "bos_token_id": None, "eos_token_id": None,
                                     "original_max_position_embeddings": 16, "rope_parameters": LONGROPE}),
    "qwen2:windows": ("Qwen2Config", {**DENSE, "num_hidden_layers": 3, "use_sliding_window": True, "sliding_window": 7, "max_window_layers": 1}),
    "gpt_neox": ("GPTNeoXConfig", NEOX),
    "gpt_neox:tanh": ("GPTNeoXConfig", {**NEOX, "hidden_act": "gelu_fast"}),
    "gpt_neox:sequential": ("GPTNeoXConfig", {**NEOX, "use_parallel_residual": False, "tie_word_embeddings": True,
                                              "rope_parameters": {"rope_theta": 500.0, "rope_type": "linear", "factor": 4.0,
                                                                  "partial_rotary_factor": 1.0}}),
    "gpt2": ("GPT2Config", dict(vocab_size=256, n_embd=32, n_layer=2, n_head=4, n_positions=64, n_inner=40, resid_pdrop=0.0,
                                embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=0, eos_token_id=0)),
    "bert": ("BertConfig", {**NEOX, "vocab_size": 257, **NO_DROPOUT}),
    "bert:tanh": ("BertConfig", {**NEOX, "vocab_size": 257, **NO_DROPOUT, "hidden_act": "gelu_new", "type_vocab_size": 3}),
    "mixtral": ("MixtralConfig", {**DENSE, "intermediate_size": 24, "num_local_experts": 4, "num_experts_per_tok": 2}),
    "qwen2_moe": ("Qwen2MoeConfig", {**DENSE, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24,
                                     "shared_expert_intermediate_size": 40, "decoder_sparse_step": 2, "norm_topk_prob": False}),
    "qwen3_moe": ("Qwen3MoeConfig", {**DENSE, "head_dim": 16, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24,
                                     "norm_topk_prob": True}),
    "deepseek_v2": ("DeepseekV2Config", {**DENSE, **LATENT, "q_lora_rank": None, "n_routed_experts": 4, "n_shared_experts": 2,
                                         "num_experts_per_tok": 2, "topk_method": "greedy", "n_group": 1, "topk_group": 1}),
    "deepseek_v2:yarn": ("DeepseekV2Config", {**DENSE, **LATENT, "q_lora_rank": 10, "n_routed_experts": 8, "n_shared_experts": 2,
                                              "num_experts_per_tok": 3, "topk_method": "group_limited_greedy", "n_group": 4,
                                              "topk_group": 2, "routed_scaling_factor": 2.0, "rope_parameters": DEEPSEEK_YARN}),
    "deepseek_v3": ("DeepseekV3Config", {**DENSE, **LATENT, "q_lora_rank": 10, "n_routed_experts": 8, "n_shared_experts": 1,
                                         "num_experts_per_tok": 2, "n_group": 4, "topk_group": 2, "rope_parameters": DEEPSEEK_YARN}),
    "llama:bias": ("LlamaConfig", {**DENSE, "attention_bias": True}),
    "gpt_oss": ("GptOssConfig", {**DENSE, "head_dim": 16, "intermediate_size": 24, "num_hidden_layers": 3, "num_local_experts": 4,
                                 "num_experts_per_tok": 2, "sliding_window": 7, "swiglu_limit": 1.5, "rope_parameters":
                                 {**YARN, "rope_theta": 150000.0, "truncate": False, "beta_fast": 32.0, "beta_slow": 1.0}}),
    "dbrx": ("DbrxConfig", dict(d_model=32, n_heads=4, n_layers=2, vocab_size=256, max_seq_len=64, attn_config=dict(kv_n_heads=2, clip_qkv=0.8, rope_theta=10000.0),
                                ffn_config=dict(ffn_hidden_size=24, moe_num_experts=4, moe_top_k=2))),
    "llama4_text": ("Llama4TextConfig", {**DENSE, "head_dim": 8, "intermediate_size": 24, "intermediate_size_mlp": 40, "num_hidden_layers": 4,
                                         "num_local_experts": 4, "num_experts_per_tok": 1, "interleave_moe_layer_step": 2,
                                         "attention_chunk_size": 10, "no_rope_layer_interval": 4, "floor_scale": 5, "pad_token_id": None,
                                         "bos_token_id": None, "eos_token_id": None}),
    "glm4_moe": ("Glm4MoeConfig", {**DENSE, "head_dim": 16, "moe_intermediate_size": 16, "n_routed_experts": 8, "n_shared_experts": 1,
                                   "num_experts_per_tok": 3, "first_k_dense_replace": 1, "num_hidden_layers": 3, "use_qk_norm": True,
                                   "attention_bias": True, "n_group": 2, "topk_group": 1, "routed_scaling_factor": 2.5,
                                   "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default", "partial_rotary_factor": 0.5}}),
}
ENCODERS = {"bert"}  # which predict the tokens that they read, here all of them, unmasked
HAS_EXPERTS = {"dbrx", "glm4_moe", "gpt_oss", "llama4_text", "mixtral", "qwen2_moe", "qwen3_moe", "deepseek_v2", "deepseek_v3"}
failed = []


class Patched:
    """transformers in float64. Patches, all undone at the end:
    - `torch.float32` and `torch.float`, as modeling files and modeling_rope_utils read them, are float64: RMSNorm, softmax of
      attention, router scores, rotary angles and frequencies
    - Tensor.float() returns float64: rotary positions, logits of the loss
    """

    class Torch:
        float32 = torch.float64
        float = torch.float64

        def __getattr__(self, name):
            return getattr(torch, name)

    def __enter__(self):
        self.modules = [m for n, m in list(sys.modules.items())
                        if n.startswith("transformers.") and ("modeling" in n or "loss" in n) and getattr(m, "torch", None) is torch]
        for module in self.modules:
            module.torch = Patched.Torch()
        self.float = torch.Tensor.float
        torch.Tensor.float = torch.Tensor.double
        self.default = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)

    def __exit__(self, *_):
        for module in self.modules:
            module.torch = torch
        torch.Tensor.float = self.float
        torch.set_default_dtype(self.default)


def check(family, what, good, detail):
    print(f"{'ok  ' if good else 'FAIL'} {family:18} {what:8} {detail}", flush=True)
    if not good:
        failed.append(f"{family} {what}: {detail}")


def run(*arguments, good=True):
    done = subprocess.run([quintet, *map(str, arguments)], capture_output=True, text=True, errors="replace")
    if good and done.returncode != 0:
        raise SystemExit(f"quintet {' '.join(map(str, arguments))}\n{done.stdout}{done.stderr}")
    return done


def class_of(family):
    return transformers.AutoModelForMaskedLM if family.split(":")[0] in ENCODERS else transformers.AutoModelForCausalLM


def build(family, dtype=torch.float32, seed=1, **changes):
    """A model with random weights of a size that makes every part count."""
    kind, arguments = FAMILIES[family]
    config = getattr(transformers, kind)(**{**arguments, **changes}, use_cache=False)
    kinds = dict(attn_implementation="eager", experts_implementation="eager")
    model = class_of(family).from_config(config, **({"attn_implementation": "eager"} if family.split(":")[0] in ENCODERS else kinds)).to(dtype)
    random = torch.Generator().manual_seed(seed)
    state = {**dict(model.named_parameters()), **{n: b for n, b in model.named_buffers() if "correction_bias" in n}}
    with torch.no_grad():
        for name, p in sorted(state.items()):
            value = torch.randn(p.shape, generator=random, dtype=torch.float32).to(dtype)
            norm = p.dim() == 1 and "norm" in name.lower() and not (name.endswith("bias") and "LayerNorm" in name) or "ln_" in name and name.endswith("weight")
            p.copy_(1 + 0.1 * value if norm else 0.3 * value if p.dim() == 1 else value / math.sqrt(p.shape[-1]))
    return model.eval()


def recipe(folder, name, dtype="f32", **sets):
    values = {"precision.compute": dtype, "optimizer.name": "sgd", "optimizer.lr": 1.0, "optimizer.weight_decay": 0.0,
              "optimizer.clip_norm": 0.0, "run.steps": 1, "batch.global": BATCH, "checkpoint.every": 100, **sets}
    family = json.load(open(folder / "config.json"))["model_type"]
    if family in HAS_EXPERTS:
        values["model.moe.balance_loss"] = 0.0
        if family.startswith("deepseek"):
            values["model.moe.balance_scope"] = "micro_batch"
        if family in ("deepseek_v3", "glm4_moe"):
            values["model.moe.bias_rate"] = 1e-300
    if family in ENCODERS:
        values.update({"data.mlm.rate": 1.0, "data.mlm.keep": 1.0, "data.mlm.random": 0.0})
    text = work / "text.txt"
    text.write_bytes(TEXT)
    path = work / f"{name}.toml"
    lines = [f'name = "{name}"', "[model]", f'hf = "{folder}"', "[data]", f'path = "{text}"', 'tokenizer = "bytes"',
             f"seq_len = {SEQ}", "pack = false", "[run]", f'dir = "{work / "runs" / name}"']
    path.write_text("\n".join(lines) + "\n")
    result = [str(path)]
    for key, value in values.items():
        result += ["--set", f"{key}={str(value).lower() if isinstance(value, bool) else value}"]
    return result


def logits_of(folder, name, dtype, ids=IDS, **sets):
    out = work / f"{name}-logits.safetensors"
    run("logits", *recipe(folder, name, dtype, **sets), "--ids", ",".join(map(str, ids)), "--out", out, "--overwrite")
    return load_file(out)["logits"]


def train_and_export(folder, name, dtype, export=(), **sets):
    shutil.rmtree(work / "runs" / name, ignore_errors=True)
    shutil.rmtree(work / f"{name}-out", ignore_errors=True)
    run("train", *recipe(folder, name, dtype, **sets), "--sample", 0)
    run("export", work / "runs" / name, "--to", "hf", work / f"{name}-out", *export)
    metrics = [json.loads(line) for line in open(work / "runs" / name / "metrics.jsonl")]
    return metrics, work / f"{name}-out"


def tensors(folder):
    result = {}
    for file in sorted(folder.glob("*.safetensors")):
        result.update(load_file(file))
    return result


def worst_difference(a, b, floor=1e-30):
    """The largest difference relative to each tensor's largest element, or to `floor`, and where it is."""
    if a.keys() != b.keys():
        return math.inf, f"names differ: {sorted(a.keys() ^ b.keys())[:3]}"
    worst = (0.0, "")
    for name in a:
        if a[name].shape != b[name].shape:
            return math.inf, f"{name}: {a[name].shape} and {b[name].shape}"
        scale = max(b[name].abs().max().item(), floor)
        worst = max(worst, ((a[name].double() - b[name].double()).abs().max().item() / scale, name))
    return worst


def identical(a, b):
    if a.keys() != b.keys():
        return f"names differ: {sorted(a.keys() ^ b.keys())[:3]}"
    for name in a:
        x, y = a[name], b[name]
        if x.dtype != y.dtype or x.shape != y.shape or x.contiguous().view(torch.uint8).ne(y.contiguous().view(torch.uint8)).any():
            return f"{name} differs"
    return ""


def to_saved_names(model, values):
    """Tensors of the model in memory as save_pretrained writes them: a copy of the model holds them."""
    folder = work / "names"
    shutil.rmtree(folder, ignore_errors=True)
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.copy_(values[name])
    model.save_pretrained(folder)
    return tensors(folder)


PROMPTS = ["The", "A longer prompt that needs", "x"]


def greedy(model, prompt, count):
    ids = torch.tensor([list(prompt.encode())])
    with torch.no_grad():
        for _ in range(count):
            ids = torch.cat([ids, model(ids).logits[:, -1:].argmax(-1)], 1)
    return ids[0, len(prompt.encode()):].tolist()


def test_text(family):
    """Inside Patched."""
    name = family.replace(":", "-") + "-text"
    positions = "n_positions" if family.startswith("gpt2") else "max_position_embeddings"
    model = build(family, torch.float64, **{positions: 128})
    folder = work / name
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder)
    theirs = [greedy(model, p, 64) for p in PROMPTS]
    arguments = ["generate", folder, "--tokenizer", "bytes", "--dtype", "f64", "--temperature", 0, "--tokens", 64, "--ignore-eos", "--json"]
    for prompt in PROMPTS:
        arguments += ["--prompt", prompt]
    for tp in (1, 2):
        ours = [json.loads(line)["ids"] for line in run(*arguments, "--tp", tp).stdout.splitlines()]
        same = sum(a == b for t, o in zip(theirs, ours) for a, b in zip(t, o))
        check(family, "text", ours == theirs, f"{same} of {64 * len(PROMPTS)} tokens on {tp} rank{'s' * (tp > 1)}")


def test_family(family):
    name = family.replace(":", "-")
    model_type = family.split(":")[0]
    folder = work / name
    shutil.rmtree(folder, ignore_errors=True)
    model = build(family)
    model.save_pretrained(folder)
    ids = torch.tensor([IDS])
    with torch.no_grad():
        theirs = model(ids).logits[0]
    ours = logits_of(folder, name, "f32")
    error = ((ours - theirs).abs().max() / theirs.abs().max()).item()
    check(family, "f32", error < 1e-5, f"logits differ by {error:.1e} of the largest")

    with Patched():
        double = build(family, torch.float64)
        wide = work / f"{name}-f64"
        shutil.rmtree(wide, ignore_errors=True)
        double.save_pretrained(wide)
        with torch.no_grad():
            theirs = double(ids).logits[0]
        error = ((logits_of(wide, name + "-f64", "f64") - theirs).abs().max() / theirs.abs().max()).item()
        check(family, "f64", error < 1e-10, f"logits differ by {error:.1e} of the largest")

        if not family.endswith(":longrope") and model_type not in ENCODERS:  # transformers changes the factors in the middle of a text
            test_text(family)

        # One SGD step with lr 1 moves every weight by its gradient.
        double.train()
        batch, labels = torch.tensor([IDS] * BATCH), torch.tensor([IDS if model_type in ENCODERS else LABELS] * BATCH)

        def loss_of(m):
            return torch.nn.functional.cross_entropy(m(batch).logits.flatten(0, 1), labels.reshape(-1))

        loss = loss_of(double)
        loss.backward()
        start = {n: p.detach().clone() for n, p in double.named_parameters()}
        moved = {n: p.detach() - (p.grad if p.grad is not None else 0) for n, p in double.named_parameters()}
        before = tensors(wide)
        metrics, out = train_and_export(wide, name + "-sgd", "f64")
        expected = to_saved_names(double, moved)
        relative = abs(metrics[0]["loss"] - loss.item()) / loss.item()
        mine = {n: before[n] - t for n, t in tensors(out).items()}
        gradients = {n: before[n] - t for n, t in expected.items()}
        # That of a bias on K is zero but for rounding errors.
        error, where = worst_difference(mine, gradients, 1e-6 * max(g.abs().max().item() for g in gradients.values()))
        check(family, "grad", relative < 1e-10 and error < 1e-4, f"loss by {relative:.1e}, gradients by {error:.1e} {where}")

        # AdamW: norms and biases are not decayed.
        with torch.no_grad():
            for n, p in double.named_parameters():
                p.copy_(start[n])
        decays = {n: p.dim() > 1 and not n.endswith("bias") for n, p in double.named_parameters()}
        decayed = [p for n, p in double.named_parameters() if decays[n]]
        plain = [p for n, p in double.named_parameters() if not decays[n]]
        optimizer = torch.optim.AdamW([{"params": decayed, "weight_decay": 0.1}, {"params": plain, "weight_decay": 0.0}],
                                      lr=1e-3, betas=(0.9, 0.95), eps=1e-8)
        for _ in range(5):
            optimizer.zero_grad()
            last = loss_of(double)
            last.backward()
            optimizer.step()
        sets = {"optimizer.name": "adamw", "optimizer.lr": 1e-3, "optimizer.weight_decay": 0.1, "run.steps": 5,
                "optimizer.betas": "[0.9, 0.95]", "optimizer.eps": 1e-8}
        metrics, out = train_and_export(wide, name + "-adamw", "f64", **sets)
        expected = to_saved_names(double, {n: p.detach().clone() for n, p in double.named_parameters()})
        error, where = worst_difference(tensors(out), expected)
        relative = abs(metrics[4]["loss"] - last.item()) / last.item()
        check(family, "adamw", relative < 1e-8 and error < 1e-6, f"loss by {relative:.1e}, weights by {error:.1e} {where}")

    loaded, info = class_of(family).from_pretrained(out, output_loading_info=True)
    bad = {k: v for k, v in info.items() if v and k in ("missing_keys", "unexpected_keys", "mismatched_keys", "error_msgs")}
    check(family, "load", not bad, f"{type(loaded).__name__} {bad or 'no missing or unexpected keys'}")

    # Import and export in several layouts; bf16 files, f32 masters.
    narrow = work / f"{name}-bf16"
    shutil.rmtree(narrow, ignore_errors=True)
    model.to(torch.bfloat16).save_pretrained(narrow)
    layouts = [{}, {"parallel.tp": 2}, {"parallel.pp": 2}, {"parallel.dp_shard": 2, "parallel.zero": 3},
               {"parallel.tp": 2, "parallel.dp_shard": 2, "parallel.zero": 1}]
    if model_type in HAS_EXPERTS:
        layouts += [{"parallel.dp_shard": 2, "parallel.ep": 2}, {"parallel.dp_shard": 2, "parallel.ep": 2, "parallel.tp": 2, "parallel.zero": 3}]
    reference = tensors(narrow)
    wrong = ""
    for i, layout in enumerate(layouts):
        _, out = train_and_export(narrow, f"{name}-layout{i}", "bf16", **{"optimizer.lr": 1e-300, "batch.global": 4, **layout})
        if difference := identical(tensors(out), reference):
            wrong += f" {layout}: {difference}"
    check(family, "layouts", not wrong, f"{len(layouts)} layouts, {len(reference)} tensors{wrong or ' identical'}")
    configs = [json.load(open(f / "config.json")) for f in (out, narrow)]
    for config in configs:
        config.pop("num_nextn_predict_layers", None)  # layers that an export does not have
        config.pop("router_aux_loss_coef", None)  # the recipe sets it to 0
        config.get("ffn_config", {}).pop("moe_loss_weight", None)
    check(family, "config", configs[0] == configs[1], "config.json of the export is that of the source")

    if model_type in HAS_EXPERTS:  # as the model is in memory
        fused = work / f"{name}-fused"
        shutil.rmtree(fused, ignore_errors=True)
        fused.mkdir()
        memory = {n: t.contiguous() for n, t in model.state_dict().items()}
        save_file(memory, fused / "model.safetensors", metadata={"format": "pt"})
        shutil.copy(narrow / "config.json", fused)
        _, out = train_and_export(fused, f"{name}-fused", "bf16", **{"optimizer.lr": 1e-300, "parallel.tp": 2})
        difference = identical(tensors(out), tensors(fused))
        check(family, "fused", not difference, difference or f"{len(memory)} tensors identical")


def test_other_files():
    model = build("llama")
    folder = work / "files"
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder)
    reference = tensors(folder)
    state = {n: t.clone() for n, t in model.state_dict().items()}

    def converted(what, source, *arguments, expected=reference):
        out = work / f"converted-{what}"
        shutil.rmtree(out, ignore_errors=True)
        run("convert", source, out, *arguments)
        difference = identical(tensors(out), expected)
        check("files", what, not difference, difference or f"{len(expected)} tensors identical")
        return out

    pickled = work / "pickled"
    shutil.rmtree(pickled, ignore_errors=True)
    pickled.mkdir()
    torch.save(state, pickled / "pytorch_model.bin")
    shutil.copy(folder / "config.json", pickled)
    converted("bin", pickled)
    torch.save({"model": state, "step": 3}, work / "nested.pt")
    converted("pt", work / "nested.pt")
    out = converted("shards", folder, "--shard-size", "20kB")
    check("files", "index", len(list(out.glob("model-*.safetensors"))) > 2 and (out / "model.safetensors.index.json").exists(), "several files")
    transformers.AutoModelForCausalLM.from_pretrained(out)
    converted("bf16", folder, "--dtype", "bf16", expected={n: t.to(torch.bfloat16) for n, t in reference.items()})

    import torch.distributed.checkpoint as dcp
    distributed = work / "distributed"
    shutil.rmtree(distributed, ignore_errors=True)
    dcp.save({n: t for n, t in state.items()}, checkpoint_id=str(distributed), no_dist=True)
    converted("dcp", distributed)

    done = run("diff", folder, pickled)
    check("files", "diff", "equal" in done.stdout, done.stdout.strip())
    changed = work / "changed"
    shutil.rmtree(changed, ignore_errors=True)
    shutil.copytree(folder, changed)
    other = dict(reference)
    key = "model.layers.1.mlp.up_proj.weight"
    other[key] = other[key].clone()
    other[key][3, 4] += 0.5
    save_file(other, changed / "model.safetensors", metadata={"format": "pt"})
    done = run("diff", folder, changed, good=False)
    check("files", "diff", done.returncode == 1 and key in done.stdout and "0.5" in done.stdout, done.stdout.splitlines()[0])


def test_upcycled():
    """Experts that are copies or slices of the dense network compute what it did; the export is a family with experts."""
    for family, becomes, slices in (("llama", "mixtral", 1), ("qwen3", "qwen3_moe", 1), ("llama", "mixtral", 2), ("qwen3", "qwen3_moe", 2)):
        build(family), build(becomes)  # Patched changes modules that have been loaded
        with Patched():
            dense = build(family, torch.float64)
            folder = work / f"{family}-dense"
            shutil.rmtree(folder, ignore_errors=True)
            dense.save_pretrained(folder)
            with torch.no_grad():
                theirs = dense(torch.tensor([IDS])).logits[0]
            sets = {"model.moe.upcycle": True, "model.moe.experts": 4 * slices, "model.moe.top_k": 2 * slices,
                    "model.moe.upcycle_slices": slices, "model.init_stddev": 0.5}
            error = ((logits_of(folder, f"{family}-upcycled", "f64", **sets) - theirs).abs().max() / theirs.abs().max()).item()
            check("upcycled", family, error < 1e-10, f"logits differ by {error:.1e} of the dense model's largest")
            _, out = train_and_export(folder, f"{family}-upcycled", "f64", **sets, **{"optimizer.lr": 1e-300})
            model, info = transformers.AutoModelForCausalLM.from_pretrained(
                out, attn_implementation="eager", experts_implementation="eager", dtype=torch.float64, output_loading_info=True)
            bad = {k: v for k, v in info.items() if v}
            check("upcycled", "load", model.config.model_type == becomes and not bad, f"{family} is a {model.config.model_type} {bad or ''}")
            with torch.no_grad():
                error = ((model.eval()(torch.tensor([IDS])).logits[0] - theirs).abs().max() / theirs.abs().max()).item()
            check("upcycled", becomes, error < 1e-10, f"transformers' logits of the export differ by {error:.1e}")
            router = next(p for n, p in model.named_parameters() if "gate.weight" in n)
            check("upcycled", "init", 0.4 < router.std().item() < 0.6, f"routers have a deviation of {router.std().item():.2f} (model.init_stddev 0.5)")


def random_fp8(rows, columns, random):
    """Weights, scales, and what DeepSeek's conversion makes of them: the f32 product per block of 128 x 128, rounded to bf16."""
    weight = torch.randint(0, 256, (rows, columns), generator=random, dtype=torch.uint8).view(torch.float8_e4m3fn)
    scale = torch.rand((rows + 127) // 128, (columns + 127) // 128, generator=random) * 0.01 + 1e-4
    full = scale.repeat_interleave(128, 0)[:rows].repeat_interleave(128, 1)[:, :columns]
    return weight, scale, (weight.to(torch.float32) * full).to(torch.bfloat16)


def random_mxfp4(shape, random):
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors
    blocks = torch.randint(0, 256, (*shape, 16), generator=random, dtype=torch.uint8)
    scales = torch.randint(100, 150, shape, generator=random, dtype=torch.uint8)
    scales.view(-1)[:4] = torch.tensor([0, 1, 2, 254], dtype=torch.uint8)
    return blocks, scales, convert_moe_packed_tensors(blocks.clone(), scales.clone()).contiguous()


def test_scratch():
    """A run from scratch, whose folder has a tokenizer: AutoTokenizer opens it, with the ids and ends of the run."""
    for name, tokenizer, end in (("bytes", "bytes", None), ("file", str(work / "my-tokenizer.json"), "<|end|>")):
        shutil.copy(ROOT / "tests/hf/lm_eval/tokenizer.json", work / "my-tokenizer.json")
        text = work / "scratch.txt"
        text.write_text("Some text, with signs: \u00e4 \u20ac.\n" * 40)
        path = work / f"scratch-{name}.toml"
        path.write_text(f'name = "scratch"\n[model]\npreset = "llama-tiny"\nvocab = 512\n[data]\npath = "{text}"\ntokenizer = "{tokenizer}"\n'
                        f'seq_len = 32\n{f"end = {json.dumps(end)}" if end else ""}\n[batch]\nglobal = 2\n[optimizer]\nlr = 1e-3\n'
                        f'[run]\nsteps = 1\ndir = "{work / "runs" / f"scratch-{name}"}"\n')
        shutil.rmtree(work / "runs" / f"scratch-{name}", ignore_errors=True)
        out = work / f"scratch-{name}-out"
        shutil.rmtree(out, ignore_errors=True)
        run("train", path, "--sample", 0)
        run("export", work / "runs" / f"scratch-{name}", "--to", "hf", out)
        opened = transformers.AutoTokenizer.from_pretrained(out)
        line = "Some text: \u00e4 \u20ac\tx"
        ids = opened(line, add_special_tokens=False)["input_ids"]
        good = ids == list(line.encode()) if end is None else opened.eos_token == end
        good = good and opened.decode(ids) == line
        config = transformers.GenerationConfig.from_pretrained(out)
        model = transformers.AutoModelForCausalLM.from_pretrained(out)
        good = good and config.eos_token_id == opened.eos_token_id == model.config.eos_token_id
        check("scratch", name, good, f"AutoTokenizer: {type(opened).__name__}, ends {config.eos_token_id}")


def test_quantised():
    random = torch.Generator().manual_seed(3)
    weight, scale, expected = random_fp8(200, 300, random)
    file = work / "fp8.safetensors"
    save_file({"x.weight": weight, "x.weight_scale_inv": scale, "y.weight": torch.ones(3)}, file)
    out = work / "fp8-out.safetensors"
    run("convert", file, out, "--overwrite")
    got = load_file(out)
    equal = (got["x.weight"].view(torch.int16) == expected.view(torch.int16)) | (torch.isnan(got["x.weight"]) & torch.isnan(expected))
    check("quantised", "fp8", bool(equal.all()) and "x.weight_scale_inv" not in got, f"{equal.numel()} elements bit-equal")

    blocks, scales, expected = random_mxfp4((3, 10, 4), random)
    file = work / "mxfp4.safetensors"
    save_file({"experts.gate_up_proj_blocks": blocks, "experts.gate_up_proj_scales": scales}, file)
    run("convert", file, out, "--overwrite")
    got = load_file(out)["experts.gate_up_proj"]
    equal = got.shape == expected.shape and torch.equal(got.view(torch.int16), expected.contiguous().view(torch.int16))
    check("quantised", "mxfp4", equal, f"{expected.numel()} elements bit-equal, shape {list(got.shape)}")


def write_goldens():
    """Tiny folders with the logits that transformers computes in float64."""
    small = dict(hidden_size=16, num_hidden_layers=2, vocab_size=40)
    for family, (kind, arguments) in FAMILIES.items():
        if family in ("llama:yarn", "llama:bias", "deepseek_v2", "phi3:longrope", "qwen2:windows", "gpt_neox:tanh", "bert:tanh") or (only and family not in only):
            continue  # parts of the first two are in the others
        changes = dict(n_embd=16, n_inner=24, vocab_size=40) if family == "gpt2" else {**small}
        if family == "dbrx":
            changes = dict(d_model=16, vocab_size=40)
        if family in ("gpt_oss", "llama4_text"):
            changes.update(head_dim=4, num_hidden_layers=arguments["num_hidden_layers"])
        if family == "llama4_text":
            changes.update(intermediate_size_mlp=20, attention_chunk_size=4)
        if family in ("gemma2", "gemma3_text"):
            changes.update(head_dim=6, num_hidden_layers=3)  # windows and full attention
        if family.startswith("gpt_neox"):
            changes.update(num_attention_heads=2)  # a quarter of a head has an even size
        if "intermediate_size" in arguments:
            changes["intermediate_size"] = 12
        folder = ROOT / "tests/hf/golden" / family.replace(":", "-")
        shutil.rmtree(folder, ignore_errors=True)
        model = build(family, torch.float32, **changes)  # also loads the module that is patched below
        model.save_pretrained(folder)
        (folder / "generation_config.json").unlink(missing_ok=True)
        with Patched():
            ids = [(7 * i * i + 3) % 40 for i in range(10)]
            exact = build(family, torch.float64, **changes)  # frequencies of RoPE too are computed in float64
            exact.load_state_dict(model.state_dict())
            with torch.no_grad():
                logits = exact(torch.tensor([ids])).logits[0]
        save_file({"logits": logits, "ids": torch.tensor(ids, dtype=torch.int32)}, folder / "expected.st")
    if only:
        return
    random = torch.Generator().manual_seed(5)
    quantised = ROOT / "tests/hf/quantised"
    quantised.mkdir(exist_ok=True)
    tall, tall_scale, tall_expected = random_fp8(130, 12, random)
    wide, wide_scale, wide_expected = random_fp8(12, 130, random)
    save_file({"tall.weight": tall, "tall.weight_scale_inv": tall_scale, "wide.weight": wide, "wide.weight_scale_inv": wide_scale},
              quantised / "fp8.safetensors")
    save_file({"tall.weight": tall_expected, "wide.weight": wide_expected}, quantised / "fp8_expected.safetensors")
    blocks, scales, expected = random_mxfp4((2, 3, 2), random)
    save_file({"x_blocks": blocks, "x_scales": scales}, quantised / "mxfp4.safetensors")
    save_file({"x": expected}, quantised / "mxfp4_expected.safetensors")


only = [f for f in options.only.split(",") if f]
if options.write_goldens:
    write_goldens()
    sys.exit(0)
work.mkdir(parents=True, exist_ok=True)
for family in FAMILIES:
    if not only or family in only:
        test_family(family)
if not only or "upcycled" in only:
    test_upcycled()
if not only:
    test_other_files()
    test_scratch()
    test_quantised()
print(f"{len(failed)} failures" if failed else f"all equal (transformers {transformers.__version__}, torch {torch.__version__})")
sys.exit(1 if failed else 0)
