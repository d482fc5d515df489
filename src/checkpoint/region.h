// Parts of tensors, under the names that this room uses.
#pragma once

#include "base/region.h"

namespace quintet::checkpoint {

using base::checked_product;
using base::clip;
using base::Clipped;
using base::for_each_common_run;
using base::is_valid;
using base::Region;
using base::Run;
using base::Runs;

}  // namespace quintet::checkpoint
