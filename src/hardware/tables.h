// Reads one table of a catalogue or cluster file into a value; keys that are absent keep the value's fields.
#pragma once

#include "hardware/catalogue.h"
#include "hardware/toml_reader.h"

namespace quintet::hardware {

// `quoted` may be null, since cluster files have no such keys. The caller finishes the reader.
void read_accelerator(TomlReader& reader, Accelerator& accelerator, Quoted* quoted);
// The `efficiency` table of an accelerator; fractions of a peak must be in (0, 1].
void read_efficiency(TomlReader& reader, Efficiency& efficiency);
// Refuses a stack that would exceed the bandwidth of the links.
void read_stack(TomlReader& reader, Stack& stack);
void read_link(TomlReader& reader, Link& link, Quoted* quoted);

}  // namespace quintet::hardware
