// Records of raw input files, in order: a text file is one record, a line of a .jsonl (or .ndjson) file is
// one, a row of a .parquet file is one. A .json file is what its contents are: JSON lines, an array whose
// objects are records, or a text (json_file.h). All but Parquet may be compressed (.gz, .zst). What a
// record's text is, follows from a DocumentFormat (text/document.h): reading is sequential, that part can
// run on many threads.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/file.h"

namespace quintet::text {

enum class FileKind { Text, Lines, Objects, Parquet };
// By name, of a .json file also by contents. JSON lines are records always. An array, or a single object, is
// text where its first object has none of `columns`: source trees have such files. Empty columns: any.
FileKind kind_of(const base::Path& path, const std::vector<std::string>& columns);
bool is_json(const base::Path& path);  // .json, also compressed
// A named .json file that would be text although it is an array of objects is a UserError that lists their
// fields.
void require_fields(const base::Path& path, const std::vector<std::string>& columns);

// A longer document is damaged input: one record is held in memory.
inline constexpr int64_t kLongestRecord = int64_t{1} << 30;

struct Record {
  FileKind kind = FileKind::Text;
  std::string bytes;   // the text, or a JSON object
  int64_t file = 0;    // index in the list of files
  int64_t number = 0;  // 1-based line, object or row
  std::string damage;  // why the record cannot be read; then the rest of the file cannot either
};

// Where the next record begins. Opening a reader there gives the records that would have followed.
struct Position {
  int64_t file = 0;
  int64_t record = 0;  // lines, objects or rows before it
  int64_t offset = 0;  // bytes of decompressed contents before it; 0 in Parquet files
  friend bool operator==(const Position&, const Position&) = default;
};

// A file whose end was reached. `checksum` is XXH3 of its bytes, where all of them passed through the reader.
struct FinishedFile {
  int64_t file = 0;
  std::optional<uint64_t> checksum;
};

// The records of one file. Implementations are in record_reader.cc and parquet/.
class FileRecords {
 public:
  virtual ~FileRecords() = default;
  virtual bool next(Record& record) = 0;        // false at the end; sets bytes and number
  virtual int64_t offset() const { return 0; }  // see Position
  virtual int64_t consumed() const = 0;         // bytes of the file, approximately
  virtual std::optional<uint64_t> checksum() const { return std::nullopt; }
};

// A row of a Parquet file is the JSON object of those of its columns that `columns` names (all, when it is
// empty); a column that the file does not have is missing from the object. UserError, with the command that
// installs it, in a build without Arrow.
std::unique_ptr<FileRecords> open_parquet(const base::Path& path, const std::vector<std::string>& columns,
                                          int64_t first_row);
bool reads_parquet();

class RecordReader {
 public:
  RecordReader(std::vector<base::Path> files, std::vector<std::string> columns, Position start = {});
  bool next(Record& record);
  const Position& position() const { return position_; }
  const std::vector<base::Path>& files() const { return files_; }
  // Bytes of the files before the position, compressed as they are.
  int64_t consumed() const;
  // Files that ended since the last call.
  std::vector<FinishedFile> take_finished() { return std::exchange(finished_, {}); }

 private:
  void open_current();
  std::vector<base::Path> files_;
  std::vector<std::string> columns_;
  Position position_;
  int64_t consumed_ = 0;            // of files before the current one
  FileKind kind_ = FileKind::Text;  // of the current file
  std::unique_ptr<FileRecords> current_;
  std::vector<FinishedFile> finished_;
};

}  // namespace quintet::text
