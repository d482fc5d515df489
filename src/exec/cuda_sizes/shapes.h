// What kernels/cuda is told of an instruction: the shapes by which its kernels run and its scratch is
// counted.
#pragma once

#include "exec/operands.h"
#include "kernels/cuda/attention.h"
#include "kernels/cuda/balance.h"
#include "kernels/cuda/grouped_matmul.h"
#include "kernels/cuda/reduce.h"
#include "kernels/cuda/router.h"
#include "kernels/cuda/router_limit.h"

namespace quintet::exec::cuda {

// The last dim, and all others together.
inline int64_t last_size(const graph::Type& t) { return t.dims.back().size; }
inline int64_t num_rows(const graph::Type& t) { return last_size(t) == 0 ? 0 : t.count() / last_size(t); }

// The derived key of attention's dropout lies at the start of the scratch.
inline constexpr int64_t kKeyBytes = kernels::cuda::kWorkspaceAlignment;

// Without pointers. q, k, v start at operand `first`, documents and key_documents at `rest`.
kernels::cuda::AttentionShape attention_shape(const program::Instr& instr, size_t first, size_t rest);
// Whether documents are told apart: an instruction that says packed = 0 has one document in every sequence.
kernels::cuda::AttentionMasks masks_of(const program::Instr& instr);
// Whether cuDNN may have a plan; q is operand `first`.
bool suits_library(const program::Instr& instr, const kernels::cuda::AttentionShape& shape, size_t first);

// dlogits, w -> dx; dlogits, x -> dw
kernels::cuda::RouterShape router_backward_shape(const program::Instr& instr);
kernels::cuda::LimitShape limit_shape(const program::Instr& instr);
kernels::cuda::LoadShape load_shape(const program::Instr& instr);
// The rows whose sums belong together, of `rows` rows: those of a sequence, or all.
base::RowOrder sums_order(const graph::Attrs& attrs, int64_t rows);

// Rows, experts and the two widths of a grouped product: rows x out and rows x in beside out x in weights.
kernels::GroupedArgs grouped_with_weight(const program::Instr& instr);  // x or dy, w, received
kernels::GroupedArgs grouped_of_weight(const program::Instr& instr);    // dy, x, received -> dw

std::vector<kernels::cuda::Range> squared_ranges(const program::Instr& instr);

}  // namespace quintet::exec::cuda
