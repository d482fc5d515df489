// Tensors in files of torch.save (.bin, .pt): zip archives with a pickle that names them. The pickle is read,
// never executed (pickle.h).
#pragma once

#include "hf/tensor_source.h"

namespace quintet::hf {

std::unique_ptr<TensorSource> open_torch(const base::Path& path, const std::vector<base::Path>& files);

// A folder of torch.distributed.checkpoint, as Megatron's "torch_dist" format is, too: .metadata says where
// the pieces of every tensor are in the .distcp files.
std::unique_ptr<TensorSource> open_distributed(const base::Path& folder);

}  // namespace quintet::hf
