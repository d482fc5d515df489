// Rows of Parquet files through Arrow C++.
#include <arrow/api.h>
#include <arrow/io/file.h>
#include <parquet/arrow/reader.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "text/byte_stream.h"
#include "text/record_reader.h"

namespace quintet::text {
namespace {

constexpr int64_t kBatchRows = 256;

// The value of a cell; null where JSON has nothing like it.
nlohmann::json cell(const arrow::Array& array, int64_t at) {
  if (array.IsNull(at)) return nullptr;
  const auto integer = [&]<class A>(const A& a) { return nlohmann::json(a.Value(at)); };
  const auto string = [&]<class A>(const A& a) { return nlohmann::json(std::string(a.GetView(at))); };
  const auto list = [&]<class A>(const A& a) {
    nlohmann::json out = nlohmann::json::array();
    for (int64_t i = a.value_offset(at); i < a.value_offset(at) + a.value_length(at); ++i)
      out.push_back(cell(*a.values(), i));
    return out;
  };
  switch (array.type_id()) {
    case arrow::Type::BOOL:
      return static_cast<const arrow::BooleanArray&>(array).Value(at);
    case arrow::Type::INT8:
      return integer(static_cast<const arrow::Int8Array&>(array));
    case arrow::Type::INT16:
      return integer(static_cast<const arrow::Int16Array&>(array));
    case arrow::Type::INT32:
      return integer(static_cast<const arrow::Int32Array&>(array));
    case arrow::Type::INT64:
      return integer(static_cast<const arrow::Int64Array&>(array));
    case arrow::Type::UINT8:
      return integer(static_cast<const arrow::UInt8Array&>(array));
    case arrow::Type::UINT16:
      return integer(static_cast<const arrow::UInt16Array&>(array));
    case arrow::Type::UINT32:
      return integer(static_cast<const arrow::UInt32Array&>(array));
    case arrow::Type::UINT64:
      return integer(static_cast<const arrow::UInt64Array&>(array));
    case arrow::Type::FLOAT:
      return integer(static_cast<const arrow::FloatArray&>(array));
    case arrow::Type::DOUBLE:
      return integer(static_cast<const arrow::DoubleArray&>(array));
    case arrow::Type::STRING:
      return string(static_cast<const arrow::StringArray&>(array));
    case arrow::Type::LARGE_STRING:
      return string(static_cast<const arrow::LargeStringArray&>(array));
    case arrow::Type::BINARY:
      return string(static_cast<const arrow::BinaryArray&>(array));
    case arrow::Type::LARGE_BINARY:
      return string(static_cast<const arrow::LargeBinaryArray&>(array));
    case arrow::Type::LIST:
      return list(static_cast<const arrow::ListArray&>(array));
    case arrow::Type::LARGE_LIST:
      return list(static_cast<const arrow::LargeListArray&>(array));
    case arrow::Type::STRUCT: {
      const auto& row = static_cast<const arrow::StructArray&>(array);
      nlohmann::json out = nlohmann::json::object();
      for (int i = 0; i < row.num_fields(); ++i)
        out[row.struct_type()->field(i)->name()] = cell(*row.field(i), at);
      return out;
    }
    case arrow::Type::DICTIONARY: {
      const auto& coded = static_cast<const arrow::DictionaryArray&>(array);
      return cell(*coded.dictionary(), coded.GetValueIndex(at));
    }
    default:
      return nullptr;
  }
}

class ParquetRows final : public FileRecords {
 public:
  ParquetRows(const base::Path& path, const std::vector<std::string>& columns, int64_t first_row)
      : path_(path), size_(base::size_of_file(path)), row_(first_row) {
    const auto open = [&] {
      parquet::ReaderProperties properties = parquet::default_reader_properties();
      properties.enable_buffered_stream();  // a row group need not fit into memory
      parquet::arrow::FileReaderBuilder builder;
      require(builder.OpenFile(path.string(), false, properties));
      parquet::ArrowReaderProperties how(/*use_threads=*/false);
      how.set_batch_size(kBatchRows);
      how.set_pre_buffer(false);
      builder.properties(how);
      auto built = builder.Build();
      require(built.status());
      reader_ = *std::move(built);
      const auto& metadata = *reader_->parquet_reader()->metadata();
      rows_ = metadata.num_rows();
      std::vector<int> chosen, groups;
      for (int i = 0; i < metadata.schema()->num_columns(); ++i)
        if (columns.empty() || std::ranges::count(columns, metadata.schema()->GetColumnRoot(i)->name()) > 0)
          chosen.push_back(i);
      int64_t before = 0;
      for (int i = 0; i < metadata.num_row_groups(); ++i) {
        const int64_t n = metadata.RowGroup(i)->num_rows();
        if (groups.empty() && before + n <= first_row) {
          before += n;
        } else {
          groups.push_back(i);
        }
      }
      skip_ = first_row - before;
      if (groups.empty()) return;
      if (chosen.empty()) {
        std::string names;
        for (int i = 0; i < metadata.schema()->group_node()->field_count(); ++i)
          names += (i > 0 ? ", " : "") + metadata.schema()->group_node()->field(i)->name();
        std::string wanted;
        for (const std::string& name : columns) wanted += (wanted.empty() ? "" : ", ") + name;
        base::fail_user("'{}' has none of the columns {}; its columns are: {}", path_.string(), wanted,
                        names);
      }
      auto batches = reader_->GetRecordBatchReader(groups, chosen);
      require(batches.status());
      batches_ = *std::move(batches);
    };
    guard(open);
  }

  bool next(Record& record) override {
    while (batches_ && (!batch_ || at_ == batch_->num_rows())) {
      guard([&] { require(batches_->ReadNext(&batch_)); });
      if (!batch_) {
        batches_.reset();
        break;
      }
      at_ = std::min(skip_, batch_->num_rows());
      skip_ -= at_;
    }
    if (!batches_) return false;
    nlohmann::json row = nlohmann::json::object();
    for (int i = 0; i < batch_->num_columns(); ++i)
      row[batch_->column_name(i)] = cell(*batch_->column(i), at_);
    record.bytes = row.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    record.number = ++row_;
    ++at_;
    return true;
  }
  int64_t consumed() const override {
    return rows_ == 0 ? size_
                      : static_cast<int64_t>(static_cast<double>(size_) * static_cast<double>(row_) /
                                             static_cast<double>(rows_));
  }

 private:
  void require(const arrow::Status& status) const {
    if (!status.ok())
      throw DamagedFile(fmt::format("'{}' cannot be read as Parquet: {}", path_.string(), status.ToString()));
  }
  // Arrow's Parquet reader throws in places.
  template <class Action>
  void guard(Action&& action) const {
    try {
      action();
    } catch (const parquet::ParquetException& error) {
      throw DamagedFile(fmt::format("'{}' cannot be read as Parquet: {}", path_.string(), error.what()));
    }
  }

  base::Path path_;
  int64_t size_, rows_ = 0, row_, skip_ = 0, at_ = 0;
  std::unique_ptr<parquet::arrow::FileReader> reader_;
  std::unique_ptr<arrow::RecordBatchReader> batches_;
  std::shared_ptr<arrow::RecordBatch> batch_;
};

}  // namespace

bool reads_parquet() { return true; }

std::unique_ptr<FileRecords> open_parquet(const base::Path& path, const std::vector<std::string>& columns,
                                          int64_t first_row) {
  return std::make_unique<ParquetRows>(path, columns, first_row);
}

}  // namespace quintet::text
