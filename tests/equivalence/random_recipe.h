// The generator of random recipes behind random_case(): mostly, but not always, legal ones.
#pragma once

#include <random>

#include "equivalence/random_layout.h"

namespace quintet::tests {

Case draw_case(std::mt19937_64& random);

}  // namespace quintet::tests
