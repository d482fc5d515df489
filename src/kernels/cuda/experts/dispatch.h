// Moves token rows to the slots of their experts and back: kernels/cpu/experts/dispatch.h on device memory.
// The number of rows is read on the device; counts past the planned maximum are truncated there.
#pragma once

#include <cstddef>

#include "kernels/cuda/support/types.h"
#include "kernels/routing_shapes.h"

namespace quintet::kernels::cuda {

// The slots of tokens x choices pairs, `kept` being each pair's expert or negative. Without `padded` the
// pairs are sorted by (expert, row, choice) with unused slots at the end, and send[e] counts expert e's.
// Padded, every expert has slots / experts slots, unused ones after the used ones, and send[e] is that
// number; a pair that does not fit is left out.
int64_t route_workspace_bytes(int64_t tokens, int64_t choices, int64_t experts);
void route(const int32_t* kept, int64_t tokens, int64_t choices, int64_t experts, bool padded, int64_t slots,
           int32_t* order, int32_t* send, void* workspace, Stream stream);

// kernels/cpu/experts/dispatch.h: the rows of a pass, `pass` (null: 0) in device memory; *passes is how many
// the group needs.
int64_t split_rows_workspace_bytes(const PassShape& shape);
void split_rows(const PassShape& shape, const int32_t* order, const int32_t* counts, const int32_t* pass,
                int32_t* pass_order, int32_t* send, int32_t* received, int32_t* passes, void* workspace,
                Stream stream);

// y[slot] = x[order[slot] / choices], rows of `row_bytes` bytes. Unused slots are left unchanged, or
// zeroed.
int64_t pack_rows_workspace_bytes(int64_t tokens, int64_t choices);
void pack_rows(const std::byte* x, const int32_t* order, int64_t tokens, int64_t choices, bool zero_unused,
               std::byte* y, int64_t slots, int64_t row_bytes, void* workspace, Stream stream);

// x[row] = sum of y over the row's slots, in order of choice, plus the addend's row (null: zero), which may
// be x. Unused slots are not read.
int64_t unpack_rows_workspace_bytes(int64_t tokens, int64_t choices);
template <class T>
void unpack_rows(const T* y, const int32_t* order, int64_t slots, int64_t choices, const T* addend, T* x,
                 int64_t tokens, int64_t n, void* workspace, Stream stream);

// packed[slot] = weights[order[slot]], and the inverse: zero for pairs without a slot, plus the addend (null:
// zero), which may be `weights`. S is float or double.
template <class S>
void pack_weights(const S* weights, const int32_t* order, bool zero_unused, S* packed, int64_t slots,
                  Stream stream);
template <class S>
void unpack_weights(const S* packed, const int32_t* order, int64_t slots, const S* addend, S* weights,
                    int64_t pairs, Stream stream);

// Permutes rows from order [source][expert], counted by received[source * experts + expert], to
// [expert][source], or back. At most `rows` rows; those past the counts are neither read nor written.
int64_t regroup_workspace_bytes(int64_t sources, int64_t experts);
void regroup(const std::byte* x, const int32_t* received, int64_t sources, int64_t experts, bool inverse,
             std::byte* y, int64_t rows, int64_t row_bytes, void* workspace, Stream stream);

// y[i] = sum over c of x[c * n + i], c ascending.
template <class T>
void sum_copies(const T* x, int64_t copies, T* y, int64_t n, Stream stream);

// *rows = the sum of counts[n], at most `most`.
void count_rows(const int32_t* counts, int64_t n, int64_t most, int64_t* rows, Stream stream);

}  // namespace quintet::kernels::cuda
