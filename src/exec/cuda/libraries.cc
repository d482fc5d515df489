#include "exec/cuda/libraries.h"

namespace quintet::exec::cuda {

Libraries::Libraries(LibraryOptions options) : options_(options) { matmul_.allow_tf32(options.tf32); }

}  // namespace quintet::exec::cuda
