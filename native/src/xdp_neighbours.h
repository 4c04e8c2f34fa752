// The kernel's routes and neighbours (rtnetlink(7)), for frames that are made without it: by which next hop a destination is
// reached, that hop's MAC address, and word of changes.
#pragma once
#include <array>
#include <cstdint>
#include <vector>

#include "address.h"

struct nlmsghdr;

namespace roce {

using Mac = std::array<uint8_t, 6>;

/// How packets to a destination leave.
struct Hop {
  /// False: not by this interface, or not at all.
  bool here = false;
  /// The gateway, or the destination itself.
  Gid gid{};
};

/// A change that the kernel has reported since the last read.
struct NeighbourChange {
  /// Routes changed, or messages were lost: everything is to be looked up again.
  bool all = false;
  /// The interface has another MAC address or MTU, perhaps.
  bool link = false;
  Gid gid{};
  bool known = false;
  Mac mac{};
};

class Neighbours {
 public:
  /// @throws SystemFailure
  explicit Neighbours(uint32_t interfaceIndex);
  ~Neighbours() { close(); }
  Neighbours(const Neighbours&) = delete;
  Neighbours& operator=(const Neighbours&) = delete;

  void close();
  /// Readable when there are changes; -1 once closed.
  int fd() const { return events_; }
  /// The route that the kernel would take.
  Hop hop(const Gid& destination, const Gid& source);
  /// The MAC address of a neighbour. False while the kernel knows none.
  bool find(const Gid& neighbour, Mac& mac);
  std::vector<NeighbourChange> take();
  /// The MAC address of a group (RFC 1112 §6.4, RFC 2464 §7).
  static Mac ofGroup(const Gid& group);

 private:
  /// Sends a request and receives its answer. @returns nullptr where that is an error
  const nlmsghdr* ask(const nlmsghdr& request);

  uint32_t interface_;
  int requests_ = -1, events_ = -1;
  uint32_t sequence_ = 0;
  alignas(8) std::array<uint8_t, 8192> answer_;
};

}  // namespace roce
