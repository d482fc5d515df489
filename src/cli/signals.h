// Signal handling of a run. The first SIGINT, SIGTERM, SIGUSR1 or SIGHUP requests a stop, and standard error
// says when that will be; a second one ends the process immediately, unless it is a SIGHUP. A SIGHUP that is
// ignored (nohup) stays so.
#pragma once

namespace quintet::cli {

void install_signal_handlers();

// The signal that requested a stop; 0 when there was none.
int asked_to_stop();

// Called after every step, to estimate how long the one in progress takes.
void note_step_end();

}  // namespace quintet::cli
