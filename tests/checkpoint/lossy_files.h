// A file system that a crash leaves with what was flushed, and any part of the rest: the most that the order
// of writes may rely on. The bytes of a file survive as of its last sync, its names as of the last
// sync_directory of their folder; later changes of names survive each or not. crash_at() makes a folder of
// what is left.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <random>
#include <vector>

#include "base/file_system.h"

namespace quintet::test {

class LossyFiles : public base::FileSystem {
 public:
  // Everything happens in this folder, too, so that it can be read meanwhile.
  explicit LossyFiles(base::Path root) : root_(std::move(root)), tree_(std::make_shared<Node>()) {
    tree_->is_folder = true;
  }
  // Called after every call.
  std::function<void()> on_call = [] {};

  int create(const base::Path& p) override {
    const int file = FileSystem::create(p);
    const NodePtr node = std::make_shared<Node>();
    change(p, node);
    open_[file] = node;
    return on_call(), file;
  }
  void write(int f, const base::Path& p, int64_t at, std::span<const std::byte> bytes) override {
    FileSystem::write(f, p, at, bytes);
    std::string& text = open_.at(f)->bytes;
    text.resize(std::max(text.size(), static_cast<size_t>(at) + bytes.size()));
    std::copy_n(reinterpret_cast<const char*>(bytes.data()), bytes.size(), text.begin() + at);
    on_call();
  }
  void sync(int f, const base::Path&) override {
    open_.at(f)->flushed = open_.at(f)->bytes;
    on_call();
  }
  void close(int f, const base::Path& p) override {
    FileSystem::close(f, p);
    open_.erase(f);
    on_call();
  }
  void rename(const base::Path& a, const base::Path& b) override {
    FileSystem::rename(a, b);
    EXPECT_EQ(a.parent_path(), b.parent_path());
    const NodePtr folder = at(a.parent_path());
    const NodePtr node = folder->entries.at(a.filename());
    record(folder, {{a.filename(), nullptr}, {b.filename(), node}});
    on_call();
  }
  bool link(const base::Path& a, const base::Path& b) override {
    if (!FileSystem::link(a, b)) return false;
    change(b, at(a));
    return on_call(), true;
  }
  void make_directory(const base::Path& p) override {
    const bool is_new = !base::directory_exists(p);
    FileSystem::make_directory(p);
    const NodePtr node = std::make_shared<Node>();
    node->is_folder = true;
    if (is_new) change(p, node);
    on_call();
  }
  void sync_directory(const base::Path& p) override {
    const NodePtr folder = at(p);
    folder->kept = folder->entries;
    std::erase_if(changes_, [&](const Change& c) { return c.folder == folder; });
    on_call();
  }
  void remove_file(const base::Path& p) override {
    drop(p, [&] { FileSystem::remove_file(p); });
  }
  void remove_directory(const base::Path& p) override {
    drop(p, [&] { FileSystem::remove_directory(p); });
  }

  // Of the changes of names that were not flushed.
  enum class Names { None, All, Random };
  // Of bytes that were not flushed: all or none of a file's.
  void crash_at(const base::Path& to, Names names, uint64_t seed) const {
    std::mt19937_64 random(seed);
    std::map<const Node*, Entries> left;
    collect(tree_, left);
    for (const Change& c : changes_)
      if (names == Names::All || (names == Names::Random && random() % 2 == 0))
        for (const auto& [name, node] : c.names) {
          left.try_emplace(c.folder.get(), c.folder->kept);
          if (node == nullptr)
            left[c.folder.get()].erase(name);
          else
            left[c.folder.get()][name] = node;
        }
    put(tree_, to, left, names == Names::Random ? &random : nullptr);
  }

 private:
  struct Node;
  using NodePtr = std::shared_ptr<Node>;
  using Entries = std::map<base::Path, NodePtr>;
  struct Node {
    bool is_folder = false;
    std::string bytes, flushed;
    Entries entries, kept;  // now, and as of the last sync_directory
  };
  struct Change {
    NodePtr folder;
    std::vector<std::pair<base::Path, NodePtr>> names;  // null: removed. They survive together
  };

  NodePtr at(const base::Path& path) const {
    NodePtr node = tree_;
    const base::Path below = path.lexically_relative(root_);
    if (below != ".")
      for (const base::Path& part : below) node = node->entries.at(part);
    return node;
  }
  void record(const NodePtr& folder, std::vector<std::pair<base::Path, NodePtr>> names) {
    for (const auto& [name, node] : names)
      if (node == nullptr)
        folder->entries.erase(name);
      else
        folder->entries[name] = node;
    changes_.push_back({folder, std::move(names)});
  }
  void change(const base::Path& path, const NodePtr& node) {
    record(at(path.parent_path()), {{path.filename(), node}});
  }
  template <class Fn>
  void drop(const base::Path& path, const Fn& fn) {
    fn();
    const NodePtr folder = at(path.parent_path());
    if (folder->entries.contains(path.filename())) record(folder, {{path.filename(), nullptr}});
    on_call();
  }
  static void collect(const NodePtr& node, std::map<const Node*, Entries>& left) {
    if (!node->is_folder) return;
    left[node.get()] = node->kept;
    for (const auto& [name, child] : node->kept) collect(child, left);
  }
  static void put(const NodePtr& node, const base::Path& to, const std::map<const Node*, Entries>& left,
                  std::mt19937_64* random) {
    if (!node->is_folder) {
      const std::string& bytes = random != nullptr && (*random)() % 2 == 0 ? node->bytes : node->flushed;
      base::OutputFile(real(), to).write(0, std::as_bytes(std::span(bytes)));
      return;
    }
    base::make_directories(to);
    const auto found = left.find(node.get());
    for (const auto& [name, child] : found == left.end() ? node->kept : found->second)
      put(child, to / name, left, random);
  }

  const base::Path root_;
  const NodePtr tree_;
  std::map<int, NodePtr> open_;
  std::vector<Change> changes_;
};

}  // namespace quintet::test
