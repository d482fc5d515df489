// Schedule files: an accepted file prints as text that parses to the same schedule, and can be checked.
#include "fuzz/target.h"
#include "schedule/check.h"
#include "schedule/text.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace quintet;
  return fuzz::run([&] {
    const schedule::Schedule read = schedule::parse(fuzz::text_of(data, size));
    const std::string printed = schedule::print(read);
    fuzz::require(schedule::print(schedule::parse(printed)) == printed, "a schedule reads back otherwise");
    schedule::check(read);
  });
}
