#include "xdp_socket.h"

#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>

#include "udp_socket.h"

#ifndef AF_XDP
#define AF_XDP 44
#endif
#ifndef SOL_XDP
#define SOL_XDP 283
#endif

namespace roce {
namespace {

// Linux 6.6; older headers lack it (linux/if_xdp.h).
constexpr uint16_t kUseFragments = 1 << 4;
constexpr uint64_t kPage = 4096;
/// A queue whose socket was closed stays busy, and its memory locked, until the kernel has let go of its last frames.
constexpr int kTries = 100;

void pause() {
  const timespec time{0, 5'000'000};
  nanosleep(&time, nullptr);
}

constexpr uint64_t pages(uint64_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

}  // namespace

size_t XdpSocket::bytesFor(uint32_t receiveChunks, uint32_t sendSlots, uint32_t slotBytes) {
  return uint64_t{receiveChunks} * kChunk + uint64_t{sendSlots} * slotBytes;
}

XdpSocket::XdpSocket(const Settings& settings) : settings_(settings), tape_(settings.copying == XdpCopying::copy) {
  sendBase_ = uint64_t{settings.receiveChunks} * kChunk;
  try {
    open();
  } catch (...) {
    close();
    throw;
  }
}

void XdpSocket::open() {
  fd_ = socket(AF_XDP, SOCK_RAW | SOCK_CLOEXEC, 0);
  if (fd_ < 0) throw SystemFailure{errno, "socket(AF_XDP)"};
  xdp_umem_reg memory{};
  memory.addr = reinterpret_cast<uintptr_t>(settings_.memory);
  memory.len = pages(bytesFor(settings_.receiveChunks, settings_.sendSlots, settings_.slotBytes));
  memory.chunk_size = kChunk;
  memory.flags = tape_ ? XDP_UMEM_UNALIGNED_CHUNK_FLAG : 0;
  for (int i = 0; setsockopt(fd_, SOL_XDP, XDP_UMEM_REG, &memory, sizeof memory) != 0; i++) {
    if (!settings_.waits || errno != ENOBUFS || i == kTries) throw SystemFailure{errno, "setsockopt(XDP_UMEM_REG)"};
    pause();
  }

  // A frame of two buffers takes two descriptors.
  const uint32_t perSlot = settings_.slotBytes / kChunk;
  const uint32_t sending = settings_.sendSlots > 0 ? settings_.sendSlots * perSlot : 1;
  const struct {
    int option;
    uint32_t entries;
  } rings[] = {{XDP_RX_RING, settings_.receiveChunks},
               {XDP_UMEM_FILL_RING, settings_.receiveChunks},
               {XDP_TX_RING, sending},
               {XDP_UMEM_COMPLETION_RING, sending}};
  for (const auto& [option, entries] : rings)
    if (setsockopt(fd_, SOL_XDP, option, &entries, sizeof entries) != 0)
      throw SystemFailure{errno, "setsockopt(XDP_RX_RING)"};
  xdp_mmap_offsets offsets{};
  socklen_t length = sizeof offsets;
  if (getsockopt(fd_, SOL_XDP, XDP_MMAP_OFFSETS, &offsets, &length) != 0 || length != sizeof offsets)
    throw SystemFailure{errno != 0 ? errno : EOPNOTSUPP, "getsockopt(XDP_MMAP_OFFSETS)"};
  mapRing(rx_, offsets.rx, XDP_PGOFF_RX_RING, settings_.receiveChunks, sizeof(xdp_desc));
  mapRing(tx_, offsets.tx, XDP_PGOFF_TX_RING, sending, sizeof(xdp_desc));
  mapRing(fill_, offsets.fr, XDP_UMEM_PGOFF_FILL_RING, settings_.receiveChunks, sizeof(uint64_t));
  mapRing(completion_, offsets.cr, XDP_UMEM_PGOFF_COMPLETION_RING, sending, sizeof(uint64_t));
  fillAll();

  sockaddr_xdp address{};
  address.sxdp_family = AF_XDP;
  address.sxdp_ifindex = static_cast<uint32_t>(settings_.interfaceIndex);
  address.sxdp_queue_id = settings_.queue;
  const auto flags = static_cast<uint16_t>(
      (settings_.copying == XdpCopying::copy ? XDP_COPY : XDP_ZEROCOPY) | XDP_USE_NEED_WAKEUP);
  for (int i = 0;; i++) {
    address.sxdp_flags = static_cast<uint16_t>(flags | (fragments_ ? kUseFragments : 0));
    if (bind(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) return;
    if (errno == EINVAL && fragments_) {
      fragments_ = false;
      continue;
    }
    if (errno != EBUSY || i == kTries) throw SystemFailure{errno, "bind(AF_XDP)"};
    pause();
  }
}

void XdpSocket::mapRing(XdpRing& ring, const xdp_ring_offset& offsets, uint64_t page, uint32_t entries, size_t entryBytes) {
  ring.bytes = offsets.desc + entries * entryBytes;
  void* memory = mmap(nullptr, ring.bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd_, static_cast<off_t>(page));
  if (memory == MAP_FAILED) throw SystemFailure{errno, "mmap(AF_XDP)"};
  auto* bytes = static_cast<uint8_t*>(memory);
  ring.memory = memory;
  ring.producer = reinterpret_cast<uint32_t*>(bytes + offsets.producer);
  ring.consumer = reinterpret_cast<uint32_t*>(bytes + offsets.consumer);
  ring.flags = reinterpret_cast<uint32_t*>(bytes + offsets.flags);
  ring.entries = bytes + offsets.desc;
  ring.mask = entries - 1;
}

void XdpSocket::close() {
  // The mapped rings hold the socket: without unmapping them the queue stays busy.
  for (XdpRing* ring : {&rx_, &tx_, &fill_, &completion_}) {
    if (ring->memory != nullptr) munmap(ring->memory, ring->bytes);
    *ring = XdpRing{};
  }
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

void XdpSocket::fillAll() {
  // On the tape a frame starts kHeadroom into its chunk, and the rest of it in the next chunk begins where this one ends.
  const uint64_t stride = tape_ ? kChunk - kHeadroom : kChunk;
  for (uint32_t i = 0; i < settings_.receiveChunks; i++) fill_.address(filled_++) = i * stride;
  publishFill();
}

void XdpSocket::refill(const xdp_desc& descriptor) {
  if (!isSound(descriptor)) return;
  fill_.address(filled_++) = tape_ ? descriptor.addr & kAddressMask : descriptor.addr & ~uint64_t{kChunk - 1};
}

void XdpSocket::publishFill() {
  fill_.storeProducer(filled_);
  // A driver that found no memory sleeps until it is asked.
  if (fd_ >= 0 && fill_.needsWakeup()) recvfrom(fd_, nullptr, 0, MSG_DONTWAIT, nullptr, nullptr);
}

bool XdpSocket::statistics(xdp_statistics& statistics) const {
  socklen_t length = sizeof statistics;
  return fd_ >= 0 && getsockopt(fd_, SOL_XDP, XDP_STATISTICS, &statistics, &length) == 0;
}

}  // namespace roce
