#pragma once

#include "kernels/cpu/pointwise.h"

namespace quintet::kernels::cpu {

template <class T>
struct PointwiseVariants {
  decltype(&cpu::add<T>) add;
  decltype(&cpu::add_bias<T>) add_bias;
  decltype(&cpu::fill<T>) fill;
  decltype(&cpu::scale<T>) scale;
  decltype(&cpu::accumulate<double, T>) accumulate_from_f64;
  decltype(&cpu::accumulate<float, T>) accumulate_from_f32;
  decltype(&cpu::accumulate<Bf16, T>) accumulate_from_bf16;
  decltype(&cpu::accumulate<F16, T>) accumulate_from_f16;
  decltype(&cpu::cast<double, T>) cast_from_f64;
  decltype(&cpu::cast<float, T>) cast_from_f32;
  decltype(&cpu::cast<Bf16, T>) cast_from_bf16;
  decltype(&cpu::cast<F16, T>) cast_from_f16;
};

}  // namespace quintet::kernels::cpu
