// Runs the tool as a user would: through the shell, capturing output and exit code.
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>

#include "support/folders.h"
#include "train/support.h"

namespace quintet::test {

inline const std::string kTool = test::binary_dir() + "/quintet";
// Open MPI as root, oversubscribing the cores.
inline const std::string kMpiSettings =
    "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_btl_vader_single_copy_mechanism=none "
    "OMPI_MCA_mpi_yield_when_idle=1 OMPI_MCA_rmaps_base_oversubscribe=1 ";
inline const std::string kMpirun = kMpiSettings + "mpirun --oversubscribe ";
inline bool has_mpirun() { return ::system("command -v mpirun >/dev/null 2>&1") == 0; }
inline constexpr const char* kNoMpirun =
    "Open MPI's mpirun is not on PATH, so nothing was run under MPI; `make setup` installs it";

struct Outcome {
  int code = -1;
  std::string out, err;
};

inline Outcome shell(const std::string& command) {
  const TempFolder folder;
  const std::string out = (folder / "out").string(), err = (folder / "err").string();
  const int status = ::system(("( " + command + " ) >" + out + " 2>" + err + " </dev/null").c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), base::read_file(out),
          base::read_file(err)};
}

inline std::string quoted(const std::string& text) { return "'" + text + "'"; }

inline Outcome quintet(const std::string& arguments) { return shell(kTool + " " + arguments); }

// Runs the tool with the given descriptors (1, 2) connected to a pipe whose reader is closed.
inline Outcome into_closed_pipe(const std::vector<std::string>& arguments, const std::vector<int>& closed) {
  const TempFolder folder;
  const std::string out = (folder / "out").string(), err = (folder / "err").string();
  const pid_t pid = ::fork();
  if (pid == 0) {
    int ends[2];
    if (::pipe(ends) != 0) ::_exit(127);
    ::close(ends[0]);
    ::dup2(::open("/dev/null", O_RDONLY), 0);
    ::dup2(::open(out.c_str(), O_WRONLY | O_CREAT, 0600), 1);
    ::dup2(::open(err.c_str(), O_WRONLY | O_CREAT, 0600), 2);
    for (const int fd : closed) ::dup2(ends[1], fd);
    std::vector<char*> argv = {const_cast<char*>(kTool.c_str())};
    for (const std::string& a : arguments) argv.push_back(const_cast<char*>(a.c_str()));
    argv.push_back(nullptr);
    ::execv(kTool.c_str(), argv.data());
    ::_exit(127);
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), base::read_file(out),
          base::read_file(err)};
}

// Runs the tool in a child process that can be signalled.
class Background {
 public:
  // Standard error goes to `err`. `largest_file`: bytes that no file may exceed, as if the disk were full.
  explicit Background(const std::vector<std::string>& arguments, const std::string& err = "/dev/null",
                      rlim_t largest_file = RLIM_INFINITY)
      : pid_(::fork()) {
    if (pid_ != 0) return;
    const rlimit limit = {largest_file, largest_file};
    if (largest_file != RLIM_INFINITY) ::setrlimit(RLIMIT_FSIZE, &limit);
    // What the tests were started with, such as nohup, must not change what a signal does.
    for (const int signal : {SIGHUP, SIGINT, SIGTERM, SIGUSR1}) ::signal(signal, SIG_DFL);
    const int null = ::open("/dev/null", O_RDWR);
    for (const int fd : {0, 1, 2}) ::dup2(null, fd);
    ::dup2(::open(err.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), 2);
    std::vector<char*> argv = {const_cast<char*>(kTool.c_str())};
    for (const std::string& a : arguments) argv.push_back(const_cast<char*>(a.c_str()));
    argv.push_back(nullptr);
    ::execv(kTool.c_str(), argv.data());
    ::_exit(127);
  }
  ~Background() {
    if (waited_) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  void send(int signal) const { ::kill(pid_, signal); }
  // True when the process has already ended.
  bool ended() {
    if (!waited_ && ::waitpid(pid_, &status_, WNOHANG) == pid_) waited_ = true;
    return waited_;
  }
  int wait() {
    if (!waited_) ::waitpid(pid_, &status_, 0);
    waited_ = true;
    return WIFEXITED(status_) ? WEXITSTATUS(status_) : 128 + WTERMSIG(status_);
  }

 private:
  pid_t pid_;
  int status_ = 0;
  bool waited_ = false;
};

}  // namespace quintet::test
