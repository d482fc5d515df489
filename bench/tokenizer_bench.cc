// MB/s of encoding on one thread, in CPU time of the process: a first pass over one text, then another text
// with warm caches, then that text again. One line of JSON for bench/compare_tokenizers.py.
#include <fmt/core.h>
#include <time.h>
#include <xxhash.h>

#include <vector>

#include "base/file.h"
#include "tokenizer/tokenizer.h"

namespace {

double cpu_seconds() {
  timespec t{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return double(t.tv_sec) + 1e-9 * double(t.tv_nsec);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    fmt::print(stderr, "usage: tokenizer_bench TOKENIZER TEXT OTHER_TEXT\n");
    return 2;
  }
  const auto tokenizer = quintet::tokenizer::load_tokenizer(argv[1]);
  const std::string texts[] = {quintet::base::read_file(argv[2]), quintet::base::read_file(argv[3])};
  std::vector<int32_t> ids;
  ids.reserve(texts[0].size() + texts[1].size());
  const auto rate = [&](const std::string& text) {
    ids.clear();
    const double start = cpu_seconds();
    tokenizer->encode(text, ids, false);
    return 1e-6 * double(text.size()) / (cpu_seconds() - start);
  };
  const double first = rate(texts[0]), fresh = rate(texts[1]), seen = rate(texts[1]);
  fmt::print("{{\"first\": {:.1f}, \"new\": {:.1f}, \"seen\": {:.1f}, \"ids\": {}, \"xxh3\": \"{:016x}\"}}\n",
             first, fresh, seen, ids.size(), XXH3_64bits(ids.data(), ids.size() * sizeof(int32_t)));
}
