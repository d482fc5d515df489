#include "graph/refusals.h"

#include <gtest/gtest.h>

#include <set>

#include "base/error.h"

namespace quintet::graph::testing {

std::string text(const std::vector<Type>& types) {
  std::string all;
  for (const Type& t : types) all += (all.empty() ? "" : ", ") + to_string(t);
  return all;
}

std::string inferred(const OpDef& op) { return text(op_case(op).out()); }

Spoil resize(size_t operand, size_t dim, int64_t size) {
  return [=](OpCase& c) { c.in[operand].dims[dim].size = size; };
}
Spoil rename(size_t operand, size_t dim, Dim name) {
  return [=](OpCase& c) { c.in[operand].dims[dim].name = name; };
}
Spoil retype(size_t operand, DType dtype) {
  return [=](OpCase& c) { c.in[operand].dtype = dtype; };
}
Spoil attr(const char* name, AttrValue value) {
  return [=](OpCase& c) { c.attrs.set(name, value); };
}

void expect_refusals(const std::vector<Refusal>& refusals, const std::vector<OpCase>& cases) {
  std::set<const OpDef*> tested;
  for (const Refusal& r : refusals) {
    SCOPED_TRACE(std::string(r.op->name) + ": " + r.what);
    tested.insert(r.op);
    OpCase c = op_case(*r.op);
    EXPECT_NO_THROW(c.out());
    r.spoil(c);
    try {
      c.out();
      ADD_FAILURE() << "was accepted";
    } catch (const base::UserError& e) {
      EXPECT_TRUE(std::string(e.what()).starts_with("[" + std::string(r.op->name) + "]")) << e.what();
    }
  }
  for (const OpCase& c : cases) EXPECT_TRUE(tested.contains(c.op)) << c.op->name;
}

}  // namespace quintet::graph::testing
