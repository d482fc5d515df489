#include "exec/cuda/timer.h"

#include "base/clock.h"
#include "exec/trace_event.h"

namespace quintet::exec::cuda {

CudaExecutor::Timer::Timer(const program::Program& program, const program::Expanded& expanded,
                           const device::cuda::Stream& stream)
    : program_(program), expanded_(expanded), origin_(true) {
  timed_.reserve(expanded.issues.size());
  for (size_t i = 0; i < expanded.issues.size(); ++i)
    if (instr_of(program, expanded.issues[i]).kind != program::InstrKind::Free)
      timed_.push_back({i, device::cuda::Event(true), device::cuda::Event(true)});
  stream.record(origin_);
  origin_.synchronize();
  origin_ns_ = base::now_ns();
}

void CudaExecutor::Timer::begin(size_t issue, const device::cuda::Stream& stream) {
  if (next_ == timed_.size()) timed_.push_back({issue, device::cuda::Event(true), device::cuda::Event(true)});
  timed_[next_].issue = issue;
  stream.record(timed_[next_].begin);
}

void CudaExecutor::Timer::end(const device::cuda::Stream& stream) { stream.record(timed_[next_++].end); }

void CudaExecutor::Timer::write(observe::RankTrace& trace, int64_t step) const {
  for (size_t i = 0; i < next_; ++i) {
    const Timed& t = timed_[i];
    const program::Issue& issue = expanded_.issues[t.issue];
    add_event(trace, instr_of(program_, issue), expanded_.calls[static_cast<size_t>(issue.call)], step,
              origin_ns_ + t.begin.since_ns(origin_), t.end.since_ns(t.begin));
  }
}

}  // namespace quintet::exec::cuda
