// Asking a run to end. The first SIGINT, SIGTERM or SIGUSR1 asks; a second one ends the process at once.
#pragma once

namespace quintet::cli {

void install_signal_handlers();

// The signal that asked; 0 when none has.
int asked_to_stop();

}  // namespace quintet::cli
