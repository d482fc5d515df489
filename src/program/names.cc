#include <algorithm>

#include "base/error.h"
#include "program/program.h"

namespace quintet::program {

MemoryClass memory_class_of(graph::Role role) {
  switch (role) {
    case graph::Role::Weight:
    case graph::Role::RouterBias:
    case graph::Role::Amax:
      return MemoryClass::Parameters;
    case graph::Role::Master:
    case graph::Role::Moment:
    case graph::Role::Ema:
      return MemoryClass::Optimizer;
    case graph::Role::Gradient:
      return MemoryClass::Gradients;
    case graph::Role::Scalar:
      return MemoryClass::Inputs;
  }
  base::fail_internal("unknown role of a state");
}

std::string_view to_string(MemoryClass c) {
  switch (c) {
    case MemoryClass::Parameters:
      return "parameters";
    case MemoryClass::Gradients:
      return "gradients";
    case MemoryClass::Optimizer:
      return "optimizer";
    case MemoryClass::Activations:
      return "activations";
    case MemoryClass::Communication:
      return "communication";
    case MemoryClass::Workspace:
      return "workspace";
    case MemoryClass::Inputs:
      return "inputs";
  }
  return "?";
}

std::string_view to_string(BodyKind k) {
  switch (k) {
    case BodyKind::Begin:
      return "begin";
    case BodyKind::Forward:
      return "forward";
    case BodyKind::Backward:
      return "backward";
    case BodyKind::Weight:
      return "weight";
    case BodyKind::Step:
      return "step";
    case BodyKind::Evaluate:
      return "evaluate";
    case BodyKind::EvaluateEnd:
      return "evaluate_end";
    case BodyKind::Infer:
      return "infer";
    case BodyKind::Measure:
      return "measure";
  }
  return "?";
}

bool Program::has_scalar(std::string_view name) const {
  return std::any_of(scalar_table.begin(), scalar_table.end(), [&](const auto& s) { return s.name == name; });
}

int Program::scalar_slot(std::string_view name) const {
  for (size_t i = 0; i < scalar_table.size(); ++i)
    if (scalar_table[i].name == name) return static_cast<int>(i);
  base::fail_internal("the program has no scalar {}", name);
}

const GroupSlot* Program::find_slot(int group, std::string_view slot) const {
  for (const GroupSlot& s : slots)
    if (s.group == group && s.slot == slot) return &s;
  return nullptr;
}

int Program::num_scalar_inputs() const {
  int n = 0;
  for (const ScalarDecl& s : scalar_table) n += s.kind == ScalarKind::Input;
  return n;
}

std::string_view to_string(CollectiveKind k) {
  switch (k) {
    case CollectiveKind::AllReduce:
      return "all_reduce";
    case CollectiveKind::AllGather:
      return "all_gather";
    case CollectiveKind::ReduceScatter:
      return "reduce_scatter";
    case CollectiveKind::AllToAll:
      return "all_to_all";
    case CollectiveKind::AllToAllV:
      return "all_to_all_v";
    case CollectiveKind::Send:
      return "send";
    case CollectiveKind::Recv:
      return "recv";
    case CollectiveKind::Exchange:
      return "exchange";
  }
  return "?";
}

}  // namespace quintet::program
