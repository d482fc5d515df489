#include "plan/model_state.h"

#include "layout/state_table.h"

namespace quintet::plan {

using graph::Role;

namespace {

constexpr std::array kOfParameters = {Role::Weight, Role::Master, Role::Moment, Role::Ema, Role::Gradient};

}  // namespace

int64_t ModelState::optimizer_bytes() const {
  return of(Role::Master).bytes + of(Role::Moment).bytes + of(Role::Ema).bytes;
}

int64_t ModelState::parameter_bytes() const {
  int64_t bytes = 0;
  for (const Role role : kOfParameters) bytes += of(role).bytes;
  return bytes;
}

double ModelState::on_rank(int zero, double ranks) const {
  double bytes = 0;
  for (const Role role : kOfParameters)
    bytes += static_cast<double>(of(role).bytes) / (layout::is_divided(role, zero) ? ranks : 1);
  return bytes;
}

double ModelState::bytes_per_trained_parameter() const {
  const auto per = [](int64_t bytes, int64_t elements) {
    return elements > 0 ? static_cast<double>(bytes) / static_cast<double>(elements) : 0;
  };
  // Frozen parameters have a weight, too.
  return per(of(Role::Weight).bytes, of(Role::Weight).elements) +
         per(of(Role::Gradient).bytes + optimizer_bytes(), of(Role::Gradient).elements);
}

ModelState state_of(const std::vector<graph::StateDecl>& states) {
  ModelState sum;
  for (const graph::StateDecl& s : states) {
    ModelState::Sum& of = sum.of_role[static_cast<size_t>(s.role)];
    of.bytes += graph::stored_bytes(s);
    of.elements += s.type.count();
  }
  return sum;
}

}  // namespace quintet::plan
