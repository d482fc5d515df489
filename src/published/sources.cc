#include "published/sources.h"

#include <array>

namespace quintet::published {
namespace {

using config::ContextMethod;

// clang-format off
const std::array kSources = {
  Source{.collection = "TT", .stack = "torchtitan-compile", .network = "roce-400", .zero = 3, .pipelines_gather_once = true,
         .recompute = "selective(per-op)", .context = ContextMethod::Gather, .flops = FlopCount::Full,
         .why = "torchtitan: FSDP2, f32 gradients on the wire, pipeline micro-batches of one sequence"},
  Source{.collection = "AO", .stack = "torchtitan-compile", .network = "roce-400", .zero = 3, .micro = 1,
         .h100 = "h100-96gb-500w", .recompute = "selective(per-op)", .context = ContextMethod::Gather, .flops = FlopCount::Full,
         .why = "torchao's tables were measured with torchtitan; logs of its single-node H100 runs show the 96 GB part"},
  Source{.collection = "MEG20", .stack = "megatron-2021", .network = "ib-hdr", .reduce_f32 = false, .dropout = 0.1,
         .recompute = "full", .flops = FlopCount::Hardware,
         .why = "Megatron-LM's 2020 scripts: fp16 gradients, dropout 0.1, full recompute"},
  Source{.collection = "MEG21", .stack = "megatron-2021", .network = "ib-hdr", .reduce_f32 = false, .dropout = 0.1,
         .recompute = "full", .flops = FlopCount::Hardware,
         .why = "arXiv 2104.04473: Selene, eight HDR ports per node, scatter/gather of messages"},
  Source{.collection = "SP22", .stack = "megatron-2022", .network = "ib-hdr", .reduce_f32 = true, .dropout = 0.1,
         .recompute = "selective", .flops = FlopCount::Full, .why = "arXiv 2205.05198: Selene"},
  Source{.collection = "MEGH", .stack = "megatron-core", .network = "ib-ndr", .zero = 1, .micro = 1, .chunks = 8,
         .recompute = "none", .flops = FlopCount::Full,
         .why = "Megatron-LM's README: overlapped gradient and parameter communication, flash attention"},
  Source{.collection = "BLM", .stack = "megatron-deepspeed", .network = "opa-100", .ports_per_device = 0.5,
         .zero = 1, .reduce_f32 = false, .driver_memory = true, .flops = FlopCount::Hardware,
         .why = "bigscience chronicles: Jean Zay, four Omni-Path ports per node"},
  Source{.collection = "ZB", .stack = "zero-bubble", .network = "roce-200", .ports_per_device = 0.5, .recompute = "none",
         .why = "arXiv 2401.10241: Megatron-LM of 2023, RoCE RDMA between nodes"},
  Source{.collection = "ZBV", .stack = "zero-bubble", .network = "roce-200", .ports_per_device = 0.5, .recompute = "none",
         .why = "arXiv 2401.10241"},
  Source{.collection = "MOS", .stack = "llm-foundry", .network = "roce-200", .zero = 3,
         .flops = FlopCount::Full, .why = "llm-foundry: Composer's FSDP, flash attention (Triton)"},
  Source{.collection = "FMS", .stack = "fsdp", .network = "roce-100", .zero = 3, .reduce_f32 = false, .selective_by_block = true,
         .flops = FlopCount::Full, .why = "fms-fsdp: FSDP1 with compile, bf16 gradients on the wire"},
  Source{.collection = "FA", .stack = "fused-training", .network = "", .micro = 16, .recompute = "none",
         .why = "flash-attention's training scripts: data parallel, fused kernels"},
  Source{.collection = "LLMC", .stack = "fused-training", .network = "", .zero = 1, .reduce_f32 = false, .chunked_loss = true, .recompute = "none",
         .why = "llm.c: ZeRO-1, bf16 gradients"},
  Source{.collection = "IEV", .stack = "internevo", .network = "roce-100", .ports_per_device = 0.5, .zero = 1,
         .reduce_f32 = false, .seq = 2048, .numbers_are_zero_3 = false, .recompute = "none",
         .flops = FlopCount::Hardware, .why = "InternEvo: hybrid ZeRO, four RoCE ports per node"},
  Source{.collection = "FSDP1", .stack = "fsdp", .network = "roce-200", .zero = 3, .reduce_f32 = false,
         .flops = FlopCount::Hardware, .why = "arXiv 2304.11277"},
  Source{.collection = "NEMO", .stack = "nemo", .network = "ib-ndr", .zero = 1, .reduce_f32 = false,
         .recompute = "none", .flops = FlopCount::Full,
         .why = "NeMo's performance recipes: distributed optimizer, bf16 gradients, flash attention"},
  Source{.collection = "NLS", .stack = "nemo", .network = "ib-ndr", .zero = 1, .reduce_f32 = false, .micro = 1,
         .recompute = "none", .flops = FlopCount::Full, .why = "NeMo's performance recipes for long sequences"},
  Source{.collection = "MBR", .stack = "megatron-bridge", .network = "ib-ndr", .zero = 1, .reduce_f32 = false, .deepseek_mtp = true,
         .recompute = "none", .split = Split::Even, .flops = FlopCount::Causal,
         .why = "Megatron-Bridge's performance recipes: distributed optimizer, bf16 gradients"},
  Source{.collection = "DSV3", .stack = "megatron-bridge", .network = "ib-ndr", .zero = 1, .reduce_f32 = false,
         .micro = 1, .dualpipe_stack = "deepseek", .recompute = "mlp+moe_act", .flops = FlopCount::Causal,
         .why = "arXiv 2412.19437 and Megatron-LM's GB200 guide"},
  Source{.collection = "MPF", .stack = "megatron-core", .network = "ib-ndr", .zero = 1, .reduce_f32 = true,
         .micro = 1, .chunks = 8, .experts_span_tensor = true, .recompute = "none", .flops = FlopCount::Causal,
         .why = "arXiv 2504.14960: Megatron Core on Eos, capacity factor 1"},
  Source{.collection = "SWISS", .stack = "megatron-core", .network = "slingshot-11", .zero = 1, .micro = 1,
         .recompute = "none", .why = "Swiss AI's Megatron-LM"},
  Source{.collection = "OFF", .stack = "deepspeed", .network = "ib-hdr", .zero = 3, .micro = 1,
         .recompute = "full", .flops = FlopCount::Hardware, .why = "DeepSpeed's posts on offload"},
};
// clang-format on

}  // namespace

const Source* find_source(std::string_view collection) {
  for (const Source& source : kSources)
    if (source.collection == collection) return &source;
  return nullptr;
}

const Source& unknown_source() {
  static constexpr Source kUnknown{.collection = "",
                                   .stack = "",
                                   .network = "",
                                   .zero = 1,
                                   .micro = 1,
                                   .recompute = "none",
                                   .why = "none: no source is known"};
  return kUnknown;
}

}  // namespace quintet::published
