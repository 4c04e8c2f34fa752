// A local address of a port: where packets for it arrive and from where packets leave.
#pragma once
#include <memory>

#include "icrc.h"
#include "transmit_pool.h"
#include "udp_socket.h"

namespace roce {

struct Local {
  Local(std::shared_ptr<UdpSocket> bound, const TransmitPool::Settings& settings)
      : socket(std::move(bound)),
        gid(socket->local().gid()),
        pseudo(Gid{}, gid),
        transmit(socket, settings) {}

  std::shared_ptr<UdpSocket> socket;
  Gid gid;
  /// The first index of the port that has this address. Several sockets may have one: that of queue pair 1, and that of all others. Packets
  /// that come from one source to any of them are one flow.
  uint32_t firstOfAddress = 0;
  /// Of datagrams to this address; source, ports and length are those of the datagram at hand.
  PseudoHeader pseudo;
  TransmitPool transmit;
  /// Milliseconds of the receiver's clock at which the socket was last seen to be empty, once it was:
  /// what is received after that arrived after that.
  uint32_t emptyMs = 0;
  bool emptySeen = false;
};

}  // namespace roce
