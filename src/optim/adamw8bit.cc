// AdamW with moments of 8 bits (Dettmers et al., 2022): codes with one scale for every block of consecutive
// elements, in the order of the whole parameter. Which parameters have them depends on the model alone.
#include "optim/step_builder.h"

namespace quintet::optim {
namespace {

// Smaller parameters keep full moments: 4096 elements with the default block, as in bitsandbytes.
constexpr int64_t kMinBlocks = 16;

}  // namespace

void adamw8bit(StepBuilder& b, Trained& t) {
  const config::Optimizer& o = b.optimizer();
  if (t.type.count() < kMinBlocks * o.block_size) return adamw(b, t);
  const ValueId m = b.codes(t, "adamw8bit.m", false), v = b.codes(t, "adamw8bit.v", true);
  const ValueId m_scale = b.scales(t, "adamw8bit.m.scale"), v_scale = b.scales(t, "adamw8bit.v.scale");
  b.update(graph::kAdamW8bit,
           {{"beta1", o.betas[0]}, {"beta2", o.betas[1]}, {"eps", o.eps}, {"block", o.block_size}}, t,
           {m, v, m_scale, v_scale});
}

}  // namespace quintet::optim
