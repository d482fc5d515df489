// What a program may hook into a run (train::RunOptions): on_step sees every finished step, interrupted ends
// a run cleanly, console takes the lines that the quintet tool prints.
#pragma once

#include "observe/console.h"
#include "train/loop.h"
