// The receiver of an AF_XDP link and rings that no kernel would write: addresses and lengths outside of the memory, frames
// without an end, a producer out of range. Argument: an interface. Prints a line of JSON for each case.
#include <net/if.h>
#include <sys/mman.h>

#include <cstdio>
#include <cstring>
#include <vector>

#include "../../native/src/udp_socket.h"
#include "../../native/src/xdp_receive.h"

using namespace roce;

namespace {

constexpr uint32_t kChunks = 64, kSlots = 64;
constexpr uint32_t kContinued = 1;
constexpr uint64_t kReceiveBytes = uint64_t{kChunks} * XdpSocket::kChunk;
constexpr uint64_t kBeyond = uint64_t{1} << 47;

struct Rig {
  explicit Rig(int interfaceIndex)
      : memory(static_cast<uint8_t*>(mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))),
        socket({interfaceIndex, 0, XdpCopying::copy, memory, kChunks, kSlots, XdpSocket::kChunk, false}),
        scratch(1 << 16),
        receiver(crc, {memory, scratch.data(), scratch.size(), 4791, false, false}, stats, peers, locals, queuePairs),
        slots(512 * rx::kSlotWords),
        sources(512 * 16) {}

  /// Runs a case: writes descriptors, `producer` further than what has been read, and receives.
  void run(const char* what, const std::vector<xdp_desc>& descriptors, uint32_t further) {
    const XdpRing& ring = socket.received();
    receiver.begin({{memory, kBytes}, {slots.data(), slots.size()}, {sources.data(), sources.size()}, 512});
    const uint32_t from = *ring.consumer;
    for (size_t i = 0; i < descriptors.size(); i++) ring.descriptor(from + static_cast<uint32_t>(i)) = descriptors[i];
    __atomic_store_n(ring.producer, from + further, __ATOMIC_RELEASE);
    const XdpStats before = stats;
    receiver.drain(socket);
    const auto added = [&](uint64_t XdpStats::*count) { return static_cast<unsigned long>(stats.*count - before.*count); };
    std::printf("{\"what\":\"%s\",\"frames\":%lu,\"bad\":%lu,\"malformed\":%lu}\n", what, added(&XdpStats::rxFrames),
                added(&XdpStats::badDescriptors), added(&XdpStats::malformed));
  }
  void run(const char* what, const std::vector<xdp_desc>& descriptors) {
    run(what, descriptors, static_cast<uint32_t>(descriptors.size()));
  }

  static constexpr size_t kBytes = kReceiveBytes + uint64_t{kSlots} * XdpSocket::kChunk;
  const Crc* crc = crcBest();
  uint8_t* memory;
  XdpSocket socket;
  std::vector<uint8_t> scratch;
  XdpStats stats;
  PeerTable peers;
  LocalIndex locals;
  QueuePairs queuePairs;
  XdpReceiver receiver;
  std::vector<uint32_t> slots;
  std::vector<uint8_t> sources;
};

}  // namespace

int main(int count, char** arguments) {
  if (count != 2) return 2;
  try {
    Rig rig(static_cast<int>(if_nametoindex(arguments[1])));
    const xdp_desc good{256, 100, 0};
    rig.run("a frame", {good});
    rig.run("an address beyond the memory", {{kBeyond, 100, 0}, good});
    rig.run("an address among the places to send from", {{kReceiveBytes, 100, 0}, good});
    rig.run("an offset beyond the memory", {{0xffff'0000'0003'f000, 100, 0}, {0xffff'ffff'ffff'ffff, 100, 0}, good});
    rig.run("a length beyond the memory", {{kReceiveBytes - 10, 11, 0}, {256, 0xffff'ffff, 0}, good});
    rig.run("lengths whose sum is small", {{256, 0x8000'0000, kContinued}, {256, 0x8000'0064, 0}, good});
    rig.run("no bytes", {{256, 0, 0}, {256, 0, kContinued}, {256, 0, 0}, good});
    rig.run("a part beyond the memory", {{256, 100, kContinued}, {kBeyond, 100, 0}, good});
    rig.run("parts that are not in order", {{8192, 100, kContinued}, {256, 100, kContinued}, {4096, 100, 0}, good});
    rig.run("a frame that ends early", {{256, 100, kContinued}, {256, 100, kContinued}});
    rig.run("the rest of it", {{256, 100, kContinued}, {256, 100, kContinued}, {256, 100, 0}, good});
    rig.run("a frame without an end", std::vector<xdp_desc>(kChunks, {256, 100, kContinued}));
    rig.run("a frame behind it", {good});
    rig.run("a producer far ahead", std::vector<xdp_desc>(kChunks, good), 0x8000'0000);
    rig.run("a producer behind", std::vector<xdp_desc>(kChunks, good), 0xffff'ffff);
    bool none = true;
    for (const uint64_t address : {uint64_t{0}, kReceiveBytes - 1, uint64_t{Rig::kBytes}, kBeyond, ~uint64_t{0}})
      none = none && rig.socket.slotOf(address) == XdpSocket::kNoSlot;
    std::printf("{\"what\":\"places at impossible addresses\",\"none\":%s}\n", none ? "true" : "false");
  } catch (const SystemFailure& failure) {
    std::fprintf(stderr, "%s: %s\n", failure.syscall, std::strerror(failure.errnum));
    return 1;
  }
}
