// The words in attributes of instructions, for rooms that know programs and not graphs.
#pragma once

#include "graph/words.h"
