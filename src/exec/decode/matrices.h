// Arguments of Muon's ops, for the kernels of every backend.
#pragma once

#include "exec/decode/step.h"
#include "exec/operands.h"
#include "exec/with_type.h"
#include "kernels/matrix_pieces.h"
#include "program/matrix_pieces.h"

namespace quintet::exec {

// Calls fn with values of the C++ types of momentum and gradient.
template <class F>
void with_momentum_types(base::DType moment, base::DType gradient, F&& fn) {
  if (moment == base::DType::F64) return fn(double{}, double{});
  with_f32_or_bf16(moment, "moments", [&]<class V>(V) {
    with_f32_or_bf16(gradient, "gradients", [&]<class G>(G) { fn(V{}, G{}); });
  });
}

// Calls fn with a value of the C++ type that Newton-Schulz and its exchange are in.
template <class F>
void with_matrix_type(base::DType t, F&& fn) {
  if (t == base::DType::F64) return fn(double{});
  if (t == base::DType::F32) return fn(float{});
  if (t == base::DType::BF16) return fn(base::Bf16{});
  base::fail_internal("no Newton-Schulz in {}", base::to_string(t));
}

// Calls fn(momentum, gradient, count, origin) for each range of a muon_momentum.
template <class F>
void with_momentum_ranges(const Operands& b, F&& fn) {
  with_momentum_types(b.out_type(0).dtype, b.in_type(0).dtype, [&]<class V, class G>(V, G) {
    const std::vector<program::FlatRange> ranges = program::flat_ranges(*b.instr);
    const std::vector<kernels::Origin> origins = update_origins(*b.instr, ranges.size());
    for (size_t i = 0; i < ranges.size(); ++i) {
      const program::FlatRange& r = ranges[i];
      const auto group = static_cast<size_t>(r.operand);
      fn(b.output<V>(group) + r.first, b.input<const G>(group) + r.first, r.count, origins[i]);
    }
  });
}

// Calls fn(momentum, gradient, direction, count) for each piece of a gather_directions.
template <class F>
void with_direction_pieces(const Operands& b, F&& fn) {
  with_momentum_types(b.in_type(1).dtype, b.in_type(0).dtype, [&]<class V, class G>(V, G) {
    with_matrix_type(b.out_type(0).dtype, [&]<class T>(T) {
      for (const program::FlatPiece& p : program::flat_pieces(b.instr->attrs)) {
        const auto group = static_cast<size_t>(p.operand);
        fn(b.input<const V>(2 * group + 1) + p.first, b.input<const G>(2 * group) + p.first,
           b.output<T>(0) + p.at, p.count);
      }
    });
  });
}

// Calls plain(std::vector<kernels::UpdateRange<...>>) or split(std::vector<kernels::SplitUpdateRange<...>>)
// with the pieces of an apply_directions; their gradients are the directions.
template <class Plain, class Split>
void with_applied_pieces(const Operands& b, Plain&& plain, Split&& split) {
  using graph::DType;
  const DType direction = b.in_type(0).dtype, weight = b.out_type(0).dtype;
  const bool pairs = b.out.size() > 1 && b.out_type(1).dtype != weight;
  const size_t each = pairs ? 2 : 1;
  const std::vector<program::FlatPiece> pieces = program::flat_pieces(b.instr->attrs);
  const auto rates = [&](const program::FlatPiece& p) {
    return program::update_rates(b.instr->attrs, p.row);
  };
  const auto result = [&]<class T>(T, const program::FlatPiece& p, size_t i) {
    return b.output<T>(static_cast<size_t>(p.operand) * each + i) + p.first;
  };
  if (pairs && b.out_type(1).dtype == DType::I16)
    return with_f32_or_bf16(direction, "directions", [&]<class G>(G) {
      std::vector<kernels::SplitUpdateRange<float, G>> list;
      for (const program::FlatPiece& p : pieces)
        list.push_back({.weight = result(base::Bf16{}, p, 0),
                        .remainder = result(int16_t{}, p, 1),
                        .moment1 = nullptr,
                        .moment2 = nullptr,
                        .gradient = b.input<const G>(0) + p.at,
                        .count = p.count,
                        .lr_factor = rates(p).lr_factor,
                        .weight_decay = rates(p).weight_decay});
      split(list);
    });
  const DType copy = pairs ? b.out_type(1).dtype : weight;
  with_update_types({weight, weight, direction, copy}, [&]<class M, class V, class G, class C>(M, V, G, C) {
    std::vector<kernels::UpdateRange<M, V, G, C>> list;
    for (const program::FlatPiece& p : pieces)
      list.push_back({.master = result(M{}, p, 0),
                      .moment1 = nullptr,
                      .moment2 = nullptr,
                      .gradient = b.input<const G>(0) + p.at,
                      .copy = pairs ? result(C{}, p, 1) : nullptr,
                      .count = p.count,
                      .lr_factor = rates(p).lr_factor,
                      .weight_decay = rates(p).weight_decay});
    plain(list);
  });
}

inline std::vector<kernels::MatrixPiece> kernel_pieces(const program::Instr& instr) {
  std::vector<kernels::MatrixPiece> pieces;
  for (const program::MatrixPiece& p : program::matrix_pieces(instr.attrs))
    pieces.push_back({p.at, p.slot, p.row, p.column, p.width, p.first, p.count});
  return pieces;
}

// The numbers of a newton_schulz, as a backend's struct of that name has them.
template <class Problem>
Problem newton_schulz_problem(const program::Instr& instr) {
  return {.rows = instr.attrs.integer("rows"),
          .columns = instr.attrs.integer("columns"),
          .steps = graph::kNewtonSchulzSteps,
          .a = graph::kNewtonSchulzCoefficients[0],
          .b = graph::kNewtonSchulzCoefficients[1],
          .c = graph::kNewtonSchulzCoefficients[2],
          .eps = graph::kNewtonSchulzEps,
          .scale = instr.attrs.real("scale")};
}

}  // namespace quintet::exec
