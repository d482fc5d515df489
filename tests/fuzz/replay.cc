// A main for fuzz targets without libFuzzer: runs every file of the given folders once, and deterministic
// mutations of each. A file named good_* must be accepted.
//
//   fuzz_recipe tests/fuzz/corpus/recipe
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "fuzz/target.h"

namespace {

constexpr int kMutations = 200;

void run(const std::string& input) {
  // A copy without spare bytes, so that a sanitizer sees a read past the end.
  const std::vector<uint8_t> exact(input.begin(), input.end());
  LLVMFuzzerTestOneInput(exact.data(), exact.size());
}

std::string mutated(std::string text, std::mt19937_64& random) {
  const int changes = 1 + static_cast<int>(random() % 3);
  for (int i = 0; i < changes && !text.empty(); ++i) {
    const size_t at = random() % text.size(), length = 1 + random() % 8;
    switch (random() % 4) {
      case 0:
        text[at] = static_cast<char>(random());
        break;
      case 1:
        text.erase(at, length);
        break;
      case 2:
        text.insert(at, text.substr(random() % text.size(), length));
        break;
      default:
        text.resize(at);
    }
  }
  return text;
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::filesystem::path> files;
  for (int i = 1; i < argc; ++i)
    for (const auto& entry : std::filesystem::directory_iterator(argv[i])) files.push_back(entry.path());
  if (files.empty()) {
    std::fprintf(stderr, "usage: %s FOLDER..., with at least one file\n", argv[0]);
    return 2;
  }
  std::mt19937_64 random(1);
  for (const auto& file : files) {
    std::ifstream in(file, std::ios::binary);
    const std::string input(std::istreambuf_iterator<char>(in), {});
    run(input);
    if (file.filename().string().starts_with("good_"))
      quintet::fuzz::require(quintet::fuzz::accepted, ("refused: " + file.string()).c_str());
    for (int i = 0; i < kMutations; ++i) run(mutated(input, random));
  }
  std::printf("fuzz: %zu files, %zu inputs\n", files.size(), files.size() * (1 + kMutations));
}
