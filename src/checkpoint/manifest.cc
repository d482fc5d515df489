#include "checkpoint/manifest.h"

#include <algorithm>
#include <charconv>
#include <set>

#include "base/checksum.h"
#include "base/error.h"
#include "base/json.h"

namespace quintet::checkpoint {
namespace {

constexpr const char* kFormat = "quintet checkpoint";
constexpr int64_t kVersion = 1;
// The last field is appended to the text, of which it is the checksum.
constexpr std::string_view kSumKey = ",\n  \"checksum\": \"";
constexpr int64_t kMaxBytes = int64_t{1} << 60;  // of a file
// The parser copies values, and messages print them: both call themselves once per level.
constexpr int kMostLevels = 64;

// Reads values of the expected type; anything else is a UserError that names the place.
class Fields {
 public:
  Fields(const Json& json, const std::string& source, std::string_view where)
      : json_(json), source_(source), where_(where) {
    if (!json.is_object()) fail("must be an object");
  }

  const Json& at(const char* key) const {
    const auto found = json_.find(key);
    if (found == json_.end()) fail(fmt::format("lacks \"{}\"", key));
    return *found;
  }
  int64_t integer(const char* key, int64_t min, int64_t max) const {
    const Json& v = at(key);
    // Unsigned numbers above 2^63 would wrap.
    const bool fits = v.is_number_unsigned() ? v.get<uint64_t>() <= static_cast<uint64_t>(INT64_MAX)
                                             : v.is_number_integer();
    if (!fits || v.get<int64_t>() < min || v.get<int64_t>() > max)
      fail(fmt::format("\"{}\" must be an integer from {} to {}, got {}", key, min, max, shown(v)));
    return v.get<int64_t>();
  }
  std::string text(const char* key) const {
    const Json& v = at(key);
    if (!v.is_string()) fail(fmt::format("\"{}\" must be a string, got {}", key, shown(v)));
    return v.get<std::string>();
  }
  const Json& array(const char* key) const {
    const Json& v = at(key);
    if (!v.is_array()) fail(fmt::format("\"{}\" must be a list, got {}", key, shown(v)));
    return v;
  }
  // A list of objects that were taken out of it one by one.
  void require_taken(const char* key) const {
    const Json& list = array(key);
    if (!list.empty()) fail(fmt::format("\"{}\" must be a list of objects, got {}", key, shown(list[0])));
  }
  uint64_t sum(const char* key) const {
    const std::optional<uint64_t> sum = parse_sum(text(key));
    if (!sum) fail(fmt::format("\"{}\" must be 16 hexadecimal digits, got {}", key, shown(at(key))));
    return *sum;
  }
  [[noreturn]] void fail(const std::string& why) const { base::fail_user("{}: {} {}", source_, where_, why); }

 private:
  static std::string shown(const Json& v) {
    std::string text = base::json_text(v);
    if (text.size() > 60) text = text.substr(0, 60) + "...";
    return text;
  }
  const Json& json_;
  const std::string& source_;
  const std::string_view where_;
};

ShardFile read_file_entry(const Fields& f) {
  ShardFile file{.name = f.text("name")};
  if (!is_plain_name(file.name)) f.fail("has a name that is not a plain file name");
  file.bytes = f.integer("bytes", 0, kMaxBytes);
  file.header_bytes = f.integer("header_bytes", 8, file.bytes);
  file.header_sum = f.sum("header_sum");
  return file;
}

TensorInfo read_info(const Fields& f) {
  TensorInfo info{.name = f.text("name"), .shape = {}};
  const auto dtype = parse_safetensors_dtype(f.text("dtype"));
  if (!dtype) f.fail(fmt::format("has unknown dtype \"{}\"", f.text("dtype")));
  info.dtype = *dtype;
  for (const Json& d : f.array("shape")) {
    if (!d.is_number_integer() || d.is_number_float()) f.fail("has a shape that is not a list of integers");
    info.shape.push_back(d.is_number_unsigned() && d.get<uint64_t>() > INT64_MAX ? -1 : d.get<int64_t>());
  }
  const int64_t count = checked_product(info.shape);
  if (count < 0 || count > kMaxBytes / base::size_of(*dtype)) f.fail("has an impossible shape");
  return info;
}

// Files, tensors and pieces are taken out of the text one by one, so that no tree of all of it exists.
// What one of them depends on comes before it in the text.
class Parser {
 public:
  explicit Parser(const std::string& source) : source_(source) {}

