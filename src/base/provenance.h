// Where a result comes from: what a report says so that another person can repeat it.
#pragma once

#include <string>

namespace quintet::base {

struct Provenance {
  std::string version;  // of the tool: "0.9.0-dev"
  std::string commit;   // of its sources, "3f2a...", "-changed.<hash of the diff>" after it; empty: not known
  std::string build;    // "Release, GNU 12.2.0"
  std::string kernels;  // the instruction set of the CPU kernels on this processor
  std::string command;  // as a shell would take it
  std::string folder;   // in which the command was given
  std::string host;     // its name
  std::string machine;  // "Intel Xeon ..., 2 cores, 7.8 GiB"
};

// The date and time in UTC, "2026-11-16 17:25:03".
std::string utc_text();

// This process' arguments, quoted where a shell needs it; empty when the system does not report them.
std::string command_line();

std::string host_name();

}  // namespace quintet::base
