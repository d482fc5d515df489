// Training: train::run() takes a recipe through its steps on all its ranks, as threads of this process or as
// the processes of an MPI job.
#pragma once

#include "base/error.h"
#include "data/corpus.h"
#include "train/loop.h"