  Manifest parse(std::string_view text) {
    const auto take = [this](int depth, Json::parse_event_t event, Json& value) {
      return on_event(depth, event, value);
    };
    if (base::nests_too_deep(text)) base::fail_user("{} is {}", source_, base::json_fault(text));
    Json root = Json::parse(text, take, false);
    if (root.is_discarded()) base::fail_user("{} is not valid JSON", source_);
    if (!root.is_object()) Fields(root, source_, kManifest);  // throws
    const Fields f(root, source_, kManifest);
    if (!has_header_) read_header(f);
    f.require_taken("files");
    f.require_taken("tensors");
    if (!f.at("run").is_object()) f.fail("\"run\" must be an object");
    m_.run = std::move(root["run"]);
    return std::move(m_);
  }

 private:
  static constexpr std::string_view kManifest = "the manifest";
  using Event = Json::parse_event_t;

  // Whether to keep the value in the tree. The depth of a value is the number of values that it is in: a
  // tensor's is 2, its fields' 3.
  bool on_event(int depth, Event event, Json& value) {
    if ((event == Event::array_start || event == Event::object_start) && depth >= kMostLevels)
      base::fail_user("{} nests deeper than {} levels", source_, kMostLevels);
    const bool ends = event == Event::value || event == Event::array_end || event == Event::object_end;
    if (event == Event::key && depth == 1) on_key(value.get<std::string>());
    if (event == Event::key && depth == 3 && key_ == "tensors") on_tensor_key(value.get<std::string>());
    if (ends && depth == 1 && key_ != "files" && key_ != "tensors" && key_ != "run") header_[key_] = value;
    if (ends && depth == 3 && key_ == "tensors" && tensor_key_ != "pieces") tensor_[tensor_key_] = value;
    if (event != Event::object_end) return true;
    if (depth == 2 && key_ == "files")
      m_.files.push_back(read_file_entry(Fields(value, source_, fmt::format("file {}", m_.files.size()))));
    else if (depth == 2 && key_ == "tensors")
      end_tensor(value);
    else if (depth == 4 && key_ == "tensors" && tensor_key_ == "pieces")
      add_piece(Fields(value, source_, piece_text_));
    else
      return true;
    return false;
  }

  void on_key(std::string key) {
    key_ = std::move(key);
    if (key_ != "files" && key_ != "tensors") return;
    const Fields f(header_, source_, kManifest);
    if (!has_header_) read_header(f);
    if (!lists_.insert(key_).second) f.fail(fmt::format("has \"{}\" twice", key_));
    if (key_ == "files" && lists_.contains("tensors")) f.fail("lists \"files\" after \"tensors\"");
  }

  void read_header(const Fields& f) {
    has_header_ = true;
    if (f.text("format") != kFormat)
      f.fail(fmt::format("has format \"{}\", expected \"{}\"", f.text("format"), kFormat));
    if (const int64_t version = f.integer("version", 0, INT64_MAX); version != kVersion)
      f.fail(fmt::format("has version {}; this build reads version {}", version, kVersion));
    m_.step = f.integer("step", 0, int64_t{1} << 53);
    m_.chunk_bytes = f.integer("chunk_bytes", 8, int64_t{1} << 30);
    if (m_.chunk_bytes % 8 != 0) f.fail("\"chunk_bytes\" must be a multiple of 8");
  }

  void on_tensor_key(std::string key) {
    tensor_key_ = std::move(key);
    if (open_ && (tensor_key_ == "name" || tensor_key_ == "dtype" || tensor_key_ == "shape" ||
                  tensor_key_ == "pieces"))
      base::fail_user("{}: tensor {} lists \"{}\" after \"pieces\"", source_, open_->info.name, tensor_key_);
    if (tensor_key_ != "pieces") return;
    open_.emplace(
        SavedTensor{.info = read_info(Fields(tensor_, source_, fmt::format("tensor {}", m_.tensors.size()))),
                    .pieces = {}});
    covered_ = 0;
    piece_text_ = fmt::format("a piece of {}", open_->info.name);
  }

