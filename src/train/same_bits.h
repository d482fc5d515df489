// Whether a run that continues can repeat the bits of one that was never stopped.
#pragma once

#include <string>

#include "train/run_state.h"

namespace quintet::train {

// A line that says why the numbers of a continued run may differ in their last bits: the layout, the step
// program, the kernels, the processor or the build is another one than that of the checkpoint, or the device
// gives other bits in every run. `now` is the state of the run that continues, as its checkpoints would have
// it. Empty: nothing speaks against equal bits. What --allow let differ is reported elsewhere.
std::string other_bits_line(const RunState& saved, const RunState& now);

}  // namespace quintet::train
