#include <fmt/format.h>

#include <exception>
#include <map>
#include <system_error>
#include <thread>

#include "base/error.h"
#include "comm/local.h"
#include "comm/local/local_group.h"
#include "comm/members.h"

namespace quintet::comm {
namespace local {
namespace {

// State shared by the ranks of one world.
class Job {
 public:
  Job(int size, std::chrono::nanoseconds timeout) : timeout_(timeout) {
    for (int r = 0; r < size; ++r) recorders_.push_back(std::make_unique<Recorder>(base::RankId(r)));
  }

  int size() const { return static_cast<int>(recorders_.size()); }
  Recorder& recorder(base::RankId rank) { return *recorders_[rank.index()]; }
  std::chrono::nanoseconds timeout() const { return timeout_; }

  // The nth group of these members: created by the first member to arrive, released when the last has
  // arrived.
  std::shared_ptr<LocalGroup> join(const std::vector<base::RankId>& members, int nth,
                                   const std::string& name) {
    const std::lock_guard lock(mutex_);
    if (!abort_text_.empty()) throw AbortedError(abort_text_);
    const auto key = std::pair(members, nth);
    Joining& joining = joining_[key];
    if (!joining.group) {
      std::vector<const Recorder*> recorders;
      for (const base::RankId r : members) recorders.push_back(recorders_[r.index()].get());
      joining.group = std::make_shared<LocalGroup>(name, members, std::move(recorders));
      std::erase_if(groups_, [](const auto& g) { return g.expired(); });
      groups_.push_back(joining.group);
    }
    const std::shared_ptr<LocalGroup> group = joining.group;
    if (++joining.joined == members.size()) joining_.erase(key);
    return group;
  }

  void abort(base::RankId rank, const std::string& reason) {
    const std::lock_guard lock(mutex_);
    if (!abort_text_.empty()) return;
    abort_text_ = fmt::format("rank {} aborted the job: {}", rank, reason);
    aborted_.store(true, std::memory_order_release);
    for (const auto& weak : groups_)
      if (const auto group = weak.lock()) group->fail(FailureKind::Aborted, abort_text_);
  }

  void throw_if_aborted() {
    if (!aborted_.load(std::memory_order_acquire)) return;
    const std::lock_guard lock(mutex_);
    throw AbortedError(abort_text_);
  }

 private:
  struct Joining {
    std::shared_ptr<LocalGroup> group;
    size_t joined = 0;
  };
  const std::chrono::nanoseconds timeout_;
  std::vector<std::unique_ptr<Recorder>> recorders_;
  std::mutex mutex_;
  std::string abort_text_;
  std::atomic<bool> aborted_ = false;  // abort_text_ is set
  std::map<std::pair<std::vector<base::RankId>, int>, Joining> joining_;
  std::vector<std::weak_ptr<LocalGroup>> groups_;
};

// Read by every call, possibly from several threads of the rank.
using Timeout = std::atomic<std::chrono::nanoseconds::rep>;

class LocalCommunicator final : public Communicator {
 public:
  LocalCommunicator(Recorder& recorder, std::string name, int rank, std::vector<base::RankId> members,
                    std::shared_ptr<LocalGroup> group, std::shared_ptr<const Timeout> timeout)
      : Communicator(recorder, std::move(name), rank, std::move(members)),
        group_(std::move(group)),
        timeout_(std::move(timeout)) {}

 private:
  void do_all_reduce(const Call& call, void* data) override { collective(call, data, data); }
  void do_all_gather(const Call& call, const void* send, void* recv) override {
    collective(call, send, recv);
  }
  void do_reduce_scatter(const Call& call, const void* send, void* recv) override {
    collective(call, send, recv);
  }
  void do_all_to_all(const Call& call, const void* send, void* recv) override {
    collective(call, send, recv);
  }
  void do_all_to_all_v(const Call& call, const Exchange& exchange) override {
    group_->collective(rank(), call, exchange.send, exchange.recv, timeout(), &exchange);
  }
  void do_broadcast(const Call& call, void* data) override { collective(call, data, data); }
  void do_barrier(const Call& call) override { collective(call, nullptr, nullptr); }
  void do_send(const Call& call, const void* data) override { group_->send(rank(), call, data, timeout()); }
  void do_recv(const Call& call, void* data) override { group_->recv(rank(), call, data, timeout()); }

  void collective(const Call& call, const void* send, void* recv) {
    group_->collective(rank(), call, send, recv, timeout());
  }
  std::chrono::nanoseconds timeout() const {
    return std::chrono::nanoseconds(timeout_->load(std::memory_order_relaxed));
  }

