#include "checkpoint/store.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <random>
#include <set>

#include "base/checksum.h"
#include "base/temp_folder.h"
#include "checkpoint/lossy_files.h"
#include "checkpoint/reader.h"
#include "checkpoint/shard.h"

namespace quintet::checkpoint {
namespace {

using base::DType;
using test::TempFolder;
using test::user_error;

// The cache of the system survives a process, and flushing takes most of the time of these tests.
class QuickFiles : public base::FileSystem {
 public:
  void sync(int, const base::Path&) override {}
  void sync_directory(const base::Path&) override {}
};
QuickFiles quick;

// The n-th call fails, or ends the process, as a full disk or a crash would.
class FaultyFiles : public QuickFiles {
 public:
  enum class Fault { Fail, Exit };
  FaultyFiles(int64_t after, Fault fault) : left_(after), fault_(fault) {}
  int64_t calls() const { return calls_; }

  int create(const base::Path& p) override { return check("create", p), FileSystem::create(p); }
  void write(int f, const base::Path& p, int64_t at, std::span<const std::byte> bytes) override {
    // A part of the bytes arrives.
    if (left_ == 0) FileSystem::write(f, p, at, bytes.first(bytes.size() / 2));
    check("write", p);
    FileSystem::write(f, p, at, bytes);
  }
  void sync(int f, const base::Path& p) override { check("flush", p), QuickFiles::sync(f, p); }
  void close(int f, const base::Path& p) override { check("close", p), FileSystem::close(f, p); }
  void rename(const base::Path& a, const base::Path& b) override {
    check("rename", b), FileSystem::rename(a, b);
  }
  // Where it is not possible, no error is thrown.
  bool link(const base::Path& a, const base::Path& b) override {
    try {
      check("link", b);
    } catch (const base::UserError&) {
      return false;
    }
    return FileSystem::link(a, b);
  }
  bool failed_to_link() const { return failed_ == "link"; }
  void make_directory(const base::Path& p) override { check("mkdir", p), FileSystem::make_directory(p); }
  void sync_directory(const base::Path& p) override { check("sync", p), QuickFiles::sync_directory(p); }
  void remove_file(const base::Path& p) override { check("remove", p), FileSystem::remove_file(p); }
  void remove_directory(const base::Path& p) override { check("rmdir", p), FileSystem::remove_directory(p); }

