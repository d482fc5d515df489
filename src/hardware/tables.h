// One table of a catalogue or cluster file as a value, over what the value already holds.
#pragma once

#include "hardware/catalogue.h"
#include "hardware/toml_reader.h"

namespace quintet::hardware {

// `quoted` may be null: cluster files have no such keys. The reader is finished by the caller.
void read_accelerator(TomlReader& reader, Accelerator& accelerator, Quoted* quoted);
// Of an accelerator's table `efficiency`: shares of a peak lie above 0 and at most at 1.
void read_efficiency(TomlReader& reader, Efficiency& efficiency);
// A stack that would move bytes faster than the wire is refused.
void read_stack(TomlReader& reader, Stack& stack);
void read_link(TomlReader& reader, Link& link, Quoted* quoted);

}  // namespace quintet::hardware
