#include "exec/cuda/gemm_algorithms.h"

#include <algorithm>
#include <set>
#include <sstream>
#include <vector>

namespace quintet::exec::cuda {
namespace {

// All-gathers the ranks' texts.
std::vector<std::string> gather(const std::string& mine, comm::World& world) {
  comm::Communicator& all = world.world();
  const auto ranks = static_cast<size_t>(world.size());
  const auto size = static_cast<int64_t>(mine.size());
  std::vector<int64_t> sizes(ranks);
  all.all_gather(&size, sizes.data(), 1, base::DType::I64);
  const int64_t longest = *std::max_element(sizes.begin(), sizes.end());
  std::string padded = mine, whole(ranks * static_cast<size_t>(longest), '\0');
  padded.resize(static_cast<size_t>(longest));
  all.all_gather(padded.data(), whole.data(), longest, base::DType::U8);
  std::vector<std::string> texts;
  for (size_t r = 0; r < ranks; ++r)
    texts.push_back(whole.substr(r * static_cast<size_t>(longest), static_cast<size_t>(sizes[r])));
  return texts;
}

}  // namespace

std::string merge_algorithms(std::span<const std::string> texts) {
  const std::string separator = " | ";
  std::set<std::string> seen;  // device and problem
  std::string merged;
  for (const std::string& text : texts) {
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      const size_t device = line.find(separator);
      if (device == std::string::npos) continue;
      const size_t problem = line.find(separator, device + separator.size());
      if (problem == std::string::npos || !seen.insert(line.substr(0, problem)).second) continue;
      merged += line + '\n';
    }
  }
  return merged;
}

std::string broadcast_algorithms(const std::string& text, comm::World& world) {
  if (world.size() == 1) return text;
  std::string told = world.rank().value == 0 ? text : std::string();
  auto size = static_cast<int64_t>(told.size());
  world.world().broadcast(&size, 1, base::DType::I64, 0);
  told.resize(static_cast<size_t>(size));
  world.world().broadcast(told.data(), size, base::DType::U8, 0);
  return told;
}

std::string agree_on_algorithms(const std::string& mine, bool found_new, const base::Path& file,
                                comm::World& world) {
  int64_t any = found_new;
  world.world().all_reduce(&any, 1, base::DType::I64, comm::ReduceOp::Max);
  if (any == 0) return mine;  // all have what rank 0 read and broadcast
  std::vector<std::string> texts = gather(mine, world);
  std::string agreed;
  if (world.rank().value == 0) {
    if (base::file_exists(file)) texts.insert(texts.begin(), base::read_file(file));
    agreed = merge_algorithms(texts);
    base::make_directories(file.parent_path());
    base::write_file_atomically(file, agreed);
  }
  return broadcast_algorithms(agreed, world);
}

}  // namespace quintet::exec::cuda
