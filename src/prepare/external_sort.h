// Sorts more records than fit into the memory that is given: sorted runs go to files, which are then merged.
#pragma once

#include <algorithm>
#include <queue>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/file_system.h"

namespace quintet::prepare {

// T has a total order (operator<), so the result does not depend on the memory. Runs are files
// <folder>/<name>-<n>.run, removed by the destructor.
template <class T>
class ExternalSort {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  ExternalSort(base::Path folder, std::string name, int64_t memory)
      : folder_(std::move(folder)),
        name_(std::move(name)),
        most_(std::max<size_t>(1, static_cast<size_t>(memory) / sizeof(T))) {}
  ~ExternalSort() {
    for (const base::Path& run : runs_) {
      std::error_code ignored;
      std::filesystem::remove(run, ignored);
    }
  }
  ExternalSort(const ExternalSort&) = delete;
  ExternalSort& operator=(const ExternalSort&) = delete;

  void add(const T& value) {
    if (held_.size() == most_) spill();
    held_.push_back(value);
  }
  size_t runs() const { return runs_.size(); }

  // Calls use(value) for all values in order. Nothing may be added afterwards.
  template <class Use>
  void for_each(Use&& use) {
    std::sort(held_.begin(), held_.end());
    if (runs_.empty()) {
      for (const T& value : held_) use(value);
      return;
    }
    std::vector<base::MappedFile> files;
    std::vector<std::span<const T>> rest = {held_};
    for (const base::Path& run : runs_) {
      files.emplace_back(run);
      const auto bytes = files.back().bytes();  // a mapping begins on a page boundary, so T is aligned
      rest.emplace_back(reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T));
    }
    const auto later = [&](size_t a, size_t b) { return rest[b].front() < rest[a].front(); };
    std::priority_queue<size_t, std::vector<size_t>, decltype(later)> next(later);
    for (size_t i = 0; i < rest.size(); ++i)
      if (!rest[i].empty()) next.push(i);
    while (!next.empty()) {
      const size_t i = next.top();
      next.pop();
      use(rest[i].front());
      rest[i] = rest[i].subspan(1);
      if (!rest[i].empty()) next.push(i);
    }
  }

 private:
  void spill() {
    std::sort(held_.begin(), held_.end());
    runs_.push_back(folder_ / fmt::format("{}-{}.run", name_, runs_.size()));
    base::OutputFile file(base::FileSystem::real(), runs_.back());
    file.write(0, std::as_bytes(std::span<const T>(held_)));
    held_.clear();
  }

  base::Path folder_;
  std::string name_;
  size_t most_;
  std::vector<T> held_;
  std::vector<base::Path> runs_;
};

}  // namespace quintet::prepare
