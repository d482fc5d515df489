// The state of a run in a manifest of a checkpoint: what is accepted prints to a text that is accepted again,
// and its averages can be computed.
#include "train/run_state.h"

#include <cmath>

#include "base/json.h"
#include "fuzz/target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace quintet;
  return fuzz::run([&] {
    const train::RunState state =
        train::parse_run_state(base::parse_ordered_json(fuzz::text_of(data, size)), "input");
    const checkpoint::Json json = to_json(state);
    fuzz::require(to_json(train::parse_run_state(json, "again")) == json, "a state that changes");
    train::NoiseScale noise;
    noise.restore(state.noise);
    fuzz::require(noise.estimates() == 0 || !std::isnan(noise.variance()), "an average of nothing");
  });
}
