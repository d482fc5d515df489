// What reports say about this process.
#pragma once

#include "base/provenance.h"

namespace quintet::cli {

base::Provenance provenance();

}  // namespace quintet::cli
