// Manifests of checkpoints: an accepted one prints to a text that is accepted again, and all of its regions
// can be walked. The checksum of the text is made right, or nothing but it would be tested.
#include "checkpoint/manifest.h"

#include "base/checksum.h"
#include "fuzz/target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace quintet;
  std::string text(fuzz::text_of(data, size));
  if (const size_t at = text.rfind(",\n  \"checksum\": \""); at != std::string::npos)
    text = text.substr(0, at) + ",\n  \"checksum\": \"" +
           checkpoint::sum_text(base::checksum_of(std::as_bytes(std::span(text).first(at)))) + "\"\n}\n";
  return fuzz::run([&] {
    const checkpoint::Manifest m = checkpoint::parse_manifest(text, "input");
    const std::string again = checkpoint::to_text(m);
    fuzz::require(checkpoint::to_text(checkpoint::parse_manifest(again, "again")) == again,
                  "a manifest that changes when it is printed");
    for (const checkpoint::SavedTensor& tensor : m.tensors) {
      fuzz::require(m.find(tensor.info.name) == &tensor, "a tensor that is not found");
      for (const checkpoint::Piece piece : tensor.pieces) {
        const checkpoint::Runs runs(piece.region);
        const checkpoint::Run last = runs[runs.size() - 1];
        fuzz::require(last.tensor + last.length <= tensor.info.count(), "a run outside of its tensor");
        fuzz::require(last.at + last.length == piece.region.count, "runs of another length");
      }
    }
  });
}