  void add_piece(const Fields& f) {
    const TensorInfo& info = open_->info;
    Piece piece{.file = static_cast<int>(f.integer("file", 0, static_cast<int64_t>(m_.files.size()) - 1))};
    const ShardFile& file = m_.files[static_cast<size_t>(piece.file)];
    piece.position = f.integer("position", file.header_bytes, file.bytes);
    try {
      piece.region = region_of(f.at("region"), info.shape);
    } catch (const nlohmann::json::exception&) {
      f.fail("has a region that is not one: " + base::json_text(f.at("region")));
    }
    if (!is_valid(piece.region, info.count()))
      f.fail(fmt::format("has a region outside of its tensor: {}", base::json_text(f.at("region"))));
    const int64_t bytes = piece.region.count * base::size_of(info.dtype);
    if (bytes > file.bytes - piece.position)
      f.fail(fmt::format("has {} bytes at position {}, but {} has only {} bytes", bytes, piece.position,
                         file.name, file.bytes));
    std::vector<uint64_t> sums;
    for (const Json& sum : f.array("sums")) {
      const auto value = sum.is_string() ? parse_sum(sum.get<std::string>()) : std::nullopt;
      if (!value) f.fail("has a checksum that is not 16 hexadecimal digits");
      sums.push_back(*value);
    }
    const auto chunks = static_cast<size_t>((bytes + m_.chunk_bytes - 1) / m_.chunk_bytes);
    if (sums.size() != chunks) f.fail(fmt::format("has {} checksums for {} chunks", sums.size(), chunks));
    if (piece.region.count > info.count() - covered_)
      f.fail(
          fmt::format("is one too many: the tensor has {} elements, but its pieces have more", info.count()));
    covered_ += piece.region.count;
    piece.sums = sums;
    open_->pieces.add(piece);
  }

  void end_tensor(const Json& value) {
    const std::string where = fmt::format("tensor {}", m_.tensors.size());
    const Fields f(value, source_, where);
    f.require_taken("pieces");
    const TensorInfo& info = open_->info;
    if (covered_ != info.count())
      f.fail(fmt::format("has {} elements, but its pieces have {}", info.count(), covered_));
    if (!m_.tensors.empty() && m_.tensors.back().info.name >= info.name)
      Fields(value, source_, kManifest).fail(fmt::format("lists tensor {} out of order or twice", info.name));
    open_->pieces.shrink();
    m_.tensors.push_back(std::move(*open_));
    open_.reset();
    tensor_ = Json::object();
  }

  const std::string& source_;
  Manifest m_;
  Json header_ = Json::object(), tensor_ = Json::object();  // their fields so far, without lists
  bool has_header_ = false;
  std::set<std::string> lists_;      // "files" and "tensors", when they have begun
  std::string key_, tensor_key_;     // the last ones
  std::optional<SavedTensor> open_;  // the tensor whose pieces are being read
  int64_t covered_ = 0;              // elements of it
  std::string piece_text_;
};

}  // namespace

const SavedTensor* Manifest::find(std::string_view name) const {
  const auto it = std::lower_bound(tensors.begin(), tensors.end(), name,
                                   [](const SavedTensor& t, std::string_view n) { return t.info.name < n; });
  return it == tensors.end() || it->info.name != name ? nullptr : &*it;
}

int64_t Manifest::tensor_bytes() const {
  int64_t bytes = 0;
  for (const SavedTensor& t : tensors) bytes += t.info.bytes();
  return bytes;
}

bool is_plain_name(std::string_view name) {
  if (name.empty() || name.size() > 200 || name[0] == '.') return false;
  return std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
  });
}

bool is_state_name(std::string_view name) { return name.find('/') != std::string_view::npos; }

Json region_json(const Region& r, const std::vector<int64_t>& shape) {
  Json json = Json::object();
  if (r.shape != shape) json["shape"] = r.shape;
  if (r.size != r.shape) json["begin"] = r.begin, json["size"] = r.size;
  if (!r.is_whole_box()) json["range"] = {r.first, r.count};
  return json;
}

