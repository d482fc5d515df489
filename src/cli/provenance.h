// What reports say about this process.
#pragma once

#include "base/provenance.h"

namespace quintet::cli {

base::Provenance provenance();

// The commit of the sources of this build (base::Provenance::commit), which cmake/commit.cmake writes.
const char* commit();

}  // namespace quintet::cli
