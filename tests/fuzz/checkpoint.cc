// A whole checkpoint: a manifest, a line "====", and the bytes of its shards. What the manifest says of the
// files' sizes and headers is made right, or nothing after it would be tested; then everything is read. The
// shard's own header is read as a commit reads it, too.
#include <algorithm>
#include <vector>

#include "base/checksum.h"
#include "checkpoint/reader.h"
#include "checkpoint/shard.h"
#include "fuzz/scratch_folder.h"
#include "fuzz/target.h"

namespace {

using namespace quintet;

constexpr size_t kMostFiles = 4;
constexpr int64_t kMostElements = int64_t{1} << 20;  // of a tensor that is read: memory is not what is tested

void read_all(const std::string& folder, std::string_view bytes, checkpoint::Manifest m) {
  fuzz::require(m.files.size() <= kMostFiles, "files");
  for (checkpoint::ShardFile& file : m.files) {
    file.bytes = static_cast<int64_t>(bytes.size());
    file.header_bytes = std::min(file.header_bytes, file.bytes);
    file.header_sum =
        base::checksum_of(std::as_bytes(std::span(bytes)).first(static_cast<size_t>(file.header_bytes)));
  }
  base::write_file_atomically(base::Path(folder) / checkpoint::kManifestFile, checkpoint::to_text(m));
  checkpoint::Reader reader(folder);
  reader.verify_headers();
  for (const checkpoint::SavedTensor& tensor : reader.manifest().tensors) {
    if (tensor.info.count() > kMostElements) continue;
    std::vector<std::byte> out(static_cast<size_t>(tensor.info.bytes()));
    try {
      reader.read(tensor, 0, out);
    } catch (const base::UserError&) {  // most have other checksums
    }
  }
  reader.verify();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const fuzz::ScratchFolder folder;
  constexpr std::string_view kLine = "\n====\n";
  const std::string_view input = fuzz::text_of(data, size);
  const size_t line = input.find(kLine);
  std::string text(input.substr(0, line));
  const std::string_view bytes =
      line == std::string_view::npos ? std::string_view() : input.substr(line + kLine.size());
  if (const size_t at = text.rfind(",\n  \"checksum\": \""); at != std::string::npos)
    text = text.substr(0, at) + ",\n  \"checksum\": \"" +
           checkpoint::sum_text(base::checksum_of(std::as_bytes(std::span(text).first(at)))) + "\"\n}\n";
  return fuzz::run([&] {
    const std::string shard = folder.write("rank-00000.safetensors", bytes);
    try {
      checkpoint::ManifestBuilder own(0, checkpoint::Json::object());
      own.add(checkpoint::read_shard(shard, std::nullopt));
      own.finish();
    } catch (const base::UserError&) {  // the manifest may be good all the same
    }
    checkpoint::Manifest m = checkpoint::parse_manifest(text, "input");
    if (m.files.empty() || m.files.size() > kMostFiles) return;
    for (const checkpoint::ShardFile& file : m.files) folder.write(file.name, bytes);
    read_all(base::Path(shard).parent_path().string(), bytes, std::move(m));
  });
}
