// Models of one's own: a function from graph::BuildOptions to graph::Graph that calls graph::Builder, with
// named dims and no word about ranks. compiler::custom_model() turns it into the [model] section of a recipe.
#pragma once

#include "base/dim.h"
#include "base/error.h"
#include "compiler/custom_model.h"
#include "graph/builder.h"
