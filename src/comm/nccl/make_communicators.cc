#include <fmt/format.h>

#include <array>
#include <cstring>
#include <optional>
#include <random>

#include "base/error.h"
#include "comm/members.h"
#include "comm/nccl/failure.h"
#include "comm/nccl/nccl_communicator.h"

namespace quintet::comm {
namespace nccl {
namespace {

// Where a rank runs.
struct Place {
  std::array<uint8_t, 16> process{};  // equal for the threads of one process only
  std::array<uint8_t, 16> uuid{};     // identity of the GPU
};
static_assert(sizeof(Place) == 32);

std::array<uint8_t, 16> make_process_identity() {
  std::array<uint8_t, 16> identity{};
  std::random_device random;
  for (size_t i = 0; i < identity.size(); i += 4) {
    const uint32_t word = random();
    std::memcpy(identity.data() + i, &word, 4);
  }
  return identity;
}

void choose_device(int device) {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess)
    base::fail_user(
        "no usable GPU: {} ({}). Check nvidia-smi and CUDA_VISIBLE_DEVICES, or run with device = "
        "\"cpu\"",
        cudaGetErrorString(status), cudaGetErrorName(status));
  if (device < 0 || device >= count)
    base::fail_user("GPU {} was requested, but this process sees {} (check CUDA_VISIBLE_DEVICES)", device,
                    count);
  require(cudaSetDevice(device), "cudaSetDevice");
}

std::vector<Place> gather_places(World& world, int device) {
  static const std::array<uint8_t, 16> process = make_process_identity();
  cudaDeviceProp properties{};
  require(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
  Place mine{.process = process};
  static_assert(sizeof properties.uuid == sizeof mine.uuid);
  std::memcpy(mine.uuid.data(), &properties.uuid, sizeof mine.uuid);
  std::vector<Place> places(static_cast<size_t>(world.size()));
  world.world().all_gather(&mine, places.data(), sizeof(Place), base::DType::U8);
  return places;
}

// The first two members on the same GPU, or nothing.
struct Sharing {
  base::RankId a, b;
  bool same_process = false;
};
std::optional<Sharing> find_sharing(const std::vector<base::RankId>& members,
                                    const std::vector<Place>& places) {
  std::optional<Sharing> found;
  for (size_t i = 0; i < members.size(); ++i)
    for (size_t j = i + 1; j < members.size(); ++j) {
      const Place &a = places[members[i].index()], &b = places[members[j].index()];
      if (a.uuid != b.uuid) continue;
      const Sharing s{members[i], members[j], a.process == b.process};
      if (s.same_process) return s;
      if (!found) found = s;
    }
  return found;
}

// Broadcasts the NCCL id from member 0 to the others.
ncclUniqueId agree_on_identity(World& world, const std::vector<base::RankId>& members, int index) {
  ncclUniqueId id{};
  if (index > 0) {
    world.world().recv(&id, sizeof id, base::DType::U8, members.front().value);
    return id;
  }
  const ncclResult_t result = ncclGetUniqueId(&id);
  if (result != ncclSuccess)
    throw CommError(
        fmt::format("rank {}: NCCL could not start: {}", world.rank(), describe(result, nullptr)));
  for (size_t j = 1; j < members.size(); ++j)
    world.world().send(&id, sizeof id, base::DType::U8, members[j].value);
  return id;
}

// Whether the loaded library has ncclCommRegister; the same on all ranks of a consistent installation.
bool can_register() {
  constexpr int kFirst = 21903;
  int loaded = 0;
  return ncclGetVersion(&loaded) == ncclSuccess && loaded >= kFirst;
}

std::unique_ptr<DeviceCommunicator> make_one(const DeviceGroup& group, World& world,
                                             const std::vector<Place>& places) {
  const int index = member_index(group.members, world.rank(), world.size());
  const std::string name = group.name.empty() ? members_text(group.members) : group.name;
  auto made = std::make_unique<NcclCommunicator>(world, name, index, group.members);
  if (group.members.size() == 1) return made;
  const std::optional<Sharing> sharing = find_sharing(group.members, places);
  if (sharing && sharing->same_process)
    base::fail_user(
        "ranks {} and {} of group '{}' are threads of one process on the same GPU, which NCCL does not "
        "support. Run one process per rank (mpirun -n {} quintet ..., each with its own NCCL_HOSTID if they "
        "share a GPU), or make as many GPUs visible as there are ranks",
        sharing->a, sharing->b, name, world.size());
  const ncclUniqueId id = agree_on_identity(world, group.members, index);
  made->connect(id, sharing ? fmt::format(". Ranks {} and {} share a GPU", sharing->a, sharing->b) : "",
                !sharing && can_register());
  return made;
}

// NCCL connects two members at their first message, and the submitting thread waits for the other side.
// Inside a step that could deadlock: one rank waits in a receive for a message that its peer sends only after
// a receive of its own. So the members of a pair connect here, in both directions at once, in the order in
// which all ranks create their communicators.
void exchange_once(const DeviceCommunicators& made, World& world) {
  DeviceCommunicator& pair = *made.back();
  void* bytes = nullptr;
  require(cudaMalloc(&bytes, 2), "cudaMalloc");
  try {
    GroupedCalls both;
    pair.send(bytes, 1, base::DType::U8, 1 - pair.rank(), nullptr);
    pair.recv(static_cast<std::byte*>(bytes) + 1, 1, base::DType::U8, 1 - pair.rank(), nullptr);
    both.end();
    wait_for_device([] { return cudaStreamQuery(nullptr) != cudaErrorNotReady; }, made, world);
  } catch (...) {
    cudaFree(bytes);
    throw;
  }
  require(cudaFree(bytes), "cudaFree");
}

}  // namespace
}  // namespace nccl

bool device_communication_available() { return true; }

DeviceCommunicators make_device_communicators(const std::vector<DeviceGroup>& groups, World& world,
                                              int device) {
  nccl::choose_device(device);
  const std::vector<nccl::Place> places = nccl::gather_places(world, device);
  DeviceCommunicators made;
  for (const DeviceGroup& g : groups) {
    made.push_back(nccl::make_one(g, world, places));
    if (g.members.size() == 2) nccl::exchange_once(made, world);
  }
  return made;
}

}  // namespace quintet::comm
