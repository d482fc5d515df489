// Moves token rows to the slots of their experts and back. A slot's entry in `order` is row * choices +
// choice of the pair that occupies it, or negative when it is empty.
#pragma once

#include "kernels/cpu/support/types.h"
#include "kernels/routing_shapes.h"

namespace quintet::kernels::cpu {

// The slots of tokens x choices pairs, `kept` being each pair's expert or negative. Without `padded` the
// pairs are sorted by (expert, row, choice) with unused slots at the end, and send[e] counts expert e's.
// Padded, every expert has slots / experts slots, unused ones after the used ones, and send[e] is that
// number; a pair that does not fit is an InternalError.
void route(const int32_t* kept, int64_t tokens, int64_t choices, int64_t experts, bool padded, int64_t slots,
           int32_t* order, int32_t* send, void* workspace);
int64_t route_workspace_bytes(int64_t experts);

// Pass `pass` of the rows that arrive at a member, in order of expert and sender: the entries of `order` that
// are sent in it, with unused slots at the end, how many to each expert, and how many arrive from each member
// for each own expert. Returns the passes that all members need. A function of the counts, which all members
// share.
int64_t split_rows(const PassShape& shape, const int32_t* order, const int32_t* counts, int64_t pass,
                   int32_t* pass_order, int32_t* send, int32_t* received);

// y[slot] = x[order[slot] / choices], rows of `row_bytes` bytes. Unused slots are left unchanged, or
// zeroed.
void pack_rows(const std::byte* x, const int32_t* order, int64_t choices, bool zero_unused, std::byte* y,
               int64_t slots, int64_t row_bytes, ThreadPool& pool);

// x[row] = sum of y over the row's slots, in order of choice, plus the addend's row (null: zero), which may
// be x. Unused slots are not read.
template <class T>
void unpack_rows(const T* y, const int32_t* order, int64_t slots, int64_t choices, const T* addend, T* x,
                 int64_t tokens, int64_t n, void* workspace, ThreadPool& pool);
int64_t unpack_rows_workspace_bytes(int64_t tokens, int64_t choices);

// packed[slot] = weights[order[slot]], and the inverse: zero for pairs without a slot, plus the addend (null:
// zero), which may be `weights`. S is float or double.
template <class S>
void pack_weights(const S* weights, const int32_t* order, bool zero_unused, S* packed, int64_t slots);
template <class S>
void unpack_weights(const S* packed, const int32_t* order, int64_t slots, const S* addend, S* weights,
                    int64_t pairs);

// Permutes rows from order [source][expert], counted by received[source * experts + expert], to
// [expert][source], or back. At most `rows` rows; those past the counts are neither read nor written.
void regroup(const std::byte* x, const int32_t* received, int64_t sources, int64_t experts, bool inverse,
             std::byte* y, int64_t rows, int64_t row_bytes, void* workspace, ThreadPool& pool);
int64_t regroup_workspace_bytes(int64_t sources, int64_t experts);

// y[i] = sum over c of x[c * n + i], c ascending.
template <class T>
void sum_copies(const T* x, int64_t copies, T* y, int64_t n, ThreadPool& pool);

// For unpack_rows: `slot_of` holds each pair's slot or a negative number.
template <class T>
struct DispatchVariants {
  void (*sum_slots)(const T* y, const int32_t* slot_of, int64_t choices, const T* addend, T* x,
                    int64_t tokens, int64_t n, ThreadPool& pool);
  decltype(&cpu::sum_copies<T>) sum_copies;
};

}  // namespace quintet::kernels::cpu
