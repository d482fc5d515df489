#include <fmt/format.h>
#include <mpi.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <map>
#include <mutex>

#include "base/error.h"
#include "base/printable.h"
#include "comm/members.h"
#include "comm/mpi.h"
#include "comm/mpi/inquiry.h"
#include "comm/mpi/mpi_communicator.h"

namespace quintet::comm {
namespace mpi {
namespace {

constexpr int kExitFailure = 1, kExitUser = 2;

// Initialises MPI before the members that need it.
class Session {
 public:
  Session() {
    int initialised = 0, granted = MPI_THREAD_SINGLE;
    MPI_Initialized(&initialised);
    QUINTET_CHECK(!initialised, "MPI is already initialised: only one MPI world per process is allowed");
    MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &granted);
    if (granted < MPI_THREAD_MULTIPLE)
      base::fail_user(
          "the MPI library provides thread level {}, but MPI_THREAD_MULTIPLE ({}) is required: use one built "
          "with full thread support (such as Debian's libopenmpi-dev)",
          granted, static_cast<int>(MPI_THREAD_MULTIPLE));
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
  }
  int rank = 0, size = 1;
};

class MpiWorld final : public World {
 public:
  MpiWorld() : recorder_(base::RankId(session_.rank)), inquiry_(recorder_) {
    std::vector<base::RankId> all;
    for (int r = 0; r < session_.size; ++r) all.push_back(base::RankId(r));
    world_ = create(all, "world");
  }

  ~MpiWorld() override {
    if (std::uncaught_exceptions() > exceptions_at_start_)
      end_job("an exception ended the rank", kExitFailure);
    world_.reset();
    for (MPI_Comm& comm : comms_) MPI_Comm_free(&comm);
    inquiry_.close();
    MPI_Finalize();
  }

  base::RankId rank() const override { return recorder_.rank(); }
  int size() const override { return session_.size; }
  Communicator& world() override { return *world_; }
  Recorder& recorder() override { return recorder_; }
  std::string transport() const override { return "MPI, pairwise exchange"; }
  void set_timeout(std::chrono::nanoseconds timeout) override { timeout_ = timeout.count(); }
  std::chrono::nanoseconds timeout() const override {
    return std::chrono::nanoseconds(timeout_.load(std::memory_order_relaxed));
  }
  void abort(const std::string& reason) override { end_job(reason, kExitFailure); }

  std::shared_ptr<Communicator> create(const std::vector<base::RankId>& members, std::string name) override {
    const int index = member_index(members, rank(), size());
    if (name.empty()) name = members_text(members);
    mpi::Channel channel;
    if (members.size() > 1) channel.comm = make_comm(members);
    channel.timeout = [this] { return timeout(); };
    channel.while_waiting = [this] { inquiry_.serve(); };
    channel.ask_members = [this, members] { return inquiry_.ask(members); };
    channel.who = fmt::format("rank {} on communicator '{}' {}", rank(), name, members_text(members));
    return std::make_shared<MpiCommunicator>(recorder_, std::move(name), index, members, std::move(channel));
  }

  [[noreturn]] void end_job(const std::string& reason, int exit_code) {
    std::fputs(fmt::format("quintet: rank {} of {} ends the job: {}\nexit status {}; its last calls:\n{}",
                           rank(), size(), base::printable(reason), exit_code, recorder_.describe(8))
                   .c_str(),
               stderr);
    std::fflush(stderr);
    MPI_Abort(MPI_COMM_WORLD, exit_code);
    std::_Exit(exit_code);
  }

 private:
  MPI_Comm make_comm(const std::vector<base::RankId>& members) {
    std::vector<int> ranks;
    for (const base::RankId r : members) ranks.push_back(r.value);
    // The tag separates groups that two threads create at once.
    uint32_t tag = 17;
    for (const int r : ranks) tag = tag * 31 + static_cast<uint32_t>(r);
    MPI_Group all = MPI_GROUP_NULL, group = MPI_GROUP_NULL;
    MPI_Comm comm = MPI_COMM_NULL;
    check(MPI_Comm_group(MPI_COMM_WORLD, &all), "MPI_Comm_group");
    check(MPI_Group_incl(all, static_cast<int>(ranks.size()), ranks.data(), &group), "MPI_Group_incl");
    check(MPI_Comm_create_group(MPI_COMM_WORLD, group, static_cast<int>(tag & 0x7fff), &comm),
          "MPI_Comm_create_group");
    MPI_Group_free(&group);
    MPI_Group_free(&all);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    const std::lock_guard lock(mutex_);
    comms_.push_back(comm);
    return comm;
  }

  const int exceptions_at_start_ = std::uncaught_exceptions();
  const Session session_;
  Recorder recorder_;
  Inquiry inquiry_;
  std::atomic<std::chrono::nanoseconds::rep> timeout_ = std::chrono::nanoseconds(kDefaultTimeout).count();
  std::mutex mutex_;
  std::vector<MPI_Comm> comms_;  // freed together at the end, because freeing is collective
  std::shared_ptr<Communicator> world_;
};

}  // namespace
}  // namespace mpi

bool mpi_available() { return true; }

std::string mpi_version() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING];
  int length = 0;
  MPI_Get_library_version(text, &length);  // one of the few calls that are allowed before MPI_Init
  std::string version(text, static_cast<size_t>(length));
  version.resize(std::min(version.find_first_of(",\n"), version.size()));
  // "Open MPI v4.1.4" as other libraries are printed.
  if (const size_t v = version.find(" v"); v != std::string::npos) version.erase(v + 1, 1);
  return version;
}

std::unique_ptr<World> make_mpi_world() { return std::make_unique<mpi::MpiWorld>(); }

namespace {

std::function<void(const std::exception&)> failure_report;  // set before the world begins

void report(const std::exception& failure) {
  if (!failure_report) return;
  try {
    failure_report(failure);
  } catch (const std::exception&) {  // standard output is closed: the job ends all the same
  }
}

}  // namespace

void report_mpi_failures(std::function<void(const std::exception&)> report) {
  failure_report = std::move(report);
}

void run_mpi_world(const std::function<void(World&)>& body) {
  mpi::MpiWorld world;
  try {
    body(world);
  } catch (const base::UserError& e) {
    report(e);
    world.end_job(e.what(), mpi::kExitUser);
  } catch (const std::exception& e) {
    report(e);
    world.end_job(e.what(), mpi::kExitFailure);
  } catch (...) {
    world.end_job("an exception of unknown type", mpi::kExitFailure);
  }
}

}  // namespace quintet::comm
