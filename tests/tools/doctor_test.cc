// Three artificial bottlenecks, each far larger than anything else in the step, and their diagnosis.
#include "tools/doctor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>

#include "comm/local.h"
#include "data/corpus.h"
#include "support/small_recipe.h"
#include "train/run_data.h"

namespace quintet::tools {
namespace {

using std::chrono::milliseconds;

config::Recipe recipe(const std::vector<std::string>& sets) {
  return test::small_recipe({"name=patient", "model.embed=32", "model.ffn=64", "model.vocab=256",
                             "batch.global=4", "run.steps=10", "run.threads=1"},
                            sets);
}

data::Corpus corpus() {
  std::vector<int32_t> ids;
  for (int i = 0; i < 4096; ++i) ids.push_back(i * i % 256);
  return data::Corpus::from_documents("numbers", 256, {ids});
}

// Batches in which every label costs `delay`: a data source that cannot keep up.
data::Batches batches(const config::Recipe& r, milliseconds delay = {}) {
  data::Splits splits = data::make_splits(corpus(), {.seq_len = r.data.seq_len});
  const data::Sampler sampler(1, splits.train.size(), data::Order::Shuffled);
  data::LabelMask mask;
  if (delay.count() > 0)
    mask = [delay](const data::LabelSite& site) {
      if (site.position == 0) std::this_thread::sleep_for(delay);
      return true;
    };
  return data::Batches(std::move(splits.train), sampler,
                       {.global = r.batch.global,
                        .micro = r.batch.micro,
                        .accumulation = r.batch.accumulation,
                        .dp = r.parallel.dp()},
                       {}, mask);
}

// A network in which every call over one axis takes `delay` longer.
class SlowCommunicator : public comm::Communicator {
 public:
  SlowCommunicator(comm::World& world, std::shared_ptr<comm::Communicator> inner, milliseconds delay)
      : Communicator(world.recorder(), inner->name() + " (slow)", inner->rank(), inner->members()),
        inner_(std::move(inner)),
        delay_(delay) {}

 protected:
  void do_all_reduce(const comm::Call& c, void* data) override {
    wait();
    inner_->all_reduce(data, c.count, c.dtype, c.op);
  }
  void do_all_gather(const comm::Call& c, const void* send, void* recv) override {
    wait();
    inner_->all_gather(send, recv, c.count, c.dtype);
  }
  void do_reduce_scatter(const comm::Call& c, const void* send, void* recv) override {
    wait();
    inner_->reduce_scatter(send, recv, c.count, c.dtype, c.op);
  }
  void do_all_to_all(const comm::Call& c, const void* send, void* recv) override {
    wait();
    inner_->all_to_all(send, recv, c.count, c.dtype);
  }
  void do_all_to_all_v(const comm::Call& c, const comm::Exchange& e) override {
    wait();
    inner_->all_to_all_v(e.send, e.send_offsets, e.send_counts, e.recv, e.recv_offsets, e.recv_counts,
                         c.dtype);
  }
  void do_broadcast(const comm::Call& c, void* data) override {
    wait();
    inner_->broadcast(data, c.count, c.dtype, c.peer);
  }
  void do_send(const comm::Call& c, const void* data) override {
    wait();
    inner_->send(data, c.count, c.dtype, c.peer);
  }
  void do_recv(const comm::Call& c, void* data) override {
    wait();
    inner_->recv(data, c.count, c.dtype, c.peer);
  }
  void do_barrier(const comm::Call&) override { inner_->barrier(); }

 private:
  void wait() const { std::this_thread::sleep_for(delay_); }
  const std::shared_ptr<comm::Communicator> inner_;
  const milliseconds delay_;
};

class SlowWorld : public comm::World {
 public:
  SlowWorld(comm::World& inner, std::string axis, milliseconds delay)
      : inner_(inner), axis_(std::move(axis)), delay_(delay) {}
  base::RankId rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  comm::Communicator& world() override { return inner_.world(); }
  std::shared_ptr<comm::Communicator> create(const std::vector<base::RankId>& members,
                                             std::string name) override {
    const bool slow = members.size() > 1 && name.starts_with(axis_);
    auto made = inner_.create(members, std::move(name));
    if (!slow) return made;
    return std::make_shared<SlowCommunicator>(*this, std::move(made), delay_);
  }
  void abort(const std::string& reason) override { inner_.abort(reason); }
  void set_timeout(std::chrono::nanoseconds timeout) override { inner_.set_timeout(timeout); }
  std::chrono::nanoseconds timeout() const override { return inner_.timeout(); }
  comm::Recorder& recorder() override { return inner_.recorder(); }
  std::string transport() const override { return inner_.transport(); }

