#include "comm/mpi/inquiry.h"

#include <fmt/format.h>

#include <chrono>
#include <map>
#include <thread>

#include "base/clock.h"
#include "comm/mpi/transfer.h"

namespace quintet::comm::mpi {
namespace {

constexpr int kQuestion = 1, kAnswer = 2;
constexpr size_t kLongestAnswer = 1000;  // short enough for every transport to send eagerly
constexpr std::chrono::milliseconds kPatience{1000};

// Receives a pending message with this tag, if there is one.
bool take(MPI_Comm comm, int tag, int& source, std::string& text) {
  int there = 0, bytes = 0;
  MPI_Status status;
  MPI_Message message;
  check(MPI_Improbe(MPI_ANY_SOURCE, tag, comm, &there, &message, &status), "MPI_Improbe");
  if (!there) return false;
  MPI_Get_count(&status, MPI_CHAR, &bytes);
  text.resize(static_cast<size_t>(bytes));
  source = status.MPI_SOURCE;
  check(MPI_Mrecv(text.data(), bytes, MPI_CHAR, &message, MPI_STATUS_IGNORE), "MPI_Mrecv");
  return true;
}

}  // namespace

Inquiry::Inquiry(const Recorder& recorder) : recorder_(recorder) {
  check(MPI_Comm_dup(MPI_COMM_WORLD, &comm_), "MPI_Comm_dup");
}

void Inquiry::close() { MPI_Comm_free(&comm_); }

void Inquiry::serve() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (lock) serve_locked();
}

void Inquiry::serve_locked() {
  int asker = 0;
  std::string question;
  while (take(comm_, kQuestion, asker, question)) {
    answers_.push_back(recorder_.describe_now().substr(0, kLongestAnswer));
    MPI_Request request = MPI_REQUEST_NULL;
    check(MPI_Isend(answers_.back().data(), static_cast<int>(answers_.back().size()), MPI_CHAR, asker,
                    kAnswer, comm_, &request),
          "MPI_Isend");
    MPI_Request_free(&request);
  }
}

std::string Inquiry::ask(const std::vector<base::RankId>& ranks) {
  const std::lock_guard lock(mutex_);
  std::map<int, std::string> lines;
  size_t missing = 0;
  for (const base::RankId r : ranks) {
    if (r == recorder_.rank()) {
      lines[r.value] = recorder_.describe_now();
      continue;
    }
    MPI_Request request = MPI_REQUEST_NULL;
    check(MPI_Isend(nullptr, 0, MPI_CHAR, r.value, kQuestion, comm_, &request), "MPI_Isend");
    MPI_Request_free(&request);
    ++missing;
  }
  const int64_t deadline = base::now_ns() + std::chrono::nanoseconds(kPatience).count();
  while (missing > 0 && base::now_ns() < deadline) {
    serve_locked();  // the ranks we ask may be asking us
    int source = 0;
    std::string text;
    if (take(comm_, kAnswer, source, text))
      missing -= lines.emplace(source, std::move(text)).second ? 1 : 0;
    else
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  std::string text;
  for (const base::RankId r : ranks) {
    const auto line = lines.find(r.value);
    text += fmt::format("  {}\n", line != lines.end()
                                      ? line->second
                                      : fmt::format("rank {}: no answer: it is not waiting in any call", r));
  }
  return text;
}

}  // namespace quintet::comm::mpi
