// Pickles: all values of an accepted one can be visited.
#include "hf/pickle.h"

#include "fuzz/target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace quintet;
  return fuzz::run([&] {
    const hf::Pickle p(fuzz::text_of(data, size), "input");
    const hf::Pickle::Value& root = p[p.root()];
    for (const auto id : root.items) (void)p[id].kind;
    for (const auto& [key, value] : root.pairs)
      if (p[key].kind == hf::Pickle::Kind::Text)
        fuzz::require(p.get(p.root(), p[key].text) != nullptr || value == 0, "a key that is not found");
    (void)p.is_object(p.root(), "torch._utils._rebuild_tensor_v2");
  });
}
