// A socket of AF_XDP (Documentation/networking/af_xdp.rst): its memory (UMEM) and its four rings, for one queue of an interface.
#pragma once
#include <linux/if_xdp.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace roce {

/// How frames get into the UMEM.
enum class XdpCopying { zeroCopy, copy };

/// A ring that is shared with the kernel, at this process's end of it.
struct XdpRing {
  uint32_t* producer = nullptr;
  uint32_t* consumer = nullptr;
  uint32_t* flags = nullptr;
  void* entries = nullptr;
  uint32_t mask = 0;
  void* memory = nullptr;
  size_t bytes = 0;

  uint64_t& address(uint32_t at) const { return static_cast<uint64_t*>(entries)[at & mask]; }
  xdp_desc& descriptor(uint32_t at) const { return static_cast<xdp_desc*>(entries)[at & mask]; }
  uint32_t loadProducer() const { return __atomic_load_n(producer, __ATOMIC_ACQUIRE); }
  /// Where the entries end that begin at `from`: no more than the ring has, whatever its producer is.
  uint32_t endFrom(uint32_t from) const { return from + std::min(loadProducer() - from, mask + 1); }
  uint32_t loadConsumer() const { return __atomic_load_n(consumer, __ATOMIC_ACQUIRE); }
  void storeProducer(uint32_t at) const { __atomic_store_n(producer, at, __ATOMIC_RELEASE); }
  void storeConsumer(uint32_t at) const { __atomic_store_n(consumer, at, __ATOMIC_RELEASE); }
  bool needsWakeup() const { return (__atomic_load_n(flags, __ATOMIC_RELAXED) & XDP_RING_NEED_WAKEUP) != 0; }
};

class XdpSocket {
 public:
  /// Bytes of a chunk; the kernel takes only 2048 and this.
  static constexpr uint32_t kChunk = 4096;
  /// Bytes in front of a received frame that the kernel leaves free.
  static constexpr uint32_t kHeadroom = 256;

  struct Settings {
    int interfaceIndex;
    uint32_t queue;
    XdpCopying copying;
    /// The UMEM: memory that lives longer than the socket, at the start of a page.
    uint8_t* memory;
    /// Chunks to receive into, a power of two.
    uint32_t receiveChunks;
    /// Places to send from, a power of two, of so many bytes each (kChunk or twice that).
    uint32_t sendSlots;
    uint32_t slotBytes;
    /// Waits for memory that a socket has which was closed just now: the kernel lets go of it later.
    bool waits;
  };

  /// Bytes of UMEM that a socket needs.
  static size_t bytesFor(uint32_t receiveChunks, uint32_t sendSlots, uint32_t slotBytes);

  /// Opens, registers the memory, and binds. @throws SystemFailure
  explicit XdpSocket(const Settings& settings);
  ~XdpSocket() { close(); }
  XdpSocket(const XdpSocket&) = delete;
  XdpSocket& operator=(const XdpSocket&) = delete;

  void close();
  int fd() const { return fd_; }
  /// Whether frames may have several buffers, in and out: Linux 6.6.
  bool fragments() const { return fragments_; }
  /// Whether frames to send are taken at a call only.
  bool sleeps() const { return settings_.copying == XdpCopying::copy || tx_.needsWakeup(); }
  uint32_t slotBytes() const { return settings_.slotBytes; }
  const XdpRing& received() const { return rx_; }
  const XdpRing& sending() const { return tx_; }
  const XdpRing& completed() const { return completion_; }
  /// Whether a received descriptor is a stretch of the memory to receive into. Nothing else about it is trusted.
  bool isSound(const xdp_desc& descriptor) const {
    const uint64_t start = offsetOf(descriptor);
    return start < sendBase_ && descriptor.len <= sendBase_ - start;
  }
  /// Where the bytes of a sound descriptor are.
  uint8_t* at(const xdp_desc& descriptor) const { return settings_.memory + offsetOf(descriptor); }
  /// The memory of a place to send from, and its address in the UMEM.
  uint64_t slotAddress(uint32_t slot) const { return sendBase_ + uint64_t{slot} * settings_.slotBytes; }
  uint8_t* slotMemory(uint32_t slot) const { return settings_.memory + slotAddress(slot); }
  /// The place at an address; kNoSlot where there is none.
  static constexpr uint32_t kNoSlot = 0xffff'ffff;
  uint32_t slotOf(uint64_t address) const {
    const uint64_t slot = (address - sendBase_) / settings_.slotBytes;
    return address < sendBase_ || slot >= settings_.sendSlots ? kNoSlot : static_cast<uint32_t>(slot);
  }

  /// Gives the kernel back the chunk of a received descriptor, to receive into; seen by it after `publishFill`. One that is not
  /// sound is left out.
  void refill(const xdp_desc& descriptor);
  void publishFill();
  /// The kernel's counts of frames that it dropped for this socket. False if it gives none.
  bool statistics(xdp_statistics& statistics) const;

 private:
  // In memory of overlapping chunks an address has the offset in its chunk on top (af_xdp.rst).
  static constexpr int kOffsetShift = 48;
  static constexpr uint64_t kAddressMask = (uint64_t{1} << kOffsetShift) - 1;
  static uint64_t offsetOf(const xdp_desc& descriptor) {
    return (descriptor.addr & kAddressMask) + (descriptor.addr >> kOffsetShift);
  }

  void open();
  void mapRing(XdpRing& ring, const xdp_ring_offset& offsets, uint64_t page, uint32_t entries, size_t entryBytes);
  void fillAll();

  Settings settings_;
  int fd_ = -1;
  bool fragments_ = true;
  /// Chunks overlap by the headroom, so that what follows one is what follows in memory: copying only.
  bool tape_;
  uint64_t sendBase_ = 0;
  uint32_t filled_ = 0;
  XdpRing rx_, tx_, fill_, completion_;
};

}  // namespace roce
