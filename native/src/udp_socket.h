// A UDP socket set up for RoCE; closed with its last owner.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "address.h"

struct sock_filter;

namespace roce {

/// The default TTL or hop limit, to one receiver or to a group.
inline constexpr uint8_t kUsualHopLimit = 64;

/// A system call that failed, thrown by what opens and configures sockets.
struct SystemFailure {
  int errnum;
  const char* syscall;
};

/// The index of a network interface, asked by a socket of any family: if_nametoindex(3) opens one of its own, and
/// returns ENODEV where there is no descriptor for it. @throws SystemFailure
uint32_t interfaceIndex(int fd, const std::string& name);

struct SocketOptions {
  Endpoint local;
  /// A bound socket to set up instead of a new one, by another descriptor of it; -1 for none.
  int descriptor = -1;
  bool reusePort = false;
  /// Bytes the kernel may charge to the queues; 0 leaves the system's default.
  uint32_t receiveBuffer = 0;
  uint32_t sendBuffer = 0;
  bool gro = false;
  /// False sends with UDP checksum 0.
  bool checksum = true;
  /// False drops whatever arrives, in the kernel.
  bool receive = true;
  /// A network device to be bound to; empty for none.
  std::string device;
  /// Name of the interface that packets to groups leave by, whatever index it has when a socket is opened;
  /// empty: the one that has the local address (IPv4) or that its scope names, else that of the route.
  std::string multicastInterface;
};

class UdpSocket {
 public:
  /// Opens and binds, or takes a bound one. @throws SystemFailure
  explicit UdpSocket(const SocketOptions& options);
  ~UdpSocket() { close(); }
  UdpSocket(const UdpSocket&) = delete;
  UdpSocket& operator=(const UdpSocket&) = delete;

  /// -1 once closed.
  int fd() const { return fd_; }
  void close();
  /// The address that it is bound to, with the real port when 0 was asked for.
  const Endpoint& local() const { return local_; }
  const SocketOptions& options() const { return options_; }
  /// Whether the kernel takes UDP_GRO.
  bool gro() const { return gro_; }
  /// Bytes granted, in the kernel's own accounting: twice the asked.
  uint32_t receiveBuffer() const;
  uint32_t sendBuffer() const;
  /// Datagrams the kernel dropped at this socket since it was opened (the count SO_RXQ_OVFL reports).
  uint32_t drops() const;
  /// Which socket of a group that shares an address and port (SO_REUSEPORT) gets a datagram. The program sees the datagram
  /// from its UDP payload on, and returns an index in the order in which the sockets were bound. @throws SystemFailure
  void steer(sock_filter* program, uint16_t length);
  /// Has the kernel drop whatever arrives, or not any more. It holds for every process that has the socket.
  /// @throws SystemFailure
  void mute(bool on);
  /// Makes the kernel report the arrival time of each datagram. @throws SystemFailure
  void stamp();
  /// Joins or leaves a group; `interfaceIndex` 0 lets the routes choose. @throws SystemFailure
  void setMembership(const Endpoint& group, uint32_t interfaceIndex, bool join);

 private:
  void set(int level, int option, int value, const char* syscall = "setsockopt");
  bool trySet(int level, int option, int value);
  uint32_t get(int level, int option) const;
  uint32_t allDrops() const;
  void open();
  void configure();
  void chooseMulticastInterface();

  int fd_ = -1;
  bool gro_ = false;
  uint32_t earlierDrops_ = 0;
  Endpoint local_;
  SocketOptions options_;
};

}  // namespace roce
