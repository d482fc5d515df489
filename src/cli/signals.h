// Signal handling of a run. The first SIGINT, SIGTERM, SIGUSR1 or SIGHUP requests a stop, and standard error
// says where and when that will be; one that comes more than half a second later ends the process
// immediately, unless it is a SIGHUP. A SIGHUP that is ignored (nohup) stays so.
#pragma once

#include <cstdint>

namespace quintet::cli {

void install_signal_handlers();

// The signal that requested a stop; 0 when there was none.
int asked_to_stop();

// Micro-batches of a step between which a long step is abandoned; 0: a step is always finished.
void set_abandonable(int64_t micro_batches);

// What the time that a stop takes is estimated from: called when a step begins (0, 0), when a pass over one
// of its micro-batches does, with the number of those before it and of all, and when the step has ended.
void note_progress(int done, int all);
void note_step_end();
// What saving the last checkpoint takes, after the stop; `begins`: the run has ended, and it begins.
void note_last_save(double seconds, bool begins);

}  // namespace quintet::cli
