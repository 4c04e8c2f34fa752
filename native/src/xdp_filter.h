// The program on the interface that takes packets for an AF_XDP link, and its maps. It goes with the process: the kernel
// detaches a bpf_link when its last descriptor is closed, however that comes.
#pragma once
#include <cstddef>
#include <cstdint>

#include "address.h"

namespace roce {

/// Where the program runs: in the driver, or in the kernel's general receive path.
enum class XdpMode { native, generic };

class XdpFilter {
 public:
  /// Bits of an address.
  enum Flag : uint32_t {
    /// Takes what is for queue pair 1, too.
    kServices = 1,
    /// The address of a group: takes packets for any queue pair, whatever the destination MAC address.
    kGroup = 2,
  };

  /// Makes the maps and loads the program. Nothing is attached yet. @throws SystemFailure
  XdpFilter(uint32_t queues, uint16_t port);
  ~XdpFilter() { close(); }
  XdpFilter(const XdpFilter&) = delete;
  XdpFilter& operator=(const XdpFilter&) = delete;

  /// @throws SystemFailure EBUSY or EEXIST where another program is there, EOPNOTSUPP or ERANGE where the driver takes none
  void attach(int interfaceIndex, XdpMode mode);
  void detach();
  /// Takes packets for an address. @throws SystemFailure
  void setAddress(const Gid& gid, uint32_t flags);
  void removeAddress(const Gid& gid);
  /// Takes packets for a queue pair, or leaves them to the kernel. Costs no system call.
  void setQueuePair(uint32_t qpn, bool on);
  void setMac(const uint8_t* mac);
  /// Gives what comes in at a receive queue to a socket. @throws SystemFailure
  void setSocket(uint32_t queue, int fd);
  /// Whether frames of more than one buffer pass the program.
  bool fragments() const { return fragments_; }

 private:
  void close();
  int load(uint16_t port, bool fragments) const;

  int sockets_ = -1, addresses_ = -1, numbers_ = -1, program_ = -1, link_ = -1;
  bool fragments_ = true;
  /// The bits of queue pairs, and behind them the MAC address: the memory of the map itself.
  uint64_t* words_ = nullptr;
};

}  // namespace roce
