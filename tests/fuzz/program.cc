// Program texts in the full form: an accepted text prints as text that parses to the same program.
#include "fuzz/target.h"
#include "program/text.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace quintet;
  return fuzz::run([&] {
    const auto print = [](const program::Program& p) { return program::to_text(p, {}, {.full = true}); };
    const std::string printed = print(program::parse_text(fuzz::text_of(data, size)));
    fuzz::require(print(program::parse_text(printed)) == printed, "a program reads back otherwise");
  });
}