Region region_of(const Json& json, const std::vector<int64_t>& shape) {
  if (!json.is_object()) throw Json::type_error::create(302, "a region is an object", &json);
  const auto list = [&](const char* key, const std::vector<int64_t>& absent) {
    const auto found = json.find(key);
    if (found == json.end()) return absent;
    for (const Json& number : *found)  // get() would round fractions and wrap
      if (!number.is_number_integer() ||
          (number.is_number_unsigned() && number.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX)))
        throw Json::type_error::create(302, "not an integer", &number);
    return found->get<std::vector<int64_t>>();
  };
  Region r{.shape = list("shape", shape), .begin = {}, .size = {}};
  r.begin = list("begin", std::vector<int64_t>(r.shape.size(), 0));
  r.size = list("size", r.shape);
  const std::vector<int64_t> range = list("range", {0, std::max<int64_t>(checked_product(r.size), 0)});
  if (range.size() != 2) throw Json::type_error::create(302, "a range has two numbers", &json);
  r.first = range[0], r.count = range[1];
  return r;
}

std::string sum_text(uint64_t sum) { return fmt::format("{:016x}", sum); }

std::optional<uint64_t> parse_sum(std::string_view text) {
  uint64_t sum = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), sum, 16);
  if (text.size() != 16 || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return sum;
}

std::string to_text(const Manifest& m) {
  std::string text = base::json_text({{"format", kFormat},
                                      {"version", kVersion},
                                      {"step", m.step},
                                      {"run", m.run},
                                      {"chunk_bytes", m.chunk_bytes}},
                                     2);
  text.resize(text.size() - 2);  // "\n}"
  // One element at a time: a tree of all pieces would be many times their text.
  const auto append = [&](const char* key, const auto& list, const auto& json_of) {
    text += fmt::format(",\n  \"{}\": [", key);
    const char* comma = "\n    ";
    for (const auto& item : list) {
      text += comma + base::json_text(json_of(item));
      comma = ",\n    ";
    }
    text += list.empty() ? "]" : "\n  ]";
  };
  append("files", m.files, [](const ShardFile& f) {
    return Json{{"name", f.name},
                {"bytes", f.bytes},
                {"header_bytes", f.header_bytes},
                {"header_sum", sum_text(f.header_sum)}};
  });
  append("tensors", m.tensors, [](const SavedTensor& t) {
    Json pieces = Json::array();
    for (const Piece& p : t.pieces) {
      Json sums = Json::array();
      for (const uint64_t sum : p.sums) sums.push_back(sum_text(sum));
      pieces.push_back({{"file", p.file},
                        {"position", p.position},
                        {"region", region_json(p.region, t.info.shape)},
                        {"sums", std::move(sums)}});
    }
    return Json{{"name", t.info.name},
                {"dtype", safetensors_name(t.info.dtype)},
                {"shape", t.info.shape},
                {"pieces", std::move(pieces)}};
  });
  const uint64_t sum = base::checksum_of(std::as_bytes(std::span(text)));
  return text + std::string(kSumKey) + sum_text(sum) + "\"\n}\n";
}

std::string read_manifest(const base::Path& file) {
  if (const int64_t bytes = base::file_exists(file) ? base::size_of_file(file) : 0; bytes > kLargestManifest)
    base::fail_user("'{}' is not a manifest of a checkpoint: it has {} bytes, and at most {} are read",
                    file.string(), bytes, kLargestManifest);
  return base::read_file(file);
}

Manifest parse_manifest(std::string_view text, const std::string& source) {
  const size_t at = text.rfind(kSumKey);
  if (at == std::string_view::npos)
    base::fail_user("{} is not a manifest of a checkpoint, or is truncated: it has no checksum", source);
  const std::optional<uint64_t> said =
      parse_sum(text.substr(at + kSumKey.size(), std::min<size_t>(16, text.size() - at - kSumKey.size())));
  const uint64_t sum = base::checksum_of(std::as_bytes(std::span(text.substr(0, at))));
  if (said != sum || text.substr(at + kSumKey.size()) != sum_text(sum) + "\"\n}\n")
    base::fail_user("{} is damaged: its checksum is {}, but it says {}", source, sum_text(sum),
                    said ? sum_text(*said) : "none");
  return Parser(source).parse(text);
}

}  // namespace quintet::checkpoint
