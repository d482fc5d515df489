// config.json of Hugging Face folders: an accepted one, written again, describes the same model.
#include "config/hf/config.h"
#include "fuzz/target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace quintet;
  return fuzz::run([&] {
    const std::string text(fuzz::text_of(data, size));
    const config::HfConfig c = config::read_hf_config(text);
    if (!c.problems.empty()) throw base::UserError(c.problems[0]);
    const config::HfConfig again =
        config::read_hf_config(config::hf_config_text(c.model, *c.family, text, "float32", 64));
    fuzz::require(again.problems.empty(), "a config that is refused when it is written again");
    fuzz::require(again.model == c.model, "a model that changes when it is written");
  });
}
