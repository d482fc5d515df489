// Selects the build of the kernels that runs. Each <concern>/*.inc is compiled once per instruction set into
// a namespace of its own (see src/kernels/CMakeLists.txt); each build publishes a table of function pointers,
// and the public functions call through the table of the best set that this processor has.
#pragma once

#include <cstdint>

namespace quintet::kernels::cpu {

enum class Isa : uint8_t { Baseline, Avx2, Avx512 };

// The best set this processor has, unless limit_isa lowered it.
Isa isa();
// For tests and benchmarks: use at most this set. Not while kernels run.
void limit_isa(Isa most);

}  // namespace quintet::kernels::cpu

// Declares `template <class T> const Table<T>& name()` per instruction set and defines `variants` of the same
// signature, which picks one.
#define QUINTET_SELECT_VARIANT(name, Table) \
  namespace baseline {                      \
  template <class T>                        \
  const Table<T>& name();                   \
  }                                         \
  namespace avx2 {                          \
  template <class T>                        \
  const Table<T>& name();                   \
  }                                         \
  namespace avx512 {                        \
  template <class T>                        \
  const Table<T>& name();                   \
  }                                         \
  namespace {                               \
  template <class T>                        \
  const Table<T>& variants() {              \
    switch (isa()) {                        \
      case Isa::Avx512:                     \
        return avx512::name<T>();           \
      case Isa::Avx2:                       \
        return avx2::name<T>();             \
      case Isa::Baseline:                   \
        break;                              \
    }                                       \
    return baseline::name<T>();             \
  }                                         \
  }
