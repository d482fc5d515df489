// An instruction with the addresses of its operands: the argument of kernels of every backend.
#pragma once

#include <vector>

#include "program/program.h"

namespace quintet::exec {

// This rank's part of a dim; null when the op does not shard it.
inline const program::Part* part_of(const program::Instr& instr, graph::Dim dim) {
  for (const program::Part& p : instr.parts)
    if (p.dim == dim) return &p;
  return nullptr;
}

// Elements per row of a value whose first dim is rows.
inline int64_t columns(const graph::Type& t) {
  int64_t n = 1;
  for (size_t i = 1; i < t.dims.size(); ++i) n *= t.dims[i].size;
  return n;
}

struct Operands {
  const program::Instr* instr = nullptr;
  std::vector<std::byte*> in, out;

  const graph::Type& in_type(size_t i) const { return instr->in[i].type; }
  const graph::Type& out_type(size_t i) const { return instr->out[i].type; }
  template <class T>
  T* input(size_t i) const {
    return reinterpret_cast<T*>(in[i]);
  }
  template <class T>
  T* input_if(int i) const {  // null for -1: an absent operand
    return i < 0 ? nullptr : input<T>(static_cast<size_t>(i));
  }
  template <class T>
  T* output(size_t i) const {
    return reinterpret_cast<T*>(out[i]);
  }
  // Null if there are fewer: the last operand is optional.
  template <class T>
  T* last_input(size_t i) const {
    return i < in.size() ? input<T>(i) : nullptr;
  }
  template <class T>
  T* last_output(size_t i) const {
    return i < out.size() ? output<T>(i) : nullptr;
  }
  const program::Part* part(graph::Dim dim) const { return part_of(*instr, dim); }
};

}  // namespace quintet::exec
