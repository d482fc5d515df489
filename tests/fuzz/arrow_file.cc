// Arrow IPC files, as datasets saves them.
#include "data/arrow_file.h"

#include "fuzz/target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace quintet;
  const auto bytes = std::as_bytes(std::span(data, size));
  return fuzz::run([&] {
    data::read_arrow(bytes, "a.arrow",
                     {[](std::string_view) {},
                      [](std::span<const int32_t> ids, std::span<const uint8_t> trained) {
                        fuzz::require(trained.empty() || trained.size() == ids.size(), "a flag per id");
                      }});
  });
}
