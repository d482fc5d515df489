// `quintet data show`: the first documents of a data set, with the tokens that are trained.
#pragma once

#include "cli/verbs.h"

namespace quintet::cli {

Verb add_data_show(CLI::App& data);

}  // namespace quintet::cli
