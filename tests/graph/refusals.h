// Inferred types as text, and uses that an op must refuse: a good use of it with one defect.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "graph/support.h"

namespace quintet::graph::testing {

std::string text(const std::vector<Type>& types);  // separated by ", "
std::string inferred(const OpDef& op);             // result types of the op's first case

using Spoil = std::function<void(OpCase&)>;
struct Refusal {
  const OpDef* op;
  const char* what;
  Spoil spoil;
};

Spoil resize(size_t operand, size_t dim, int64_t size);
Spoil rename(size_t operand, size_t dim, Dim name);
Spoil retype(size_t operand, DType dtype);
Spoil attr(const char* name, AttrValue value);

// Every refusal is a UserError that begins with the op's name, and every op of `cases` has one.
void expect_refusals(const std::vector<Refusal>& refusals, const std::vector<OpCase>& cases);

}  // namespace quintet::graph::testing
