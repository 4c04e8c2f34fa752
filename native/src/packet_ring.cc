#include "packet_ring.h"

#include <arpa/inet.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "udp_socket.h"

namespace roce {
namespace {

/// Holds several of the longest frames there are (64 KiB super-packets).
constexpr uint32_t kBlockBytes = 1u << 19;
/// Of no meaning in a ring of version 3, but checked.
constexpr uint32_t kFrameBytes = 2048;

}  // namespace

PacketRing::PacketRing(const PacketRingOptions& options) {
  try {
    open(options);
  } catch (...) {
    close();
    throw;
  }
}

void PacketRing::open(const PacketRingOptions& options) {
  // Protocol 0: nothing arrives before the filter is there and the socket is bound.
  fd_ = socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd_ < 0) throw SystemFailure{errno, "socket"};

  ifreq request{};
  options.interface.copy(request.ifr_name, IFNAMSIZ - 1);
  if (ioctl(fd_, SIOCGIFINDEX, &request) != 0) throw SystemFailure{errno, "ioctl"};
  const int index = request.ifr_ifindex;
  if (ioctl(fd_, SIOCGIFHWADDR, &request) != 0) throw SystemFailure{errno, "ioctl"};
  const int type = request.ifr_hwaddr.sa_family;
  ethernet_ = type == ARPHRD_ETHER || type == ARPHRD_LOOPBACK;
  const bool ip = type == ARPHRD_NONE || type == ARPHRD_RAWIP || type == ARPHRD_TUNNEL || type == ARPHRD_TUNNEL6 ||
                  type == ARPHRD_SIT;
  if (!ethernet_ && !ip) throw SystemFailure{EPROTONOSUPPORT, "bind"};

  PacketFilterOptions filter;
  filter.ethernet = ethernet_;
  filter.receivedOnly = type == ARPHRD_LOOPBACK;
  filter.mirrors = options.mirrors;
  filter.snapLength = options.snapLength;
  filter.wholeFrom = options.wholeFrom;
  attach(packetFilter(filter));

  const int version = TPACKET_V3;
  set(PACKET_VERSION, &version, sizeof version);
  tpacket_req3 ring{};
  blocks_ = std::max(2u, (options.buffer + kBlockBytes - 1) / kBlockBytes);
  ring.tp_block_size = kBlockBytes;
  ring.tp_block_nr = blocks_;
  ring.tp_frame_size = kFrameBytes;
  ring.tp_frame_nr = kBlockBytes / kFrameBytes * blocks_;
  ring.tp_retire_blk_tov = kRetireMs;
  set(PACKET_RX_RING, &ring, sizeof ring);
  ringBytes_ = size_t{kBlockBytes} * blocks_;
  void* memory = mmap(nullptr, ringBytes_, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
  if (memory == MAP_FAILED) throw SystemFailure{errno, "mmap"};
  ring_ = static_cast<uint8_t*>(memory);

  sockaddr_ll address{};
  address.sll_family = AF_PACKET;
  address.sll_protocol = htons(ETH_P_ALL);
  address.sll_ifindex = index;
  if (bind(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) throw SystemFailure{errno, "bind"};
  if (options.promiscuous) {
    packet_mreq membership{};
    membership.mr_ifindex = index;
    membership.mr_type = PACKET_MR_PROMISC;
    set(PACKET_ADD_MEMBERSHIP, &membership, sizeof membership);
  }
}

void PacketRing::set(int option, const void* value, size_t length) {
  if (setsockopt(fd_, SOL_PACKET, option, value, static_cast<socklen_t>(length)) != 0)
    throw SystemFailure{errno, "setsockopt"};
}

void PacketRing::attach(std::vector<sock_filter> code) {
  const sock_fprog program{static_cast<unsigned short>(code.size()), code.data()};
  if (setsockopt(fd_, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program) != 0)
    throw SystemFailure{errno, "setsockopt"};
}

void PacketRing::finish() { attach(rejectAll()); }

int PacketRing::takeError() {
  int error = 0;
  socklen_t length = sizeof error;
  if (fd_ < 0 || getsockopt(fd_, SOL_SOCKET, SO_ERROR, &error, &length) != 0) return 0;
  return error;
}

void PacketRing::close() {
  if (ring_ != nullptr) munmap(ring_, ringBytes_);
  ring_ = nullptr;
  frame_ = nullptr;
  left_ = 0;
  if (fd_ < 0) return;
  readStatistics();
  ::close(fd_);
  fd_ = -1;
}

tpacket_block_desc* PacketRing::block() const {
  return reinterpret_cast<tpacket_block_desc*>(ring_ + size_t{kBlockBytes} * current_);
}

/// Makes the current block's first frame the next one. False while the kernel has the block.
bool PacketRing::enterBlock() {
  auto& header = block()->hdr.bh1;
  // The kernel's stores to the frames come before the one to the status.
  if ((__atomic_load_n(&header.block_status, __ATOMIC_ACQUIRE) & TP_STATUS_USER) == 0) return false;
  left_ = header.num_pkts;
  frame_ = reinterpret_cast<tpacket3_hdr*>(reinterpret_cast<uint8_t*>(block()) + header.offset_to_first_pkt);
  return true;
}

bool PacketRing::next(RingFrame& out) {
  if (ring_ == nullptr) return false;
  while (left_ == 0) {
    if (!enterBlock()) return false;
    // A block that was closed empty goes back at once.
    if (left_ == 0) {
      left_ = 1;
      release();
    }
  }
  const auto* start = reinterpret_cast<const uint8_t*>(frame_);
  const auto* from = reinterpret_cast<const sockaddr_ll*>(start + TPACKET_ALIGN(sizeof(tpacket3_hdr)));
  out.bytes = start + frame_->tp_mac;
  out.captured = frame_->tp_snaplen;
  out.original = frame_->tp_len;
  out.seconds = frame_->tp_sec;
  out.nanoseconds = frame_->tp_nsec;
  out.outgoing = from->sll_pkttype == PACKET_OUTGOING;
  out.tagged = (frame_->tp_status & TP_STATUS_VLAN_VALID) != 0;
  out.tpid = (frame_->tp_status & TP_STATUS_VLAN_TPID_VALID) != 0 ? frame_->hv1.tp_vlan_tpid : ETH_P_8021Q;
  out.tci = static_cast<uint16_t>(frame_->hv1.tp_vlan_tci);
  return true;
}

void PacketRing::release() {
  if (left_ == 0) return;
  if (--left_ > 0) {
    frame_ = reinterpret_cast<tpacket3_hdr*>(reinterpret_cast<uint8_t*>(frame_) + frame_->tp_next_offset);
    return;
  }
  frame_ = nullptr;
  __atomic_store_n(&block()->hdr.bh1.block_status, uint32_t{TP_STATUS_KERNEL}, __ATOMIC_RELEASE);
  current_ = (current_ + 1) % blocks_;
}

/// The kernel's counts start anew with each reading, and those received include those dropped.
void PacketRing::readStatistics() {
  tpacket_stats_v3 statistics{};
  socklen_t length = sizeof statistics;
  if (fd_ < 0 || getsockopt(fd_, SOL_PACKET, PACKET_STATISTICS, &statistics, &length) != 0) return;
  received_ += statistics.tp_packets;
  dropped_ += statistics.tp_drops;
}

uint64_t PacketRing::received() {
  readStatistics();
  return received_;
}

uint64_t PacketRing::dropped() {
  readStatistics();
  return dropped_;
}

}  // namespace roce
