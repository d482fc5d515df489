// One table of a catalogue or cluster file as a value, over what the value already holds.
#pragma once

#include "hardware/catalogue.h"
#include "hardware/toml_reader.h"

namespace quintet::hardware {

// `quoted` may be null: cluster files have no such keys. The reader is finished by the caller.
void read_accelerator(TomlReader& reader, Accelerator& accelerator, Quoted* quoted);
void read_link(TomlReader& reader, Link& link, Quoted* quoted);

}  // namespace quintet::hardware
