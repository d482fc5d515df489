// Records of raw files: the first byte chooses text, JSON lines, arrays or objects, gzip, zstd or Parquet
// (which a build without Arrow refuses); the rest is the file. Reading on from any position must give the
// records that followed.
#include <iterator>

#include "fuzz/scratch_folder.h"
#include "fuzz/target.h"
#include "text/record_reader.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace quintet;
  if (size < 1) return 0;
  static const fuzz::ScratchFolder folder;
  constexpr const char* kNames[] = {"a.txt",     "a.jsonl",   "a.jsonl.gz", "a.jsonl.zst", "a.txt.gz",
                                    "a.txt.zst", "a.parquet", "a.json",     "a.json.gz"};
  const std::string path =
      folder.write(kNames[data[0] % std::size(kNames)], std::string(fuzz::text_of(data + 1, size - 1)));
  return fuzz::run([&] {
    text::RecordReader reader({path}, {});
    std::vector<text::Position> before;
    std::vector<std::string> bytes;
    size_t damaged = 0;
    for (text::Record record; before.push_back(reader.position()), reader.next(record);) {
      bytes.push_back(record.bytes);
      damaged += !record.damage.empty();
    }
    fuzz::require(damaged <= 1, "a file breaks off once");
    const size_t middle = bytes.size() / 2;
    text::RecordReader again({path}, {}, before[middle]);
    text::Record record;
    const bool any = again.next(record);
    fuzz::require(any == (middle < bytes.size()) && (!any || record.bytes == bytes[middle]),
                  "another record at a position");
    if (damaged > 0) throw base::UserError("damaged");
  });
}
