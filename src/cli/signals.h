// Signal handling of a run. The first SIGINT, SIGTERM or SIGUSR1 requests a stop; a second one ends the
// process immediately.
#pragma once

namespace quintet::cli {

void install_signal_handlers();

// The signal that requested a stop; 0 when there was none.
int asked_to_stop();

}  // namespace quintet::cli