  const std::shared_ptr<LocalGroup> group_;
  const std::shared_ptr<const Timeout> timeout_;
};

class LocalWorld final : public World {
 public:
  LocalWorld(Job& job, base::RankId rank)
      : job_(job), rank_(rank), timeout_(std::make_shared<Timeout>(job.timeout().count())) {
    std::vector<base::RankId> all;
    for (int r = 0; r < job.size(); ++r) all.push_back(base::RankId(r));
    world_ = create(all, "world");
  }

  base::RankId rank() const override { return rank_; }
  int size() const override { return job_.size(); }
  Communicator& world() override { return *world_; }
  Recorder& recorder() override { return job_.recorder(rank_); }
  std::string transport() const override { return "threads, direct"; }
  void abort(const std::string& reason) override { job_.abort(rank_, reason); }
  void throw_if_aborted() const override { job_.throw_if_aborted(); }
  void set_timeout(std::chrono::nanoseconds timeout) override { timeout_->store(timeout.count()); }
  std::chrono::nanoseconds timeout() const override { return std::chrono::nanoseconds(timeout_->load()); }

  std::shared_ptr<Communicator> create(const std::vector<base::RankId>& members, std::string name) override {
    const int index = member_index(members, rank_, size());
    if (name.empty()) name = members_text(members);
    int nth = 0;
    {
      const std::lock_guard lock(mutex_);
      nth = created_[members]++;
    }
    auto group = job_.join(members, nth, name);
    return std::make_shared<LocalCommunicator>(recorder(), std::move(name), index, members, std::move(group),
                                               timeout_);
  }

 private:
  Job& job_;
  const base::RankId rank_;
  const std::shared_ptr<Timeout> timeout_;
  std::mutex mutex_;
  std::map<std::vector<base::RankId>, int> created_;
  std::shared_ptr<Communicator> world_;
};

// The first exception that is a cause, and the first of any kind.
class FirstFailure {
 public:
  void note(const std::exception_ptr& e, bool is_consequence) {
    const std::lock_guard lock(mutex_);
    std::exception_ptr& place = is_consequence ? consequence_ : cause_;
    if (!place) place = e;
  }
  void rethrow() const {
    if (cause_) std::rethrow_exception(cause_);
    if (consequence_) std::rethrow_exception(consequence_);
  }

 private:
  std::mutex mutex_;
  std::exception_ptr cause_, consequence_;
};

void run_rank(Job& job, base::RankId rank, const std::function<void(World&)>& body, FirstFailure& failure) {
  std::string reason;
  try {
    LocalWorld world(job, rank);
    try {
      body(world);
      return;
    } catch (...) {
      // Recorded before the peers are released, and they are released before the world is destroyed.
      try {
        throw;
      } catch (const AbortedError& e) {
        failure.note(std::current_exception(), true);
        reason = e.what();
      } catch (const std::exception& e) {
        failure.note(std::current_exception(), false);
        reason = e.what();
      } catch (...) {
        failure.note(std::current_exception(), false);
        reason = "an exception of unknown type";
      }
      job.abort(rank, reason);
    }
  } catch (...) {
    // The world could not be created: another rank has aborted already, or memory is short.
    failure.note(std::current_exception(), true);
    job.abort(rank, "the rank could not join the world");
  }
}

}  // namespace
}  // namespace local

void require_local_ranks(int64_t ranks) {
  if (ranks <= kMaxLocalRanks) return;
  base::fail_user(
      "{} ranks as threads of one process; the limit is {}: start processes with mpirun or srun. 'quintet "
      "check' and 'quintet plan' compile layouts of any size without starting ranks",
      ranks, kMaxLocalRanks);
}

void run_local_world(int size, const std::function<void(World&)>& body, const LocalOptions& options) {
  QUINTET_CHECK(size > 0, "a local world of {} ranks", size);
  require_local_ranks(size);
  local::Job job(size, options.timeout);
  local::FirstFailure failure;
  std::vector<std::thread> threads;
  try {
    for (int r = 0; r < size; ++r)
      threads.emplace_back([&, r] { local::run_rank(job, base::RankId(r), body, failure); });
  } catch (const std::system_error& e) {  // no memory, or no process, for another thread
    failure.note(
        std::make_exception_ptr(base::UserError(fmt::format(
            "only {} of {} ranks could be started as threads of this process: {}; use fewer ranks, or "
            "processes under mpirun",
            threads.size(), size, e.what()))),
        false);
    job.abort(base::RankId(static_cast<int32_t>(threads.size())), "the rank could not be started");
  }
  for (std::thread& t : threads) t.join();
  failure.rethrow();
}

}  // namespace quintet::comm
