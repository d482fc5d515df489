// The first instructions of every step, and the end of an evaluation.
#include "graph/fp8_ops.h"
#include "program/lowering.h"

namespace quintet::program {

namespace {

// Only the last stage has losses to add; the sum over stages needs zeros from the others.
void zero_loss(Emitter& e) {
  if (!e.layout().pipeline.empty()) e.zero(e.scalar(scalars::kLoss));
}

void count_tokens(Emitter& e) {
  e.all_reduce(e.scalar(scalars::kCount), e.layout().data(), graph::Reduction::Sum, {.note = "count tokens"},
               Traffic::State);
}

// The scales of quantised values, which follow from the steps before.
void find_scales(Emitter& e, const graph::Graph& graph) {
  const graph::ValueId value = graph.find(graph::kScaleState);
  if (!value.valid()) return;
  std::vector<double> largest, initial;
  for (const graph::ScaleDecl& s : graph.scales) largest.push_back(s.largest), initial.push_back(s.initial);
  const graph::Type& type = graph.type(value);
  e.emit({.op = &graph::kDelayedScales,
          .attrs = {{"largest", std::move(largest)},
                    {"initial", std::move(initial)},
                    {"out", std::string(base::to_string(type.dtype))}},
          .in = {e.state(graph::kAmaxState)},
          .out = {{e.buffer_named(graph::kScaleState), 0, type}},
          .note = "fp8 scales"});
}

}  // namespace

void lower_begin(Emitter& e, const graph::Graph& graph) {
  e.begin(BodyKind::Begin);
  zero_loss(e);
  const Program& p = e.program();
  if (p.sums.valid())
    e.zero(flat_view(p.sums, 0, p.step_sums.back().first + p.step_sums.back().count, graph::DType::F64));
  count_tokens(e);
  e.emit({.op = &graph::kCountToSeed,
          .in = {e.scalar(scalars::kCount), e.scalar(scalars::kLossScale)},
          .out = {e.scalar(scalars::kSeed)}});
  if (p.has_scalar(scalars::kAuxiliarySeed))
    e.emit({.op = &graph::kCountToSeed,
            .in = {e.scalar(scalars::kStepShare), e.scalar(scalars::kLossScale)},
            .out = {e.scalar(scalars::kAuxiliarySeed)},
            .note = "auxiliary losses of a smaller step"});
  find_scales(e, graph);
}

void lower_evaluate_begin(Emitter& e) {
  e.begin(BodyKind::Begin);
  zero_loss(e);
}

void lower_evaluate_end(Emitter& e) {
  e.begin(BodyKind::EvaluateEnd);
  count_tokens(e);
  e.all_reduce(e.scalar(scalars::kLoss), layout::set_union(e.layout().pipeline, e.layout().data()),
               graph::Reduction::Sum, {.note = "sum loss"}, Traffic::State);
}

}  // namespace quintet::program