 private:
  comm::World& inner_;
  const std::string axis_;
  const milliseconds delay_;
};

Diagnosis run(const config::Recipe& r, const data::Batches& data, const std::string& slow_axis = "none",
              milliseconds delay = {}) {
  DoctorOptions options;
  options.steps = 2;
  options.cluster = hardware::parse_cluster("1x" + std::to_string(r.parallel.world()) + " cpu");
  std::optional<Diagnosis> found;
  const int64_t ranks = r.parallel.world();
  comm::run_local_world(static_cast<int>(ranks), [&](comm::World& world) {
    SlowWorld slow(world, slow_axis, delay);
    auto mine =
        diagnose_rank(r, data, slow, {.ranks_here = ranks, .local_rank = world.rank().value}, options);
    EXPECT_EQ(mine.has_value(), world.rank().value == 0);
    if (mine) found = std::move(mine);
  });
  double sum = 0;
  for (const DoctorRow& row : found->rows) {
    EXPECT_GE(row.measured, 0) << row.what;
    sum += row.measured;
  }
  EXPECT_NEAR(sum, found->step, 1e-6 + 1e-3 * found->step) << to_text(*found);
  EXPECT_EQ(found->planned_bytes, found->measured_bytes);
  EXPECT_EQ(found->planned_bytes, found->plan.memory.ranks[found->plan.memory.most_loaded].arena_bytes);
  return *found;
}

// A delay that is the bottleneck regardless of other load on this machine.
milliseconds longer_than_a_step(const config::Recipe& r, milliseconds least) {
  const double step = run(r, batches(r)).step;
  return std::max(least, milliseconds(static_cast<int64_t>(3e3 * step)));
}

TEST(Doctor, NamesASlowDataSource) {
  const config::Recipe r = recipe({"parallel.dp_shard=2", "parallel.zero=3"});
  const milliseconds delay = longer_than_a_step(r, milliseconds(100));
  const Diagnosis d = run(r, batches(r, delay));
  EXPECT_EQ(d.bottleneck(), Part::Input) << to_text(d);
  EXPECT_GE(d.measured_of(Part::Input), 2e-3 * static_cast<double>(delay.count()));  // two micro-batches
  EXPECT_EQ(d.sentence().find("input: reading batches takes"), 0u) << d.sentence();
}

TEST(Doctor, NamesASlowAxis) {
  const config::Recipe r = recipe({"parallel.dp_replicate=2", "parallel.tp=2"});
  const Diagnosis d = run(r, batches(r), "tp", longer_than_a_step(r, milliseconds(20)));
  EXPECT_EQ(d.bottleneck(), Part::Network) << to_text(d);
  EXPECT_NE(d.sentence().find("for tp, planned"), std::string::npos) << d.sentence();
  EXPECT_NE(d.sentence().find(d.oversubscribed() ? "share" : "undersized"), std::string::npos)
      << d.sentence();
  Diagnosis roomy = d;
  roomy.cores = 64;
  EXPECT_NE(roomy.sentence().find("the fabric delivers "), std::string::npos) << roomy.sentence();
  EXPECT_NE(roomy.sentence().find("undersized for this layout"), std::string::npos) << roomy.sentence();
  double others = 0, tp = 0;
  for (const DoctorRow& row : d.rows)
    (row.what == "wait tp" ? tp : others) += row.part == Part::Network ? row.measured : 0;
  EXPECT_GT(tp, 0.1) << to_text(d);
  EXPECT_LT(others, tp);
}

TEST(Doctor, NamesKernels) {
  const config::Recipe r = recipe({"model.embed=192", "model.ffn=768", "model.layers=4", "data.seq_len=128"});
  const Diagnosis d = run(r, batches(r));
  EXPECT_EQ(d.bottleneck(), Part::Compute) << to_text(d);
  EXPECT_EQ(d.sentence().find("compute: kernels take"), 0u) << d.sentence();
  EXPECT_EQ(d.measured_of(Part::Network), 0);
  EXPECT_EQ(d.largest_excess().find("compute"), std::string::npos);
}

TEST(Doctor, SaysItTwice) {
  const config::Recipe r = recipe({"parallel.pp=2", "parallel.dp_shard=2"});
  const Diagnosis d = run(r, batches(r));
  const std::string text = to_text(d);
  for (const char* part : {"measured", "planned", "difference", "memory", "bottleneck: ", "tokens/s"})
    EXPECT_NE(text.find(part), std::string::npos) << text;
  const auto json = nlohmann::json::parse(to_json(d));
  EXPECT_EQ(json["world"], 4);
  EXPECT_EQ(json["bottleneck"], to_string(d.bottleneck()));
  EXPECT_EQ(json["shares"].size(), d.rows.size());
}

}  // namespace
}  // namespace quintet::tools
