#include "base/file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

#include "base/file_lock.h"
#include "base/file_walk.h"
#include "base/output_path.h"
#include "base/temp_folder.h"

namespace quintet::base {
namespace {

using test::TempFolder;
using test::user_error;

// While alive, limits the size of this process's files to `bytes`: a write past it fails like one on a full
// disk.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : handler_(::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    rlimit limit = before_;
    limit.rlim_cur = bytes;
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    ::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_{};
  sighandler_t handler_;
};

std::vector<std::string> names_in(const Path& folder) {
  std::vector<std::string> names;
  for (const Path& file : list_files(folder)) names.push_back(file.lexically_relative(folder).string());
  return names;
}

TEST(File, WritesAndReadsBack) {
  const TempFolder folder;
  const std::string text("bytes \0 and lines\n", 18);
  write_file_atomically(folder / "a", text);
  EXPECT_EQ(read_file(folder / "a"), text);
  EXPECT_EQ(size_of_file(folder / "a"), 18);
  write_file_atomically(folder / "a", "");
  EXPECT_EQ(read_file(folder / "a"), "");
  EXPECT_EQ(names_in(folder.path()), std::vector<std::string>{"a"});
}

TEST(File, ReadsFilesWhoseSizeIsUnknown) { EXPECT_FALSE(read_file("/proc/self/status").empty()); }

TEST(File, MissingFileNamesPathAndReason) {
  const TempFolder folder;
  for (const auto& message :
       {user_error([&] { read_file(folder / "none"); }), user_error([&] { MappedFile(folder / "none"); }),
        user_error([&] { size_of_file(folder / "none"); }),
        user_error([&] { list_files(folder / "none"); })}) {
    EXPECT_CONTAINS(message, (folder / "none").string());
    EXPECT_CONTAINS(message, "No such file or directory");
  }
}

TEST(File, PipesAndDevicesAreRefusedAtOnce) {
  const TempFolder folder;
  const Path fifo = folder / "fifo";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  EXPECT_CONTAINS(user_error([&] { read_file(fifo); }), "it is a pipe, not a regular file");
  EXPECT_CONTAINS(user_error([] { read_file("/dev/zero"); }), "it is a device, not a regular file");
  EXPECT_CONTAINS(user_error([&] { MappedFile{fifo}; }), "not a regular file");
}

// Opening a pipe to append would wait for a reader, and a lock would be removed with its pipe.
TEST(File, PipesAreNeitherWrittenNorLocked) {
  const TempFolder folder;
  const Path fifo = folder / "fifo";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  for (const auto start : {AppendFile::Start::Empty, AppendFile::Start::AtEnd})
    EXPECT_CONTAINS(user_error([&] { AppendFile(fifo, start); }), "it is a pipe, not a regular file");
  const int reader = ::open(fifo.c_str(), O_RDONLY | O_NONBLOCK);
  EXPECT_CONTAINS(user_error([&] { AppendFile(fifo, AppendFile::Start::AtEnd); }), "it is a pipe");
  ::close(reader);
  EXPECT_CONTAINS(user_error([&] { FileLock::acquire(fifo, "me"); }), "not a regular file");
  EXPECT_TRUE(std::filesystem::is_fifo(fifo));
}

TEST(File, ObstaclesAreNamed) {
  const TempFolder folder;
  write_file_atomically(folder / "file", "x");
  ASSERT_EQ(::mkfifo((folder / "fifo").c_str(), 0600), 0);
  std::filesystem::create_symlink(folder / "file", folder / "link");
  std::filesystem::create_symlink(folder / "none", folder / "dangling");
  for (const Path& free : {folder / "file", folder / "link", folder / "none", folder / "file/below"})
    EXPECT_EQ(obstacle_at(free), "") << free;
  EXPECT_EQ(obstacle_at(folder.path()), "a folder");
  EXPECT_EQ(obstacle_at(folder / "fifo"), "a pipe");
  EXPECT_EQ(obstacle_at("/dev/null"), "a device");
  EXPECT_EQ(obstacle_at(folder / "dangling"), "a link to nothing");
}

TEST(File, LocksExcludeAndEndWithTheirHolder) {
  const TempFolder folder;
  const Path path = folder / ".lock";
  {
    const auto first = FileLock::acquire(path, "me");
    ASSERT_TRUE(first);
    EXPECT_FALSE(FileLock::acquire(path, "you"));
    EXPECT_EQ(FileLock::owner_of(path), "me");
  }
  EXPECT_FALSE(file_exists(path));
  const pid_t child = ::fork();
  if (child == 0) {
    const auto held = FileLock::acquire(path, "child");
    ::raise(SIGKILL);
  }
  ::waitpid(child, nullptr, 0);
  EXPECT_TRUE(file_exists(path));
  EXPECT_TRUE(FileLock::acquire(path, "me")) << "the lock of a killed process is free";
}

TEST(File, ALockNeverReplacesAFileOfTheUser) {
  const TempFolder folder;
  const Path path = folder / ".lock";
  for (const std::string text : {"mine", "quintet", "notes on quintet lock: none"}) {
    write_file_atomically(path, text);
    EXPECT_CONTAINS(user_error([&] { FileLock::acquire(path, "me"); }), "is not a lock of Quintet");
    EXPECT_EQ(read_file(path), text);
  }
  write_file_atomically(path, "");  // a full disk left its text out
  EXPECT_TRUE(FileLock::acquire(path, "me"));
}

TEST(File, OnlyPagesOfOursAreReplaced) {
  const TempFolder folder;
  const Path page = folder / "page.html";
  require_page_file("--html", page);
  write_file_atomically(page, "<!doctype html><title>mine</title>");
  EXPECT_CONTAINS(user_error([&] { require_page_file("--html", page); }), "was not made by Quintet");
  write_file_atomically(page, std::string(5000, ' ') + std::string(kPageMark));
  EXPECT_CONTAINS(user_error([&] { require_page_file("--html", page); }), "was not made by Quintet");
  write_file_atomically(page, fmt::format("<!-- {} -->", kPageMark));
  require_page_file("--html", page);
}

TEST(File, OutputPathsAreTestedWithoutATrace) {
  const TempFolder folder;
  write_file_atomically(folder / "there", "old");
  require_writable_file("--html", folder / "new");
  require_writable_file("--html", folder / "there");
  require_new_file("--emit", folder / "there", true);
  EXPECT_CONTAINS(user_error([&] { require_new_file("--emit", folder / "there", false); }), "--overwrite");
  EXPECT_CONTAINS(user_error([&] { require_writable_file("--html", folder / "no" / "x"); }),
                  "does not exist; create it first");
  EXPECT_CONTAINS(user_error([&] { require_writable_file("--html", folder.path()); }), "not a folder");
  EXPECT_CONTAINS(user_error([&] { require_writable_file("--html", ""); }), "--html is empty");
  EXPECT_CONTAINS(user_error([] { require_writable_file("--html", "/proc/x"); }), "/proc/x");
  EXPECT_CONTAINS(user_error([&] { require_existing_folder("--disk", folder / "no"); }), "no such folder");
  EXPECT_EQ(list_files(folder.path()).size(), 1u);
  EXPECT_EQ(read_file(folder / "there"), "old");
}

TEST(File, AFolderIsNotAFile) {
  const TempFolder folder;
  EXPECT_CONTAINS(user_error([&] { read_file(folder.path()); }), "Is a directory");
  EXPECT_CONTAINS(user_error([&] { MappedFile(folder.path()); }), "Is a directory");
  EXPECT_CONTAINS(user_error([&] { write_file_atomically(folder.path(), "x"); }), "not a regular file");
}

TEST(File, AtomicWriteThatFailsLeavesTheOldFileAndNothingElse) {
  const TempFolder folder;
  write_file_atomically(folder / "a", "old");
  {
    const FileSizeLimit limit(4096);
    const auto message = user_error([&] { write_file_atomically(folder / "a", std::string(3 << 20, 'x')); });
    EXPECT_CONTAINS(message, "cannot write '" + (folder / "a").string() + "'");
    EXPECT_CONTAINS(message, "File too large");
  }
  EXPECT_EQ(read_file(folder / "a"), "old");
  EXPECT_EQ(names_in(folder.path()), std::vector<std::string>{"a"});
}

TEST(File, AtomicFileIsInvisibleBeforeCommitAndGoneWithoutIt) {
  const TempFolder folder;
  {
    AtomicFile file(folder / "a");
    file.write(std::string(3 << 20, 'x'));
    EXPECT_FALSE(file_exists(folder / "a"));
  }
  EXPECT_TRUE(names_in(folder.path()).empty());
  AtomicFile file(folder / "a");
  for (int i = 0; i < 5; ++i) file.write(std::string(700'001, static_cast<char>('a' + i)));
  file.commit();
  const std::string text = read_file(folder / "a");
  ASSERT_EQ(text.size(), 5u * 700'001);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(std::count(text.begin(), text.end(), 'a' + i), 700'001);
  EXPECT_THROW(file.write(std::string_view("more")), InternalError);
}

TEST(File, AtomicWriteRefusesDevices) {
  EXPECT_CONTAINS(user_error([] { write_file_atomically("/dev/full", "x"); }), "not a regular file");
}

TEST(File, FullDiskIsNamedWithFreeSpace) {
  AppendFile file("/dev/full", AppendFile::Start::AtEnd);
  const auto message = user_error([&] { file.append("x"); });
  EXPECT_CONTAINS(message, "cannot write '/dev/full': No space left on device");
  EXPECT_CONTAINS(message, "free in '/dev'");
}

TEST(File, FoldersThatCannotExist) {
  const TempFolder folder;
  write_file_atomically(folder / "file", "x");
  const Path below = folder / "file/run";
  EXPECT_CONTAINS(user_error([&] { make_directories(below); }), "Not a directory");
  EXPECT_CONTAINS(user_error([&] { require_writable_directory(below); }), below.string());
  EXPECT_CONTAINS(user_error([&] { make_directories(folder / "file"); }), "Not a directory");
  EXPECT_CONTAINS(user_error([&] { AppendFile(below, AppendFile::Start::Empty); }), "Not a directory");
  EXPECT_CONTAINS(user_error([&] { write_file_atomically(below, "x"); }), "Not a directory");
  // A folder in which not even root may create files.
  EXPECT_CONTAINS(user_error([] { require_writable_directory("/proc/self"); }),
                  "cannot write in folder '/proc/self'");
  EXPECT_EQ(names_in(folder.path()), std::vector<std::string>{"file"});
}

TEST(File, MakesFoldersAndProvesThemWritable) {
  const TempFolder folder;
  make_directories(folder / "a/b/c");
  make_directories(folder / "a/b/c");
  require_writable_directory(folder / "d/e");
  EXPECT_TRUE(directory_exists(folder / "a/b/c"));
  EXPECT_TRUE(directory_exists(folder / "d/e"));
  EXPECT_TRUE(names_in(folder.path()).empty());
}

TEST(File, AppendsOrStartsOver) {
  const TempFolder folder;
  {
    AppendFile file(folder / "log", AppendFile::Start::Empty);
    file.append("one\n");
    EXPECT_EQ(read_file(folder / "log"), "one\n");  // immediately, not at the end
    file.append("two\n");
    file.sync();
    file.close();
    EXPECT_THROW(file.append("x"), InternalError);
  }
  AppendFile(folder / "log", AppendFile::Start::AtEnd).append("three\n");
  EXPECT_EQ(read_file(folder / "log"), "one\ntwo\nthree\n");
  AppendFile(folder / "log", AppendFile::Start::Empty).append("four\n");
  EXPECT_EQ(read_file(folder / "log"), "four\n");
}

TEST(File, AppendsAllOrNothing) {
  const TempFolder folder;
  AppendFile file(folder / "log", AppendFile::Start::Empty);
  file.append("one\n");
  {
    // Accepts a part of the next text, like a full disk.
    const FileSizeLimit limit(6);
    EXPECT_CONTAINS(user_error([&] { file.append("second\n"); }), "cannot write");
  }
  EXPECT_EQ(read_file(folder / "log"), "one\n");
  file.append("two\n");
  EXPECT_EQ(read_file(folder / "log"), "one\ntwo\n");
}

TEST(File, Maps) {
  const TempFolder folder;
  write_file_atomically(folder / "a", "abc");
  write_file_atomically(folder / "empty", "");
  MappedFile map(folder / "a");
  MappedFile moved = std::move(map);
  ASSERT_EQ(moved.bytes().size(), 3u);
  EXPECT_EQ(static_cast<char>(moved.bytes()[2]), 'c');
  EXPECT_TRUE(MappedFile(folder / "empty").bytes().empty());
}

TEST(File, ListsSortedWithoutFollowingLinksToFolders) {
  const TempFolder folder;
  for (const char* name : {"b/z", "b/skip/q", "a/y", "c", "a/x"}) {
    make_directories((folder / name).parent_path());
    write_file_atomically(folder / name, "x");
  }
  std::filesystem::create_directory_symlink(folder.path(), folder / "a/loop");
  std::filesystem::create_symlink(folder / "nowhere", folder / "dangling");
  EXPECT_EQ(names_in(folder.path()), (std::vector<std::string>{"a/x", "a/y", "b/skip/q", "b/z", "c"}));
  const auto some = list_files(folder.path(), [](const Path& p) { return p.filename() != "skip"; });
  EXPECT_EQ(some.size(), 4u);
  ASSERT_EQ(::mkfifo((folder / "fifo").c_str(), 0600), 0);
  std::filesystem::create_symlink("/dev/null", folder / "null");
  const FileWalk walk = walk_files(folder.path());
  EXPECT_EQ(walk.dangling, std::vector<Path>{folder / "dangling"});
  EXPECT_EQ(walk.special, (std::vector<Path>{folder / "fifo", folder / "null"}));
}

TEST(File, FreeSpaceLooksAtTheNearestParent) {
  const TempFolder folder;
  struct statvfs there;
  ASSERT_EQ(::statvfs(folder.path().c_str(), &there), 0);
  const double free = static_cast<double>(there.f_bavail) * static_cast<double>(there.f_frsize);
  // Other processes write meanwhile.
  EXPECT_NEAR(static_cast<double>(free_bytes(folder.path())) / free, 1, 0.2);
  EXPECT_NEAR(static_cast<double>(free_bytes(folder / "not/yet/there")) / free, 1, 0.2);
  EXPECT_GT(free_bytes("not_yet_there"), 0);
}

TEST(File, RemovesWhatIsThere) {
  const TempFolder folder;
  write_file_atomically(folder / "a", "x");
  remove_file(folder / "a");
  remove_file(folder / "a");
  EXPECT_FALSE(file_exists(folder / "a"));
  make_directories(folder / "d");
  EXPECT_CONTAINS(user_error([&] { remove_file(folder / "d"); }), "cannot remove");
}

}  // namespace
}  // namespace quintet::base
