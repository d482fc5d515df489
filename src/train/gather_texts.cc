#include "train/gather_texts.h"

namespace quintet::train {

using base::DType;

std::vector<std::string> gather_texts(comm::World& world, const std::string& mine) {
  comm::Communicator& comm = world.world();
  const int64_t size = static_cast<int64_t>(mine.size());
  std::vector<int64_t> sizes(static_cast<size_t>(world.size()));
  comm.all_gather(&size, sizes.data(), 1, DType::I64);
  if (world.rank().value != 0) {
    comm.send(mine.data(), size, DType::U8, 0);
    return {};
  }
  std::vector<std::string> texts(sizes.size());
  texts[0] = mine;
  for (size_t r = 1; r < texts.size(); ++r) {
    texts[r].resize(static_cast<size_t>(sizes[r]));
    comm.recv(texts[r].data(), sizes[r], DType::U8, static_cast<int>(r));
  }
  return texts;
}

}  // namespace quintet::train
