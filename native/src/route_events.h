// Events of one network interface from the kernel's rtnetlink(7): up, down, addresses. Needs no privilege.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "address.h"

struct nlmsghdr;

namespace roce {

struct RouteEvent {
  /// `gone`: the interface was deleted, or went to another network namespace.
  enum Kind { up, down, gone, added, removed, overrun } kind;
  /// Of `added` and `removed`.
  Gid address{};
};

class RouteEvents {
 public:
  /// Listens from now on. @throws SystemFailure (ENODEV where there is no such interface)
  explicit RouteEvents(std::string interface);
  ~RouteEvents() { close(); }
  RouteEvents(const RouteEvents&) = delete;
  RouteEvents& operator=(const RouteEvents&) = delete;

  /// -1 once closed.
  int fd() const { return fd_; }
  void close();
  /// Takes the events since the last call. `overrun`: the kernel dropped some.
  std::vector<RouteEvent> take();

 private:
  void read(const nlmsghdr& message, std::vector<RouteEvent>& events);

  std::string interface_;
  int index_ = 0;
  int fd_ = -1;
};

}  // namespace roce
