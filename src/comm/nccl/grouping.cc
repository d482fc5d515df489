#include "comm/nccl/grouping.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "comm/nccl/failure.h"

namespace quintet::comm {
namespace nccl {
namespace {

thread_local std::optional<std::vector<Request>> group;

bool failed(ncclResult_t result) { return result != ncclSuccess && result != ncclInProgress; }

}  // namespace

std::vector<Request>* open_group() { return group ? &*group : nullptr; }

void issue(std::span<const Request> requests) {
  std::vector<NcclCommunicator::Entered> entered;
  entered.reserve(requests.size());
  for (const Request& r : requests) entered.push_back(r.communicator->enter(r.call));

  size_t launches = 0;
  std::vector<size_t> first_of;  // the first request of each communicator that launches
  for (size_t i = 0; i < requests.size(); ++i) {
    const Request& r = requests[i];
    size_t own = 0;
    for (const Operation& o : r.operations)
      if (o.kind == Operation::Kind::Copy)
        enqueue_copy(o, r.stream);
      else
        ++own;
    launches += own;
    const auto same = [&](size_t j) { return requests[j].communicator == r.communicator; };
    if (own > 0 && std::none_of(first_of.begin(), first_of.end(), same)) first_of.push_back(i);
  }

  ncclResult_t result = ncclSuccess;
  size_t culprit = 0;
  const auto note = [&](ncclResult_t r, size_t i) {
    if (failed(r) && !failed(result)) {
      result = r;
      culprit = i;
    }
  };
  if (launches > 0) {
    if (launches > 1) note(ncclGroupStart(), first_of.front());
    for (size_t i = 0; i < requests.size() && !failed(result); ++i)
      for (const Operation& o : requests[i].operations)
        if (o.kind != Operation::Kind::Copy && !failed(result))
          note(enqueue(o, requests[i].communicator->handle_->get(), requests[i].stream), i);
    if (launches > 1) note(ncclGroupEnd(), first_of.front());
  }
  if (failed(result)) requests[culprit].communicator->fail(describe(entered[culprit].call), result);
  for (const size_t i : first_of) requests[i].communicator->settle(entered[i].call);
  for (size_t i = 0; i < requests.size(); ++i)
    requests[i].communicator->track(entered[i], requests[i].stream);
}

}  // namespace nccl

GroupedCalls::GroupedCalls() {
  QUINTET_CHECK(!nccl::group, "nested GroupedCalls");
  nccl::group.emplace();
}

GroupedCalls::~GroupedCalls() {
  if (open_) nccl::group.reset();
}

void GroupedCalls::end() {
  QUINTET_CHECK(open_, "this GroupedCalls has already ended");
  const std::vector<nccl::Request> requests = std::move(*nccl::group);
  nccl::group.reset();
  open_ = false;
  nccl::issue(requests);
}

}  // namespace quintet::comm
