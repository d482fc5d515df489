// Places of a data stream, as checkpoints have them. An accepted one is written as it reads.
#include "data/sample_stream.h"
#include "fuzz/target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace quintet;
  return fuzz::run([&] {
    const data::StreamCursor cursor = data::parse_cursor(std::string(fuzz::text_of(data, size)));
    fuzz::require(data::parse_cursor(data::to_text(cursor)) == cursor, "another place");
  });
}
