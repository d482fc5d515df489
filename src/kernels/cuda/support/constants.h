// Small tables that kernels read on the device, known on the host before the first launch.
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>

#include "kernels/cuda/support/types.h"

namespace quintet::kernels::cuda {

class Constants {
 public:
  Constants() = default;
  ~Constants();
  Constants(const Constants&) = delete;
  Constants& operator=(const Constants&) = delete;

  // A device copy of host memory, aligned to kWorkspaceAlignment, that lives as long as this object. Equal
  // bytes share one copy. Allocates and waits: before training, never inside a step.
  const std::byte* add(std::span<const std::byte> bytes);

 private:
  std::map<std::string, std::byte*> held_;  // by content
};

}  // namespace quintet::kernels::cuda