 private:
  void check(const char* what, const base::Path& path) {
    ++calls_;
    if (left_-- != 0) return;
    failed_ = what;
    if (fault_ == Fault::Exit) ::_exit(9);
    base::fail_writing(what, path, ENOSPC);
  }
  int64_t left_, calls_ = 0;
  Fault fault_;
  std::string failed_;
};

TensorInfo tensor(const char* name, DType dtype, std::vector<int64_t> shape) {
  return {.name = name, .dtype = dtype, .shape = std::move(shape)};
}

const std::vector<TensorInfo> kTensors = {tensor("a", DType::F32, {8, 6}), tensor("b/m", DType::F64, {10}),
                                          tensor("c/codes", DType::U8, {100})};

// Element i of a tensor at a step: a byte pattern.
void fill(const TensorInfo& info, int64_t step, int64_t element, std::byte* to) {
  for (int64_t b = 0; b < base::size_of(info.dtype); ++b)
    to[b] = static_cast<std::byte>(31 * step + 7 * element + 3 * b + info.name[0]);
}

// "a" by columns and flat ranges, "b/m" whole on rank 1, "c/codes" in two ranges.
std::vector<ShardPiece> pieces_of(int64_t rank) {
  std::vector<ShardPiece> out;
  Region a{.shape = {8, 6}, .begin = {0, 3 * rank}, .size = {8, 3}, .first = 0, .count = 24};
  if (rank == 0) {
    out.push_back({kTensors[0], a});
  } else {
    a.count = 10;
    out.push_back({kTensors[1], Region::whole({10})});
    out.push_back({kTensors[0], a});
    a.first = 10, a.count = 14;
    out.push_back({kTensors[0], a});
  }
  Region c = Region::whole({100});
  c.first = 60 * rank, c.count = rank == 0 ? 60 : 40;
  out.push_back({kTensors[2], c});
  return out;
}

void write(const base::Path& path, const std::vector<ShardPiece>& pieces, base::FileSystem& files,
           int64_t step) {
  const auto source = [&](size_t i, int64_t first, std::span<std::byte> out) {
    const Runs runs(pieces[i].region);
    const int64_t size = base::size_of(pieces[i].tensor.dtype);
    for (int64_t r = 0; r < runs.size(); ++r)
      for (int64_t k = 0; k < runs[r].length; ++k)
        if (const int64_t at = runs[r].at + k - first; at >= 0 && (at + 1) * size <= std::ssize(out))
          fill(pieces[i].tensor, step, runs[r].tensor + k, out.data() + at * size);
  };
  write_shard(path, pieces, source, {.files = &files, .step = step, .chunk_bytes = kChunkBytes});
}

void save(Store& store, base::FileSystem& files, int64_t step) {
  store.begin(step);
  for (int64_t rank = 0; rank < 2; ++rank)
    write(store.folder_of(step) / shard_name(rank), pieces_of(rank), files, step);
  store.commit(step, 2, {{"note", "x"}}, kTensors);
}

void save(Store& store, int64_t step) { save(store, quick, step); }

void expect_contents(const base::Path& folder, int64_t step) {
  Reader reader(folder);
  EXPECT_EQ(reader.manifest().step, step);
  reader.verify();
  for (const TensorInfo& info : kTensors) {
    const SavedTensor* saved = reader.manifest().find(info.name);
    ASSERT_NE(saved, nullptr);
    std::vector<std::byte> found(static_cast<size_t>(info.bytes())), expected(found.size());
    reader.read(*saved, Region::whole(info.shape), found);
    for (int64_t i = 0; i < info.count(); ++i)
      fill(info, step, i, expected.data() + i * base::size_of(info.dtype));
    EXPECT_EQ(found, expected) << info.name;
  }
}

std::vector<int64_t> steps_of(const Store& store) {
  std::vector<int64_t> steps;
  for (const Entry& e : store.list())
    if (e.complete) steps.push_back(e.step);
  return steps;
}

TEST(Store, WhatIsSavedIsRead) {
  const TempFolder folder;
  Store store(folder / "store");
  EXPECT_FALSE(store.newest());
  save(store, 3);
  save(store, 12);
  EXPECT_EQ(steps_of(store), (std::vector<int64_t>{3, 12}));
  expect_contents(store.folder_of(3), 3);
  expect_contents(store.newest()->folder, 12);
  EXPECT_EQ(base::read_file(folder / "store/latest"), "step-00000012\n");
  EXPECT_EQ(find_checkpoint(folder / "store"), store.folder_of(12));
  EXPECT_EQ(find_checkpoint(store.folder_of(3)), store.folder_of(3));
  // Any reader opens a shard.
  const SafetensorsFile shard((store.folder_of(3) / shard_name(1)).string());
  EXPECT_NE(shard.find("b/m"), nullptr);
  EXPECT_EQ(shard.find("a")->shape, (std::vector<int64_t>{10}));
}

TEST(Store, RandomRegionsAreRead) {
  const TempFolder folder;
  Store store(folder.path(), quick);
  save(store, 1);
  Reader reader(store.folder_of(1));
  std::mt19937 random(3);
  const SavedTensor& a = *reader.manifest().find("a");
  for (int n = 0; n < 200; ++n) {
    Region r{.shape = {8, 6}, .begin = {0, 0}, .size = {8, 6}};
    for (size_t d = 0; d < 2; ++d) {
      r.begin[d] = static_cast<int64_t>(random() % static_cast<uint64_t>(r.shape[d]));
      r.size[d] = 1 + static_cast<int64_t>(random() % static_cast<uint64_t>(r.shape[d] - r.begin[d]));
    }
    r.first = static_cast<int64_t>(random() % static_cast<uint64_t>(r.box_count()));
    r.count = 1 + static_cast<int64_t>(random() % static_cast<uint64_t>(r.box_count() - r.first));
    std::vector<std::byte> found(static_cast<size_t>(4 * r.count)), expected(found.size());
    reader.read(a, r, found);
    const Runs runs(r);
    for (int64_t i = 0; i < runs.size(); ++i)
      for (int64_t k = 0; k < runs[i].length; ++k)
        fill(a.info, 1, runs[i].tensor + k, expected.data() + 4 * (runs[i].at + k));
    ASSERT_EQ(found, expected);
  }
}

// ---- shards of several blocks, which another thread writes while the next one is filled

// Pieces whose chunks do not end where blocks do.
const std::vector<TensorInfo> kLarge = {tensor("x", DType::F64, {3, 1001}),
                                        tensor("y", DType::F32, {5'000'011}),
                                        tensor("z", DType::U8, {7'000'003})};

std::byte large_byte(size_t tensor, int64_t at) {
  return static_cast<std::byte>((static_cast<uint64_t>(at) * 0x9E3779B97F4A7C15u + tensor) >> 56);
}

// `in_place`: the bytes are also in memory, as the file has them, but for the last tensor.
void save_large(Store& store, base::FileSystem& files, int64_t step,
                const base::DirectBuffer* in_place = nullptr) {
  std::vector<ShardPiece> pieces;
  for (const TensorInfo& info : kLarge) pieces.push_back({info, Region::whole(info.shape)});
  store.begin(step);
  write_shard(store.folder_of(step) / shard_name(0), pieces,
              [&](size_t i, int64_t first, std::span<std::byte> out) {
                const int64_t begin = first * base::size_of(kLarge[i].dtype);
                for (int64_t b = 0; b < std::ssize(out); ++b)
                  out[static_cast<size_t>(b)] = large_byte(i, begin + b);
              },
              {.files = &files,
               .step = step,
               .chunk_bytes = kChunkBytes,
               .in_place = [&](size_t i) -> const std::byte* {
                 if (in_place == nullptr || i + 1 == kLarge.size()) return nullptr;
                 return in_place->data() + (i == 0 ? 0 : kLarge[0].bytes());
               }});
  store.commit(step, 1, Json::object(), kLarge);
}

void expect_large(std::span<const std::byte> found, size_t tensor, int64_t first) {
  int64_t wrong = 0;
  for (int64_t b = 0; b < std::ssize(found); ++b)
    wrong += found[static_cast<size_t>(b)] != large_byte(tensor, first + b);
  EXPECT_EQ(wrong, 0) << kLarge[tensor].name << " from byte " << first;
}

TEST(LargeShard, IsReadWithAndWithoutTheSystemsCache) {
  // The second has no way around the system's memory.
  class Cached : public QuickFiles {
    void bypass_cache(int) override {}
  } cached;
  const TempFolder folder;
  Store store(folder.path(), quick);
  save_large(store, quick, 1);
  save_large(store, cached, 2);
  EXPECT_EQ(base::read_file(store.folder_of(1) / shard_name(0)).size(),
            base::read_file(store.folder_of(2) / shard_name(0)).size());
  for (const int64_t step : {1, 2}) {
    const SafetensorsFile shard((store.folder_of(step) / shard_name(0)).string());
    Reader reader(store.folder_of(step));
    reader.verify();
    base::forget_cached(store.folder_of(step) / shard_name(0));
    reader.verify();  // past the page cache where the file system supports it
    for (size_t t = 0; t < kLarge.size(); ++t) {
      expect_large(shard.bytes(*shard.find(kLarge[t].name)), t, 0);
      const int64_t size = base::size_of(kLarge[t].dtype), count = kLarge[t].count();
      for (const auto& [first, n] : {std::pair{int64_t{0}, count}, std::pair{count / 3, count / 2}}) {
        Region region = Region::whole(kLarge[t].shape);
        region.first = first, region.count = n;
        std::vector<std::byte> found(static_cast<size_t>(n * size));
        reader.read(reader.at(kLarge[t].name), region, found);
        expect_large(found, t, first * size);
      }
    }
  }
}

TEST(LargeShard, PiecesInPlaceGiveTheSameFile) {
  const TempFolder folder;
  Store store(folder.path(), quick);
  save_large(store, quick, 1);
  const base::DirectBuffer memory(kLarge[0].bytes() + kLarge[1].bytes());
  int64_t place = 0;
  for (size_t t = 0; t < 2; ++t)
    for (int64_t b = 0; b < kLarge[t].bytes(); ++b) memory.data()[place++] = large_byte(t, b);
  base::make_directories(folder / "again");
  Store again(folder / "again", quick);
  save_large(again, quick, 1, &memory);
  EXPECT_TRUE(base::read_file(store.folder_of(1) / shard_name(0)) ==
              base::read_file(again.folder_of(1) / shard_name(0)));
  // The bytes that are written are those in place.
  memory.data()[0] ^= std::byte{1};
  save_large(again, quick, 2, &memory);
  Reader reader(again.folder_of(2));
  reader.verify();
  std::vector<std::byte> x(static_cast<size_t>(kLarge[0].bytes()));
  reader.read(reader.at("x"), Region::whole(kLarge[0].shape), x);
  EXPECT_EQ(x[0], large_byte(0, 0) ^ std::byte{1});
}

TEST(LargeShard, AFaultAtAnyCallIsReported) {
  const TempFolder folder;
  Store store(folder.path(), quick);
  FaultyFiles counted(-1, FaultyFiles::Fault::Fail);
  save_large(store, counted, 1);
  ASSERT_GT(counted.calls(), 7) << "create, four blocks, header, flush and close";
  for (int64_t at = 0; at < counted.calls(); ++at) {
    FaultyFiles files(at, FaultyFiles::Fault::Fail);
    EXPECT_CONTAINS(user_error([&] { save_large(store, files, 2); }), "No space left");
    EXPECT_EQ(store.newest()->step, 1);
  }
  save_large(store, quick, 2);
  Reader(store.folder_of(2)).verify();
}

// A flipped or missing byte at the end of a block, which is read around the system's memory.
TEST(LargeShard, DamageIsRefused) {
  const TempFolder folder;
  Store store(folder.path(), quick);
  save_large(store, quick, 1);
  const base::Path path = store.folder_of(1) / shard_name(0);
  const int64_t size = base::size_of_file(path);
  for (const int64_t at : {int64_t{4096}, kWriteBlock + 4095, kWriteBlock + 4096, size - 1}) {
    std::byte one{}, other{};
    base::InputFile(path).read(at, {&one, 1});
    other = one ^ std::byte{4};
    const auto put = [&](std::byte value) {
      const int file = ::open(path.c_str(), O_WRONLY);
      ASSERT_EQ(::pwrite(file, &value, 1, at), 1);
      ::close(file);
    };
    put(other);
    EXPECT_CONTAINS(user_error([&] { Reader(store.folder_of(1)).verify(); }),
                    "rank-00000.safetensors' is damaged");
    put(one);
  }
  Reader(store.folder_of(1)).verify();
  std::filesystem::resize_file(path, static_cast<uintmax_t>(size - 1));
  EXPECT_CONTAINS(user_error([&] { Reader(store.folder_of(1)).verify(); }), "is truncated");
}

TEST(Store, TensorsAreStreamedWholeInBlocks) {
  const TempFolder folder;
  Store store(folder.path(), quick);
  save(store, 2);
  Reader reader(store.folder_of(2));
  for (const TensorInfo& info : kTensors)
    for (const int64_t block_bytes : {int64_t{1}, int64_t{40}, int64_t{1} << 20}) {
      const int64_t size = base::size_of(info.dtype);
      std::vector<std::byte> found, expected(static_cast<size_t>(info.bytes()));
      reader.stream(
          reader.at(info.name),
          [&](int64_t first, std::span<const std::byte> elements) {
            EXPECT_EQ(first * size, std::ssize(found));
            EXPECT_LE(std::ssize(elements), std::max(block_bytes, size));
            found.insert(found.end(), elements.begin(), elements.end());
          },
          block_bytes);
      for (int64_t i = 0; i < info.count(); ++i) fill(info, 2, i, expected.data() + i * size);
      EXPECT_EQ(found, expected) << info.name << " in blocks of " << block_bytes;
    }
  EXPECT_CONTAINS(user_error([&] { reader.at("b/n"); }), "no tensor b/n; did you mean b/m?");
  EXPECT_TRUE(is_state_name("b/m"));
  EXPECT_FALSE(is_state_name("a"));
}

// A folder may hold checkpoints of another trainer, whose names are close to ours.
// A link to an archive, and what somebody has put beside the shards.
TEST(Store, OnlyWhatTheStoreWroteIsRemoved) {
  const test::TempFolder folder;
  Store store(folder / "store");
  const auto fill = [&](const base::Path& path) {
    base::make_directories(path);
    for (const char* name : {"manifest.json", "rank-00000.safetensors", "rank-00001.safetensors.tmp"})
      base::write_file_atomically(path / name, "x");
  };
  fill(folder / "archive");
  fill(store.folder_of(2));
  fill(store.folder_of(3));
  base::make_directories(store.folder_of(2) / "hf");
  std::filesystem::create_directory_symlink(folder / "archive", store.folder_of(1));
  ASSERT_EQ(store.list().size(), 3u);
  for (const Entry& entry : store.list()) store.remove(entry);
  EXPECT_TRUE(base::file_exists(folder / "archive/manifest.json"));
  EXPECT_FALSE(base::directory_exists(store.folder_of(1)));
  EXPECT_EQ(base::list_folder(store.folder_of(2)), std::vector<base::Path>{"hf"});
  EXPECT_FALSE(base::directory_exists(store.folder_of(3)));
}

TEST(Store, FilesOfOtherTrainersStay) {
  const test::TempFolder folder;
  Store store(folder.path());
  base::make_directories(folder / "step-1");
  base::write_file_atomically(folder / "step-1/__0_0.distcp", "weights");
  EXPECT_TRUE(store.list().empty());
  store.require_own();
  for (const char* pointer : {"step-00000004\n", "step-00000004"}) {
    base::write_file_atomically(folder / kLatestFile, pointer);
    store.require_own();
  }
  for (const std::string& pointer :
       {std::string("global_step100\n"), std::string(), std::string(1000, 'x')}) {
    base::write_file_atomically(folder / kLatestFile, pointer);
    EXPECT_NE(test::user_error([&] { store.require_own(); }).find("would be replaced"), std::string::npos);
  }
}

TEST(Store, ACheckpointIsFoundByItsStep) {
  const TempFolder folder;
  Store store(folder / "run/checkpoints", quick);
  save(store, 3);
  save(store, 12);
  for (const char* at : {"run", "run/checkpoints", "run/checkpoints/step-00000003"})
    EXPECT_EQ(find_checkpoint(folder / at, 3), store.folder_of(3)) << at;
  EXPECT_CONTAINS(user_error([&] { find_checkpoint(folder / "run", 4); }),
                  "no complete checkpoint of step 4; it has those of steps 3, 12");
  EXPECT_CONTAINS(user_error([&] { find_checkpoint(store.folder_of(12), 3); }),
                  "is the checkpoint step-00000012, not that of step 3");
  EXPECT_CONTAINS(user_error([&] { find_checkpoint(folder / "none", 3); }), "does not exist");
}

// ---- crashes and errors

// The same at every step: never updated.
const TensorInfo kFrozen = tensor("f", DType::F32, {50});
constexpr int64_t kFrozenStep = 9;

void expect_frozen(const base::Path& folder) {
  Reader reader(folder);
  std::vector<std::byte> found(static_cast<size_t>(kFrozen.bytes())), expected(found.size());
  reader.read(reader.at("f"), 0, found);
  for (int64_t i = 0; i < kFrozen.count(); ++i) fill(kFrozen, kFrozenStep, i, expected.data() + 4 * i);
  EXPECT_EQ(found, expected);
}

// With a frozen tensor, whose file is that of the checkpoint of step `linked` if one is given.
void save_with_frozen(Store& store, base::FileSystem& files, int64_t step,
                      std::optional<int64_t> linked = {}) {
  store.begin(step);
  const base::Path frozen = store.folder_of(step) / frozen_name(1);
  if (!linked || !files.link(store.folder_of(*linked) / frozen_name(1), frozen))
    write(frozen, {{kFrozen, Region::whole(kFrozen.shape)}}, files, kFrozenStep);
  for (int64_t rank = 0; rank < 2; ++rank)
    write(store.folder_of(step) / shard_name(rank), pieces_of(rank), files, step);
  std::vector<TensorInfo> tensors = kTensors;
  tensors.push_back(kFrozen);
  store.commit(step, 2, {{"note", "x"}}, tensors);
}

// What a store with complete checkpoints 1 and 2 does, and which of them may be the newest until it is done,
// and when it is; -1: none.
struct Work {
  const char* name;
  std::function<void(Store& store, base::FileSystem& files)> run;
  std::set<int64_t> meanwhile;
  int64_t end;
  bool goes_back = false;  // as far as there is a checkpoint at all, there is the first
};
const std::vector<Work> kWork = {
    {"save and prune",
     [](Store& store, base::FileSystem& files) {
       save_with_frozen(store, files, 3, 2);
       store.prune({.keep = 1});
     },
     {2, 3},
     3},
    {"go back", [](Store& store, base::FileSystem&) { store.abandon_after(0); }, {-1, 1, 2}, -1, true},
    {"replace the state",
     [](Store& store, base::FileSystem&) {
       store.replace_run(2, {{"new", 1}});
     },
     {2},
     2},
    {"start over", [](Store& store, base::FileSystem&) { store.clear(); }, {-1, 1, 2}, -1},
};

// Every complete checkpoint reads back. Returns the newest; -1: none.
int64_t newest_of(const Store& store) {
  int64_t newest = -1;
  for (const Entry& entry : store.list()) {
    if (!entry.complete) continue;
    expect_contents(entry.folder, entry.step);
    expect_frozen(entry.folder);
    newest = entry.step;
  }
  return newest;
}

void begin_work(Store& store, base::FileSystem& files) {
  save_with_frozen(store, files, 1);
  save_with_frozen(store, files, 2, 1);
}

// After a fault at any call the store still has a newest checkpoint that reads back, and a further save
// succeeds, also where the one that failed has left its files.
TEST(Store, AFaultAtAnyCallLeavesALoadableCheckpoint) {
  for (const Work& work : kWork) {
    SCOPED_TRACE(work.name);
    int64_t calls = 0;
    {
      const TempFolder folder;
      FaultyFiles files(-1, FaultyFiles::Fault::Fail);
      Store store(folder.path(), files);
      begin_work(store, files);
      const int64_t before = files.calls();
      work.run(store, files);
      calls = files.calls() - before;
      EXPECT_EQ(newest_of(store), work.end);
    }
    ASSERT_GT(calls, 3);
    for (const auto fault : {FaultyFiles::Fault::Fail, FaultyFiles::Fault::Exit})
      for (int64_t at = 0; at < calls; ++at) {
        const TempFolder folder;
        Store good(folder.path(), quick);
        begin_work(good, quick);
        FaultyFiles files(at, fault);
        const auto attempt = [&] {
          Store store(folder.path(), files);
          work.run(store, files);
        };
        if (fault == FaultyFiles::Fault::Fail) {
          std::string error;
          try {
            attempt();
          } catch (const base::UserError& e) {
            error = e.what();
          }
          if (!files.failed_to_link()) {
            EXPECT_CONTAINS(error, "No space left");
          }
        } else {
          const pid_t child = ::fork();
          if (child == 0) {
            attempt();
            ::_exit(0);
          }
          int status = 0;
          ::waitpid(child, &status, 0);
          ASSERT_EQ(WEXITSTATUS(status), 9) << "call " << at;
        }
        const int64_t newest = newest_of(good);
        if (work.goes_back && newest > 0) {
          EXPECT_EQ(steps_of(good).front(), 1);
        }
        ASSERT_TRUE(work.meanwhile.contains(newest)) << "call " << at << ": " << newest;
        if (newest < 3) save_with_frozen(good, quick, 3);
        newest_of(good);
        good.prune({.keep = 1});
        EXPECT_EQ(steps_of(good), (std::vector<int64_t>{3}));
      }
  }
}

// Whatever part of the unflushed changes is lost: an order of writes that only an orderly end of the process
// makes safe fails here.
TEST(Store, WhatIsCompleteSurvivesALossOfPower) {
  using Names = test::LossyFiles::Names;
  for (const Work& work : kWork) {
    SCOPED_TRACE(work.name);
    const TempFolder folder, survivors;
    base::make_directories(folder.path());
    test::LossyFiles files(folder.path());
    Store store(folder / "store", files);
    int64_t calls = 0;
    std::set<int64_t> allowed;
    const auto check = [&] {
      for (uint64_t seed = 0; seed < 5; ++seed) {
        const base::Path left = survivors / fmt::format("{}-{}", calls, seed);
        files.crash_at(left,
                       seed == 0   ? Names::None
                       : seed == 1 ? Names::All
                                   : Names::Random,
                       seed + 7 * calls);
        const Store there(left / "store");
        const int64_t newest = newest_of(there);
        if (work.goes_back && newest > 0) {
          ASSERT_EQ(steps_of(there).front(), 1);
        }
        if (!work.goes_back && there.latest()) {
          ASSERT_TRUE(base::file_exists(there.folder_of(*there.latest()) / kManifestFile));
        }
        ASSERT_TRUE(allowed.contains(newest)) << "call " << calls << ", seed " << seed << ": " << newest;
        std::filesystem::remove_all(left);
      }
      ++calls;
    };
    bool is_checked = &work == &kWork.front();  // what comes before is the same for all
    files.on_call = [&] {
      if (is_checked && !testing::Test::HasFailure()) check();
    };
    const auto expect = [&](std::set<int64_t> meanwhile, int64_t end, const std::function<void()>& act) {
      allowed = std::move(meanwhile);
      act();
      allowed = {end};
      check();
    };
    expect({-1, 1}, 1, [&] { save_with_frozen(store, files, 1); });
    expect({1, 2}, 2, [&] { save_with_frozen(store, files, 2, 1); });
    is_checked = true;
    expect(work.meanwhile, work.end, [&] { work.run(store, files); });
    EXPECT_GT(calls, 3);
  }
}

// A save that failed may leave a second name of a file that is part of another checkpoint.
TEST(Store, AFileOfAnotherCheckpointIsNotWritten) {
  const TempFolder folder;
  Store store(folder.path(), quick);
  save_with_frozen(store, quick, 1);
  store.begin(2);
  const base::Path shared = store.folder_of(1) / frozen_name(1), name = store.folder_of(2) / frozen_name(1);
  ASSERT_TRUE(quick.link(shared, name));
  const std::string before = base::read_file(shared);
  base::OutputFile(quick, name).write(0, {});
  EXPECT_TRUE(base::read_file(shared) == before);
  EXPECT_EQ(base::size_of_file(name), 0);
  save_with_frozen(store, quick, 2);
  expect_frozen(store.folder_of(1));
}

// Every byte of every file of a checkpoint: a flipped one is refused by the name of its file.
TEST(Store, AFlippedByteIsRefused) {
  const TempFolder folder;
  Store store(folder.path(), quick);
  save(store, 1);
  for (const std::string& name : {shard_name(0), shard_name(1), std::string(kManifestFile)}) {
    const base::Path path = store.folder_of(1) / name;
    const std::string good = base::read_file(path);
    for (size_t i = 0; i < good.size(); i += name == kManifestFile ? 3 : good[i] == ' ' ? 31 : 1) {
      std::string bad = good;
      bad[i] = static_cast<char>(bad[i] ^ 0x10);
      base::OutputFile(base::FileSystem::real(), path).write(0, std::as_bytes(std::span(bad)));
      const std::string message = user_error([&] { Reader(store.folder_of(1)).verify(); });
      ASSERT_NE(message.find(name), std::string::npos) << message << " at byte " << i;
    }
    base::write_file_atomically(path, good);
  }
  expect_contents(store.folder_of(1), 1);
}

TEST(Store, TruncatedAndMissingFilesAreRefused) {
  const TempFolder folder;
  Store store(folder.path(), quick);
  save(store, 1);
  const base::Path shard = store.folder_of(1) / shard_name(1), manifest = store.folder_of(1) / kManifestFile;
  const std::string good = base::read_file(shard), text = base::read_file(manifest);
  base::write_file_atomically(shard, std::string_view(good).substr(0, good.size() - 1));
  EXPECT_NE(
      user_error([&] { Reader(store.folder_of(1)).verify(); }).find("rank-00001.safetensors' is truncated"),
      std::string::npos);
  base::remove_file(shard);
  EXPECT_NE(user_error([&] { Reader(store.folder_of(1)).verify(); }).find("rank-00001.safetensors"),
            std::string::npos);
  base::write_file_atomically(shard, good);
  for (const size_t size : {size_t{0}, size_t{1}, text.size() / 2, text.size() - 1}) {
    base::write_file_atomically(manifest, std::string_view(text).substr(0, size));
    EXPECT_NE(user_error([&] { Reader reader(store.folder_of(1)); }).find("manifest.json"),
              std::string::npos);
  }
  base::remove_file(manifest);
  EXPECT_FALSE(store.newest());
  EXPECT_NE(user_error([&] { find_checkpoint(folder.path()); }).find("incomplete"), std::string::npos);
  EXPECT_NE(user_error([&] { find_checkpoint(folder / "no"); }).find("does not exist"), std::string::npos);
}

TEST(Store, RetentionKeepsTheNewestAndTheFirstOfIntervals) {
  const TempFolder folder;
  Store store(folder.path(), quick);
  for (const int64_t step : {4, 8, 12, 16, 20, 24}) save(store, step);
  base::make_directories(store.folder_of(10));
  EXPECT_EQ(store.prune({.keep = 2, .keep_every = 10}), (std::vector<int64_t>{4, 8, 16}));
  EXPECT_EQ(steps_of(store), (std::vector<int64_t>{12, 20, 24}));
  EXPECT_FALSE(base::directory_exists(store.folder_of(10))) << "incomplete and older than the newest";
  EXPECT_EQ(store.prune({.keep = 2, .keep_every = 10}), std::vector<int64_t>{});
  EXPECT_EQ(store.abandon_after(12), 2);
  EXPECT_EQ(steps_of(store), std::vector<int64_t>{12});
  EXPECT_TRUE(base::file_exists(folder / "abandoned-1-step-00000020/manifest.json"));
  EXPECT_EQ(base::read_file(folder / "latest"), "step-00000012\n");
  base::make_directories(folder / "abandoned-x-step-00000020");
  std::vector<int64_t> aside;
  for (const Entry& entry : store.abandoned()) {
    EXPECT_TRUE(entry.set_aside && entry.complete);
    aside.push_back(entry.step);
  }
  EXPECT_EQ(aside, (std::vector<int64_t>{20, 24}));
  EXPECT_EQ(store.prune({.keep = 1}), std::vector<int64_t>{});
  EXPECT_EQ(store.abandoned().size(), 2u) << "a run does not remove them";
  store.clear();
  EXPECT_TRUE(store.abandoned().empty());
  EXPECT_TRUE(base::directory_exists(folder / "abandoned-x-step-00000020")) << "not this store's";
}

TEST(Store, TheStateOfACheckpointIsReplaced) {
  const TempFolder folder;
  Store store(folder.path(), quick);
  save(store, 4);
  const Manifest before = Reader(store.folder_of(4)).manifest();
  store.replace_run(4, {{"new", 1}});
  Manifest after = Reader(store.folder_of(4)).manifest();
  EXPECT_EQ(after.run, (Json{{"new", 1}}));
  after.run = before.run;
  EXPECT_EQ(to_text(after), to_text(before));
}

// A manifest with a value replaced, and its checksum made right.
std::string changed(const Manifest& m, const std::string& from, const std::string& to) {
  std::string text = to_text(m);
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  text.replace(at, from.size(), to);
  const size_t sum = text.rfind(",\n  \"checksum\"");
  return text.substr(0, sum) + ",\n  \"checksum\": \"" +
         sum_text(base::checksum_of(std::as_bytes(std::span(text).first(sum)))) + "\"\n}\n";
}

TEST(Manifest, WhatContradictsItselfIsRefused) {
  const TempFolder folder;
  Store store(folder.path(), quick);
  save(store, 1);
  const Manifest m = Reader(store.folder_of(1)).manifest();
  EXPECT_EQ(to_text(parse_manifest(to_text(m), "again")), to_text(m));
  std::vector<std::array<std::string, 3>> bad = {
      {"rank-00000.safetensors", "../rank-00000.safetensors", "plain file name"},
      {"rank-00000.safetensors", "/etc/passwd", "plain file name"},
      {"\"version\": 1", "\"version\": 2", "version 2"},
      {"\"shape\": [8, 6]", "\"shape\": [8, -6]", "impossible shape"},
      {"\"shape\": [8, 6]", "\"shape\": [9223372036854775807, 6]", "impossible shape"},
      {"\"shape\": [8, 6]", "\"shape\": [8, 7]", "has 56 elements"},
      {"\"shape\": [8, 6]", "\"shape\": [8.5, 6]", "list of integers"},
      {"\"file\": 1", "\"file\": 2", "from 0 to 1"},
      {"\"size\": [8, 3]", "\"size\": [8, 7]", "outside of its tensor"},
      {"\"range\": [0, 10]", "\"range\": [0, 9223372036854775807]", "outside of its tensor"},
      {"\"range\": [0, 10]", "\"range\": [0, 9]", "pieces have 47"},
      {"\"dtype\": \"F64\"", "\"dtype\": \"F65\"", "dtype"},
      // What readers have taken at its word must not change later in the text.
      {"\"shape\": [8, 6]", "\"shape\": [8, 6], \"pieces\": []", "\"pieces\" after \"pieces\""},
      {"\"dtype\": \"F32\", \"shape\": [8, 6]", "\"shape\": [8, 6]", "lacks \"dtype\""},
      {"\"files\": [", "\"tensors\": [1], \"files\": [", "\"files\" after \"tensors\""},
      {"\"tensors\": [", "\"tensors\": [1], \"tensors\": [", "\"tensors\" twice"},
      {"\"tensors\": [", "\"tensors\": [[{\"name\": \"a\"}],", "list of objects"},
      {"\"chunk_bytes\": 8388608,", "", "lacks \"chunk_bytes\""},
      {"\"chunk_bytes\": 8388608", "\"chunk_bytes\": 0", "chunk_bytes"},
      {"\"chunk_bytes\": 8388608", "\"chunk_bytes\": 16", "checksums for"},
      {"\"name\": \"b/m\"", "\"name\": \"a\"", "twice"},
      {"\"run\": {", "\"runs\": {", "lacks \"run\""},
  };
  // Deep enough to exhaust the stack, wherever a reader would not look.
  const std::string deep = std::string(200'000, '[') + std::string(200'000, ']');
  for (const auto& [from, to] :
       std::vector<std::array<std::string, 2>>{{"\"run\": {", "\"run\": {\"x\": " + deep + ", "},
                                               {"\"chunk_bytes\":", "\"x\": " + deep + ", \"chunk_bytes\":"},
                                               {"{\"name\": \"a\"", "{\"x\": " + deep + ", \"name\": \"a\""},
                                               {"\"shape\": [8, 6]", "\"shape\": [8, " + deep + "]"},
                                               {"\"region\": {", "\"region\": {\"x\": " + deep + ", "},
                                               {"\"sums\": [", "\"sums\": [" + deep + ", "}})
    bad.push_back({from, to, "nests deeper than"});
  for (const auto& [from, to, why] : bad) {
    const std::string message = user_error([&] { parse_manifest(changed(m, from, to), "the file"); });
    EXPECT_NE(message.find(why), std::string::npos) << to.substr(0, 80) << ": " << message;
    EXPECT_NE(message.find("the file"), std::string::npos) << message;
  }
  // What a run puts there may nest.
  const std::string some = std::string(60, '[') + std::string(60, ']');
  EXPECT_NO_THROW(parse_manifest(changed(m, "\"run\": {", "\"run\": {\"x\": " + some + ", "), "the file"));
}

}  // namespace
}  // namespace quintet::checkpoint
