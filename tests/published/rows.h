// A few published rows in the format of docs/reference/published_runs.csv, for the tests of reference runs.
#pragma once

#include <string>
#include <string_view>

#include "published/published_run.h"

namespace quintet::published {

inline constexpr std::string_view kHeader =
    "id,source,model,layers,hidden,ffn,heads,kv_heads,vocab,seq,gpu,gpus,precision,dp,fsdp,tp,sp,pp,vpp,"
    "schedule,cp,ep,micro_batch,global_batch,recompute,tokens_per_s_per_gpu,tflops_per_gpu,mfu,"
    "mem_gib_per_gpu,verified\n";

inline constexpr std::string_view kRows =
    "TT-002,torchtitan,Llama-3.1-8B,32,4096,14336,32,8,128256,8192,H100-96GB-HBM2e-500W,8,bf16 "
    "compile,8,8,1,,1,,,1,1,2,16,selective(per-op),6667,,0.39,77.0,yes\n"
    "TT-013,torchtitan,Llama-3.1-405B,126,16384,53248,128,8,128256,8192,H100-96GB-HBM2e-500W,512,"
    "fp8-tensorwise compile+asyncTP,8,8,8,yes,8,,1F1B,1,1,(local batch 32),256,full,100,,,82.5,yes\n"
    "MEG21-004,megatron,GPT-18B,40,6144,24576,48,48,51200,2048,A100-SXM-80GB,256,fp16,32,0,8,no,1,,,1,1,8,"
    "1024,full,,135,,,yes;tflops=hardware incl. recompute\n"
    "MOS-014,llm-foundry,MPT-3b,32,2560,10240,20,20,50368,2048,H100-80GB,256,amp_bf16,256,256 "
    "SHARD_GRAD_OP,1,no,1,,,1,1,8,2048,none,22772,408,0.4125,,yes\n"
    "MOS-039,llm-foundry,MPT-7b,32,4096,16384,32,32,50368,2048,H100-80GB,8,amp_bf16,8,8 "
    "FULL_SHARD,1,no,1,,,1,1,6,48,none,10643,459,0.4644,,yes\n"
    "IEV-029,internevo,InternLM-7B,32,4096,10923,32,32,103168,2048,A100-SXM-80GB 4x100Gb "
    "RoCE,128,bf16,64,ZeRO-1 group4,2,no,1,,,1,1,4,1024,none,3651,,,,yes\n"
    "BLM-095,bigscience,GPT-176B,70,14336,57344,64,64,250680,2048,A100-SXM-80GB (4xOPA),384,bf16 (fp32 grad "
    "accum),8,ZeRO-1,4,no,12,1,1F1B,1,1,2,2048,full,107.05,153.68,,59,yes\n"
    "MBR-017,\"Megatron-Bridge, 26.06 Pre-Training\",Llama3.1-405B,126,16384,53248,128,8,128256,8192,GB300 "
    "NVL72,256,FP8,8,,4,yes,8,4,interleaved-1F1B,1,1,1,1536,,1048,2646,,,yes\n"
    "MBR-120,Megatron-Bridge 26.02.01 Pre-Training,DeepSeek-V3 671B-A37B,61,7168,18432 dense/2048 x256 "
    "experts top8+1 shared,128,MLA,129280,4096,GB200 "
    "NVL72,256,MXFP8,64,0,1,no,4,4,interleaved-1F1B,1,64,1,4096,,4021,1046,,,yes\n"
    "MPF-004,arXiv 2504.14960 T3 MCore,Mixtral-8x22B,56,6144,16384 x8 experts top2,48,8,32000,4096,"
    "H100-SXM-80GB (Eos),128,bf16,8,,2,yes,8,,,1,4,,256,,,,0.463,,secondary\n"
    "ZB-009,arXiv 2401.10241 T3/T4,GPT-1.5B,22,2304,9216,24,24,,1024,A100-SXM-80GB,8,16-bit "
    "mixed,1,,1,,8,1,ZB-2p,1,1,6,384,,15257.6,,,59,secondary\n"
    "OFF-002,DeepSpeed,GPT-1T,,,,,,,,V100-32GB (DGX-2),512,fp16,512,ZeRO-3 + CPU "
    "offload,1,,1,,,,,,,,,48.9,,,yes;geometry not given\n";

inline std::vector<PublishedRun> reference_rows() {
  return read_published_runs(std::string(kHeader) + std::string(kRows), "rows");
}

inline PublishedRun published_row(std::string_view id) {
  for (PublishedRun& row : reference_rows())
    if (row.id == id) return row;
  throw std::runtime_error("no row " + std::string(id));
}

}  // namespace quintet::published
