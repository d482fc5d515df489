// Shared by the fuzz targets. A target is LLVMFuzzerTestOneInput over one parser of external input; libFuzzer
// drives it (make fuzz-parsers), or replay.cc with the committed corpus (make test).
//
// A parser may refuse its input with a UserError and nothing else: any other exception, a signal, a sanitizer
// report or a failed require() is a finding.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "base/error.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace quintet::fuzz {

inline std::string_view text_of(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

// Whether the last input was accepted, for replay.cc: seeds named good_* must be.
inline bool accepted = false;

template <class Fn>
int run(Fn&& parse) {
  accepted = false;
  try {
    parse();
    accepted = true;
  } catch (const base::UserError&) {
  }
  return 0;
}

inline void require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "fuzz: %s\n", what);
  std::abort();
}

}  // namespace quintet::fuzz
