#include "text/byte_stream.h"

#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/checksum.h"
#include "base/file_system.h"

namespace quintet::text {
namespace {

constexpr size_t kPiece = size_t{1} << 20;

// The bytes of the file itself.
class PlainStream final : public ByteStream {
 public:
  explicit PlainStream(const base::Path& path) : file_(path) {}

  size_t read(std::span<char> out) override {
    const auto n =
        static_cast<size_t>(std::min<int64_t>(static_cast<int64_t>(out.size()), file_.size() - at_));
    const auto bytes = std::as_writable_bytes(out.first(n));
    if (n > 0) file_.read(at_, bytes);
    if (whole_) sum_.add(bytes);
    at_ += static_cast<int64_t>(n);
    return n;
  }
  void skip(int64_t bytes) override {
    if (bytes > 0) whole_ = false;
    at_ = std::min(file_.size(), at_ + bytes);
  }
  int64_t consumed() const override { return at_; }
  std::optional<uint64_t> checksum() const override {
    return whole_ && at_ == file_.size() ? std::optional(sum_.value()) : std::nullopt;
  }

 private:
  base::InputFile file_;
  int64_t at_ = 0;
  bool whole_ = true;  // nothing was skipped
  base::Checksum sum_;
};

// What both decompressors share: a piece of the file at a time.
class Decompressor : public ByteStream {
 public:
  explicit Decompressor(const base::Path& path) : name_(path.string()), file_(path), in_(kPiece) {}

  void skip(int64_t bytes) override {
    std::vector<char> ignored(static_cast<size_t>(std::min<int64_t>(bytes, kPiece)));
    while (bytes > 0) {
      const auto n = static_cast<size_t>(std::min<int64_t>(bytes, static_cast<int64_t>(ignored.size())));
      const size_t got = read(std::span(ignored).first(n));
      bytes -= static_cast<int64_t>(got);
      if (got == 0) return;
    }
  }
  int64_t consumed() const override { return file_.consumed(); }
  std::optional<uint64_t> checksum() const override { return file_.checksum(); }
  size_t read(std::span<char> out) final {
    if (!damage_.empty()) throw DamagedFile(damage_);
    const size_t filled = decompress(out);
    if (filled == 0 && !damage_.empty()) throw DamagedFile(damage_);
    return filled;
  }

 protected:
  // As read(), but damage is reported by a message in damage_.
  virtual size_t decompress(std::span<char> out) = 0;
  // The next piece; empty at the end of the file.
  std::span<const char> next_piece() { return std::span(in_).first(file_.read(in_)); }

  const std::string name_;
  std::string damage_;

 private:
  PlainStream file_;
  std::vector<char> in_;
};

// One gzip member after another, as bgzip and `cat a.gz b.gz` make them.
class GzipStream final : public Decompressor {
 public:
  explicit GzipStream(const base::Path& path) : Decompressor(path) {
    QUINTET_CHECK(inflateInit2(&z_, 15 + 16) == Z_OK, "zlib does not start");
  }
  ~GzipStream() override { inflateEnd(&z_); }

  size_t decompress(std::span<char> out) override {
    size_t filled = 0;
    while (filled < out.size()) {
      if (z_.avail_in == 0) {
        const auto piece = next_piece();
        if (piece.empty()) {
          if (inside_ || !any_) damage_ = fmt::format("'{}' is truncated: its gzip stream has no end", name_);
          break;
        }
        z_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(piece.data()));
        z_.avail_in = static_cast<uInt>(piece.size());
      }
      const size_t room = std::min<size_t>(out.size() - filled, size_t{1} << 30);
      z_.next_out = reinterpret_cast<Bytef*>(out.data() + filled);
      z_.avail_out = static_cast<uInt>(room);
      inside_ = any_ = true;
      const int status = inflate(&z_, Z_NO_FLUSH);
      filled += room - z_.avail_out;
      if (status == Z_STREAM_END) {
        inside_ = false;
        inflateReset(&z_);
      } else if (status != Z_OK && status != Z_BUF_ERROR) {
        damage_ = fmt::format("'{}' is not valid gzip: {}", name_, z_.msg != nullptr ? z_.msg : "damaged");
        break;
      }
    }
    return filled;
  }

 private:
  z_stream z_ = {};
  bool inside_ = false, any_ = false;  // a member; any input seen
};

class ZstdStream final : public Decompressor {
 public:
  explicit ZstdStream(const base::Path& path) : Decompressor(path), z_(ZSTD_createDStream()) {
    QUINTET_CHECK(z_ != nullptr, "zstd does not start");
    // Windows of up to 2 GiB (zstd --long=31); a file that does not need one does not use the memory.
    ZSTD_DCtx_setParameter(z_, ZSTD_d_windowLogMax, 31);
  }
  ~ZstdStream() override { ZSTD_freeDStream(z_); }

  size_t decompress(std::span<char> out) override {
    ZSTD_outBuffer to = {out.data(), out.size(), 0};
    while (to.pos < to.size) {
      if (from_.pos == from_.size && !flushing_) {
        const auto piece = next_piece();
        if (piece.empty()) {
          if (inside_) damage_ = fmt::format("'{}' is truncated: its zstd stream has no end", name_);
          break;
        }
        from_ = {piece.data(), piece.size(), 0};
      }
      const size_t left = ZSTD_decompressStream(z_, &to, &from_);
      if (ZSTD_isError(left)) {
        damage_ = fmt::format("'{}' is not valid zstd: {}", name_, ZSTD_getErrorName(left));
        break;
      }
      inside_ = left != 0;
      flushing_ = to.pos == to.size && left != 0;  // output may be held that no input is needed for
    }
    return to.pos;
  }

 private:
  ZSTD_DStream* z_;
  ZSTD_inBuffer from_ = {nullptr, 0, 0};
  bool inside_ = true, flushing_ = false;
};

}  // namespace

Compression compression_of(const base::Path& path) {
  const auto extension = path.extension();
  return extension == ".gz" ? Compression::Gzip : extension == ".zst" ? Compression::Zstd : Compression::None;
}

base::Path without_compression(const base::Path& path) {
  return compression_of(path) == Compression::None ? path : base::Path(path).replace_extension();
}

std::unique_ptr<ByteStream> open_bytes(const base::Path& path) {
  switch (compression_of(path)) {
    case Compression::Gzip:
      return std::make_unique<GzipStream>(path);
    case Compression::Zstd:
      return std::make_unique<ZstdStream>(path);
    case Compression::None:
      break;
  }
  return std::make_unique<PlainStream>(path);
}

}  // namespace quintet::text
