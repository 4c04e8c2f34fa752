// The sockets that one local address sends from: one a UDP source port, so that ECMP and RSS see the
// flows apart, made when a port is first asked for and never more than a few.
#pragma once
#include <array>
#include <memory>
#include <vector>

#include "udp_socket.h"

namespace roce {

class TransmitPool {
 public:
  struct Settings {
    uint32_t capacity = 16;
    bool udpChecksum = true;
    uint32_t sendBuffer = 0;
  };

  /// @param receiver the socket of the local address; packets leave from it when its own port is asked
  ///   for, or there is no other socket
  TransmitPool(std::shared_ptr<UdpSocket> receiver, const Settings& settings);

  /// The socket for packets that want to leave from `sourcePort`. Where the pool is full or the port
  /// taken it is another socket of the pool, the same for every packet with that port; its own port is
  /// then what goes on the wire, and into the ICRC. With port 0 any will do. Where none can be opened
  /// (EMFILE) it is the receiver's.
  /// @throws SystemFailure EBADF when that is closed
  UdpSocket& socketFor(uint16_t sourcePort);

  /// Whether packets may leave from this socket.
  bool has(const UdpSocket& socket) const;

  size_t size() const { return sockets_.size(); }

 private:
  UdpSocket& choose(uint16_t sourcePort);
  /// nullptr where the kernel refuses.
  UdpSocket* tryOpen(uint16_t sourcePort);

  std::shared_ptr<UdpSocket> receiver_;
  Settings settings_;
  std::vector<std::unique_ptr<UdpSocket>> sockets_;
  /// Earlier choices for ports: a direct-mapped cache of fixed size.
  struct Route {
    UdpSocket* socket = nullptr;
    uint16_t sourcePort = 0;
  };
  std::array<Route, 256> routes_{};
};

}  // namespace roce
