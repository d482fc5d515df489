// Which kernels run an attention that both cuDNN and the tiled kernels can run: the faster ones, timed once
// per problem before the first step. Choices are kept as text in the lines of exec/cuda/gemm_algorithms.h:
// conditions | problem | microseconds | kernels, and the microseconds of the others. Needs no device.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace quintet::exec::cuda {

enum class AttentionKernels : uint8_t { Library, Own };

class AttentionChoices {
 public:
  struct Choice {
    AttentionKernels kernels;
    double microseconds, others_microseconds;
    friend bool operator==(const Choice&, const Choice&) = default;
  };

  // Choices made under other conditions (GPU, version of cuDNN) are ignored when read.
  explicit AttentionChoices(std::string conditions) : conditions_(std::move(conditions)) {}

  std::optional<AttentionKernels> find(const std::string& problem) const;
  void set(const std::string& problem, const Choice& choice);
  int64_t count() const { return static_cast<int64_t>(choices_.size()); }

  std::string tuned() const;
  void read_tuned(const std::string& text);
  // For the user, in one line: which kernels run how many problems, and where there is one the times. Names
  // only problems that this object was asked for. Empty when there are none.
  std::string summary() const;

 private:
  std::string conditions_;
  std::map<std::string, Choice> choices_;
  mutable std::map<std::string, AttentionKernels> asked_;
};

}  // namespace quintet::exec::cuda
