// The names of enum values in recipes. One table per enum, used for parsing and printing.
#pragma once

#include <array>
#include <optional>
#include <string_view>
#include <utility>

#include "config/recipe.h"

namespace quintet::config {

template <class E>
struct Names;

template <>
struct Names<Family> {
  static constexpr std::array<std::pair<Family, std::string_view>, 5> kTable = {{{Family::Llama, "llama"},
                                                                                 {Family::Gpt2, "gpt2"},
                                                                                 {Family::Neox, "neox"},
                                                                                 {Family::Bert, "bert"},
                                                                                 {Family::Custom, "custom"}}};
};
template <>
struct Names<NormPlaces> {
  static constexpr std::array<std::pair<NormPlaces, std::string_view>, 3> kTable = {
      {{NormPlaces::Pre, "pre"}, {NormPlaces::Post, "post"}, {NormPlaces::Both, "both"}}};
};
template <>
struct Names<Activation> {
  static constexpr std::array<std::pair<Activation, std::string_view>, 3> kTable = {
      {{Activation::Silu, "silu"}, {Activation::Gelu, "gelu"}, {Activation::Clamped, "clamped"}}};
};
template <>
struct Names<InitScheme> {
  static constexpr std::array<std::pair<InitScheme, std::string_view>, 3> kTable = {
      {{InitScheme::Gpt2, "gpt2"}, {InitScheme::Normal, "normal"}, {InitScheme::Neox, "neox"}}};
};
template <>
struct Names<QkNormOver> {
  static constexpr std::array<std::pair<QkNormOver, std::string_view>, 2> kTable = {
      {{QkNormOver::Head, "head"}, {QkNormOver::AllHeads, "all_heads"}}};
};
template <>
struct Names<DimAxis> {
  static constexpr std::array<std::pair<DimAxis, std::string_view>, 2> kTable = {
      {{DimAxis::None, "none"}, {DimAxis::Tp, "tp"}}};
};
template <>
struct Names<MeshAxis> {
  static constexpr std::array<std::pair<MeshAxis, std::string_view>, 6> kTable = {
      {{MeshAxis::Tp, "tp"},
       {MeshAxis::Cp, "cp"},
       {MeshAxis::DpShard, "dp_shard"},
       {MeshAxis::DpReplicate, "dp_replicate"},
       {MeshAxis::Pp, "pp"},
       {MeshAxis::Ep, "ep"}}};
};
template <>
struct Names<Packing> {
  static constexpr std::array<std::pair<Packing, std::string_view>, 2> kTable = {
      {{Packing::Streaming, "streaming"}, {Packing::BestFit, "best-fit"}}};
};
template <>
struct Names<DataFormat> {
  static constexpr std::array<std::pair<DataFormat, std::string_view>, 2> kTable = {
      {{DataFormat::Text, "text"}, {DataFormat::Chat, "chat"}}};
};
template <>
struct Names<Damaged> {
  static constexpr std::array<std::pair<Damaged, std::string_view>, 2> kTable = {
      {{Damaged::Fail, "fail"}, {Damaged::Skip, "skip"}}};
};
template <>
struct Names<ChatLoss> {
  static constexpr std::array<std::pair<ChatLoss, std::string_view>, 3> kTable = {
      {{ChatLoss::Assistant, "assistant"}, {ChatLoss::Last, "last"}, {ChatLoss::All, "all"}}};
};
template <>
struct Names<LongDocuments> {
  static constexpr std::array<std::pair<LongDocuments, std::string_view>, 3> kTable = {
      {{LongDocuments::Split, "split"},
       {LongDocuments::Truncate, "truncate"},
       {LongDocuments::Drop, "drop"}}};
};
template <>
struct Names<RopeScalingKind> {
  static constexpr std::array<std::pair<RopeScalingKind, std::string_view>, 5> kTable = {
      {{RopeScalingKind::None, "none"},
       {RopeScalingKind::Linear, "linear"},
       {RopeScalingKind::Llama3, "llama3"},
       {RopeScalingKind::Yarn, "yarn"},
       {RopeScalingKind::Longrope, "longrope"}}};
};
template <>
struct Names<RouterScore> {
  static constexpr std::array<std::pair<RouterScore, std::string_view>, 3> kTable = {
      {{RouterScore::Softmax, "softmax"},
       {RouterScore::Sigmoid, "sigmoid"},
       {RouterScore::SqrtSoftplus, "sqrt_softplus"}}};
};
template <>
struct Names<RouterOrder> {
  static constexpr std::array<std::pair<RouterOrder, std::string_view>, 2> kTable = {
      {{RouterOrder::ScoreFirst, "score_first"}, {RouterOrder::TopKFirst, "top_k_first"}}};
};
template <>
struct Names<BalanceScope> {
  static constexpr std::array<std::pair<BalanceScope, std::string_view>, 3> kTable = {
      {{BalanceScope::MicroBatch, "micro_batch"},
       {BalanceScope::Sequence, "sequence"},
       {BalanceScope::Global, "global"}}};
};
template <>
struct Names<DropPolicy> {
  static constexpr std::array<std::pair<DropPolicy, std::string_view>, 3> kTable = {
      {{DropPolicy::Probability, "probability"},
       {DropPolicy::Position, "position"},
       {DropPolicy::Random, "random"}}};
};
template <>
struct Names<ReshardExperts> {
  static constexpr std::array<std::pair<ReshardExperts, std::string_view>, 3> kTable = {
      {{ReshardExperts::Same, "same"}, {ReshardExperts::Always, "always"}, {ReshardExperts::Never, "never"}}};
};
template <>
struct Names<ContextMethod> {
  static constexpr std::array<std::pair<ContextMethod, std::string_view>, 5> kTable = {
      {{ContextMethod::Auto, "auto"},
       {ContextMethod::Gather, "gather"},
       {ContextMethod::Ring, "ring"},
       {ContextMethod::Ulysses, "ulysses"},
       {ContextMethod::UlyssesRing, "ulysses+ring"}}};
};
template <>
struct Names<RecomputeKind> {
  static constexpr std::array<std::pair<RecomputeKind, std::string_view>, 4> kTable = {
      {{RecomputeKind::None, "none"},
       {RecomputeKind::Selective, "selective"},
       {RecomputeKind::Full, "full"},
       {RecomputeKind::Fit, "fit"}}};
};
template <>
struct Names<OptimizerKind> {
  static constexpr auto kTable = std::to_array<std::pair<OptimizerKind, std::string_view>>({
#define QUINTET_OPTIMIZER(kind, name, ...) {OptimizerKind::kind, #name},
#include "config/optimizers.inc"
      {OptimizerKind::Custom, "custom"},
  });
};
template <>
struct Names<ClipKind> {
  static constexpr std::array<std::pair<ClipKind, std::string_view>, 2> kTable = {
      {{ClipKind::Norm, "norm"}, {ClipKind::Inf, "inf"}}};
};
template <>
struct Names<LinearKind> {
  static constexpr std::array<std::pair<LinearKind, std::string_view>, 4> kTable = {
      {{LinearKind::Compute, "compute"},
       {LinearKind::Fp8Delayed, "fp8-delayed"},
       {LinearKind::Fp8Block, "fp8-block"},
       {LinearKind::Mxfp8, "mxfp8"}}};
};
template <>
struct Names<MomentsRounding> {
  static constexpr std::array<std::pair<MomentsRounding, std::string_view>, 2> kTable = {
      {{MomentsRounding::Nearest, "nearest"}, {MomentsRounding::Stochastic, "stochastic"}}};
};
template <>
struct Names<MuonScale> {
  static constexpr std::array<std::pair<MuonScale, std::string_view>, 2> kTable = {
      {{MuonScale::Original, "original"}, {MuonScale::MatchRmsAdamW, "match_rms_adamw"}}};
};
template <>
struct Names<ScheduleKind> {
  static constexpr std::array<std::pair<ScheduleKind, std::string_view>, 5> kTable = {
      {{ScheduleKind::Constant, "constant"},
       {ScheduleKind::Linear, "linear"},
       {ScheduleKind::Cosine, "cosine"},
       {ScheduleKind::InverseSqrt, "inverse_sqrt"},
       {ScheduleKind::Wsd, "wsd"}}};
};
template <>
struct Names<DecayShape> {
  static constexpr std::array<std::pair<DecayShape, std::string_view>, 4> kTable = {
      {{DecayShape::Linear, "linear"},
       {DecayShape::Cosine, "cosine"},
       {DecayShape::Exponential, "exponential"},
       {DecayShape::OneMinusSqrt, "1-sqrt"}}};
};
template <>
struct Names<RampKind> {
  static constexpr std::array<std::pair<RampKind, std::string_view>, 3> kTable = {
      {{RampKind::Constant, "constant"}, {RampKind::Linear, "linear"}, {RampKind::Cosine, "cosine"}}};
};
template <>
struct Names<LrScalingRule> {
  static constexpr std::array<std::pair<LrScalingRule, std::string_view>, 3> kTable = {
      {{LrScalingRule::None, "none"}, {LrScalingRule::Linear, "linear"}, {LrScalingRule::Sqrt, "sqrt"}}};
};
template <>
struct Names<DeviceKind> {
  static constexpr std::array<std::pair<DeviceKind, std::string_view>, 2> kTable = {
      {{DeviceKind::Cpu, "cpu"}, {DeviceKind::Cuda, "cuda"}}};
};
template <>
struct Names<BackendKind> {
  static constexpr std::array<std::pair<BackendKind, std::string_view>, 3> kTable = {
      {{BackendKind::Auto, "auto"}, {BackendKind::Local, "local"}, {BackendKind::Mpi, "mpi"}}};
};
// The element types allowed in a recipe; base has more.
template <>
struct Names<base::DType> {
  static constexpr std::array<std::pair<base::DType, std::string_view>, 4> kTable = {
      {{base::DType::F64, "f64"},
       {base::DType::F32, "f32"},
       {base::DType::BF16, "bf16"},
       {base::DType::F16, "f16"}}};
};
template <>
struct Names<Master> {
  static constexpr std::array<std::pair<Master, std::string_view>, 4> kTable = {
      {{Master::F64, "f64"}, {Master::F32, "f32"}, {Master::Split, "split"}, {Master::Bf16, "bf16"}}};
};

// Empty for a value that has no name in recipes.
template <class E>
constexpr std::string_view name_of(E value) {
  for (const auto& [v, name] : Names<E>::kTable)
    if (v == value) return name;
  return {};
}

template <class E>
constexpr std::optional<E> value_of(std::string_view text) {
  for (const auto& [v, name] : Names<E>::kTable)
    if (name == text) return v;
  return std::nullopt;
}

}  // namespace quintet::config
