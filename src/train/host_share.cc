#include "train/host_share.h"

#include <array>
#include <cstring>
#include <filesystem>
#include <memory>

#include "base/error.h"

namespace quintet::train {
namespace {

constexpr uint64_t kMagic = 0x3165726168735171;  // "qQshare1"

// Of the file; every part is a multiple of 8 bytes long.
struct Sizes {
  uint64_t magic = kMagic, name = 0, width = 0, vocab = 0, offsets = 0, trained = 0, tokens = 0;
};

size_t padded(uint64_t bytes) { return static_cast<size_t>((bytes + 7) / 8 * 8); }

void write_padded(base::AtomicFile& file, std::span<const std::byte> bytes) {
  static constexpr std::array<std::byte, 8> kZeros{};
  file.write(bytes);
  file.write(std::span(kZeros).first(padded(bytes.size()) - bytes.size()));
}

}  // namespace

void write_shared_corpus(const data::Corpus& corpus, const base::Path& path) {
  const Sizes sizes{.name = corpus.name().size(),
                    .width = static_cast<uint64_t>(corpus.width()),
                    .vocab = static_cast<uint64_t>(corpus.vocab()),
                    .offsets = corpus.offsets().size_bytes(),
                    .trained = corpus.trained().size(),
                    .tokens = corpus.bytes().size()};
  const uint64_t needed = sizes.offsets + sizes.trained + sizes.tokens + (uint64_t{1} << 20);
  if (base::free_bytes(path.parent_path()) < static_cast<int64_t>(2 * needed))
    base::fail_user("'{}' has no room for {} bytes", path.parent_path().string(), needed);
  base::AtomicFile file(path);
  file.write(std::as_bytes(std::span(&sizes, 1)));
  write_padded(file, std::as_bytes(std::span(corpus.name())));
  write_padded(file, std::as_bytes(corpus.offsets()));
  write_padded(file, std::as_bytes(corpus.trained()));
  write_padded(file, corpus.bytes());
  file.commit();
}

data::Corpus map_shared_corpus(const base::Path& path) {
  auto file = std::make_shared<base::MappedFile>(path);
  std::span<const std::byte> rest = file->bytes();
  Sizes sizes;
  const auto require = [&](bool good) {
    if (!good) base::fail_user("'{}' is not a complete shared corpus", path.string());
  };
  require(rest.size() >= sizeof sizes);
  std::memcpy(&sizes, rest.data(), sizeof sizes);
  rest = rest.subspan(sizeof sizes);
  require(sizes.magic == kMagic && sizes.offsets % sizeof(uint64_t) == 0);
  const auto take = [&](uint64_t bytes) {
    require(bytes <= rest.size() && padded(bytes) <= rest.size());
    const auto part = rest.first(static_cast<size_t>(bytes));
    rest = rest.subspan(padded(bytes));
    return part;
  };
  const auto name = take(sizes.name), offsets = take(sizes.offsets), trained = take(sizes.trained),
             tokens = take(sizes.tokens);
  const auto* words = reinterpret_cast<const uint64_t*>(offsets.data());
  data::Corpus corpus(std::string(reinterpret_cast<const char*>(name.data()), name.size()), tokens,
                      static_cast<data::TokenWidth>(sizes.width), static_cast<int64_t>(sizes.vocab),
                      std::span(words, offsets.size() / sizeof(uint64_t)), file,
                      std::span(reinterpret_cast<const uint8_t*>(trained.data()), trained.size()));
  corpus.set_ids_are_known();  // to the process that wrote the file
  return corpus;
}

data::Corpus HostShare::through(const std::function<data::Corpus()>& read) {
  const base::Path path = folder_ / fmt::format("{}.tokens", next_++);
  if (role_ == Role::Other) {
    if (!base::file_exists(path)) return read();
    ++mapped_;
    return map_shared_corpus(path);
  }
  data::Corpus corpus = read();
  try {
    base::make_directories(folder_);
    write_shared_corpus(corpus, path);
    return map_shared_corpus(path);
  } catch (const base::UserError&) {
    return corpus;  // no room: the others read for themselves
  }
}

void HostShare::remove() const {
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

}  // namespace quintet::train
