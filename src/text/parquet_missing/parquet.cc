#include "base/error.h"
#include "text/record_reader.h"

namespace quintet::text {

bool reads_parquet() { return false; }

std::unique_ptr<FileRecords> open_parquet(const base::Path& path, const std::vector<std::string>&, int64_t) {
  base::fail_user(
      "'{}' is a Parquet file, and this build has no Arrow, which reads them: run 'tools/setup.sh "
      "--parquet' and build again",
      path.string());
}

}  // namespace quintet::text
