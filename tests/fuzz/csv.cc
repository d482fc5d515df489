// Tables of published runs.
#include "published/csv.h"

#include "fuzz/target.h"
#include "published/published_run.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace quintet;
  const std::string_view text = fuzz::text_of(data, size);
  fuzz::run([&] {
    const published::Csv table = published::parse_csv(text, "fuzzed");
    for (const auto& row : table.rows)
      fuzz::require(row.size() == table.header.size(), "a row that is not as long as the header");
  });
  return fuzz::run([&] { published::read_published_runs(text, "fuzzed"); });
}
