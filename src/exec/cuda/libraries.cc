#include "exec/cuda/libraries.h"

namespace quintet::exec::cuda {

Libraries::Libraries(LibraryOptions options)
    : options_(options), attention_choices_(kernels::cuda::Attention::conditions()) {
  matmul_.allow_tf32(options.tf32);
}

void Libraries::read_tuned(const std::string& text) {
  matmul_.read_tuned(text);
  attention_choices_.read_tuned(text);
}

}  // namespace quintet::exec::cuda
