#include "data/megatron_index.h"

#include <span>

#include "base/error.h"

namespace quintet::data {

TokenWidth megatron_width_for(int64_t vocab) { return vocab < 65500 ? TokenWidth::U16 : TokenWidth::U32; }

void write_megatron_index(base::AtomicFile& idx, TokenWidth width, int64_t documents,
                          const ForEachLength& for_each_length) {
  const auto put = [&](const auto& value) { idx.write(std::as_bytes(std::span(&value, 1))); };
  idx.write(std::string_view("MMIDIDX\0\0", 9));
  put(uint64_t{1});  // version
  put(uint8_t{width == TokenWidth::U16 ? uint8_t{8} : uint8_t{4}});
  put(static_cast<uint64_t>(documents));      // sequences
  put(static_cast<uint64_t>(documents) + 1);  // where documents begin, and the end
  int64_t seen = 0, pointer = 0;
  for_each_length([&](int32_t length) { put(length), ++seen; });
  QUINTET_CHECK(seen == documents, "{} lengths of {} documents", seen, documents);
  for_each_length([&](int32_t length) {
    put(pointer);
    pointer += int64_t{length} * static_cast<int64_t>(width);
  });
  for (int64_t document = 0; document <= documents; ++document) put(document);
}

}  // namespace quintet::data
