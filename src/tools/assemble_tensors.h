// Assembles whole tensors from the pieces of ranks. Shared by both ways to run a layout.
#pragma once

#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "tools/run_layout.h"

namespace quintet::tools {

// Collects one state of all parameters. Ranks of a process write disjoint elements of one table; processes
// have one table each and sum them.
class TensorAssembler {
 public:
  // Of the parameters for which `has` holds.
  using Has = std::function<bool(const graph::Param&)>;
  TensorAssembler(const graph::Graph& logical, const Has& has);

  void take(const train::Rank& rank, const train::Rank::Wanted& wanted);
  // Collective. Sums what the members of `comm` took.
  void sum(comm::Communicator& comm);
  // The assembled tensors, once every rank has contributed.
  std::vector<Tensor> finish(std::string_view what);

 private:
  std::vector<Tensor> tensors_;
  std::vector<std::vector<int32_t>> written_;
  std::map<std::string, size_t> index_;
  std::mutex mutex_;
  bool any_ = false;
};

// Number i of a tensor of floats or bytes.
double element_of(const std::byte* data, base::DType dtype, int64_t i);

std::vector<Tensor> states_of(const train::Rank& rank);
std::vector<Tensor> sums_of(const train::Rank& rank);

const Tensor* find(const std::vector<Tensor>& list, const std::string& name);  // null: it is not there

// Adds a step to the moves of the parameters whose optimizer has them (LayoutRun::moves) and to their
// averages, computed from the moments that it produced and, for LAMB and LARS, from its gradients and the
// weights before it.
void add_moves(LayoutRun& run, const std::vector<Moments>& moments, const std::vector<Tensor>& gradients,
               const config::Optimizer& o, const train::StepResult& result, int64_t update);

// The length of the longest chain of ops.
int64_t longest_path(const graph::Graph& graph);

}  // namespace quintet::tools
