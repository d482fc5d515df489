#include "graph/step_graph.h"

#include <algorithm>
#include <set>

namespace quintet::graph {

std::vector<StateDecl> weight_states(const Graph& model, DType compute) {
  std::vector<StateDecl> states;
  for (const Param& p : model.params()) {
    const Value& v = model.value(p.value);
    states.push_back({.name = v.name,
                      .role = Role::Weight,
                      .type = {compute, v.type.dims},
                      .keep = Keep::Saved,
                      .param = v.name,
                      .slot = "param"});
  }
  return states;
}

StorageClasses StepGraph::storage_classes() const {
  std::map<std::string, std::set<std::string>> slots;  // of moments, by trained parameter
  for (const StateDecl& s : states) {
    if (!s.value.valid() || s.param.empty()) continue;
    std::set<std::string>& own = slots[s.param];
    if (s.role == Role::Moment) own.insert(s.slot);
  }
  // Each set of slots by its optimizer's name, or, where one name stands for several sets, by all slots.
  std::map<std::set<std::string>, std::string> names;
  std::map<std::string, int> uses;
  for (const auto& [param, own] : slots) {
    const auto [at, is_new] = names.try_emplace(own);
    if (!is_new) continue;
    at->second = own.empty() ? "stateless" : own.begin()->substr(0, own.begin()->find('.'));
    ++uses[at->second];
  }
  StorageClasses classes;
  for (const auto& [param, own] : slots) {
    std::string& name = classes[param];
    if (names.size() == 1) continue;
    name = names.at(own);
    if (uses.at(name) > 1)
      for (const std::string& slot : own) name += "+" + slot;
  }
  return classes;
}

StateBlocks StepGraph::state_blocks() const {
  StateBlocks blocks;
  for (const StateDecl& s : states)
    if (s.block > 1) blocks[s.param] = std::max(blocks[s.param], s.block);
  return blocks;
}

}  // namespace quintet::graph
