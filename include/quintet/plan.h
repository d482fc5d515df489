// What a recipe needs and how fast it would be on a cluster, before anything runs: plan::make_plan() compiles
// the programs, reads their memory off to the byte and simulates their time.
#pragma once

#include "base/error.h"
#include "hardware/cluster.h"
#include "plan/plan.h"
