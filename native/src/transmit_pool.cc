#include "transmit_pool.h"

#include <algorithm>
#include <cerrno>

namespace roce {

TransmitPool::TransmitPool(std::shared_ptr<UdpSocket> receiver, const Settings& settings)
    : receiver_(std::move(receiver)), settings_(settings) {}

UdpSocket& TransmitPool::socketFor(uint16_t sourcePort) {
  Route& route = routes_[sourcePort % routes_.size()];
  if (route.socket == nullptr || route.sourcePort != sourcePort) route = {&choose(sourcePort), sourcePort};
  if (route.socket->fd() < 0) throw SystemFailure{EBADF, "sendmmsg"};  // the receiver's, closed since
  return *route.socket;
}

bool TransmitPool::has(const UdpSocket& socket) const {
  return &socket == receiver_.get() ||
         std::any_of(sockets_.begin(), sockets_.end(), [&](const auto& each) { return each.get() == &socket; });
}

UdpSocket& TransmitPool::choose(uint16_t sourcePort) {
  if (sourcePort == receiver_->local().port()) return *receiver_;
  for (const auto& socket : sockets_)
    if (socket->local().port() == sourcePort) return *socket;

  const bool any = sourcePort == 0 && !sockets_.empty();
  if (!any && sockets_.size() < settings_.capacity) {
    if (UdpSocket* socket = tryOpen(sourcePort)) return *socket;
    // The port is someone else's: a port of the kernel's choice, if there is nothing else yet.
    if (sockets_.empty())
      if (UdpSocket* socket = tryOpen(0)) return *socket;
  }
  if (sockets_.empty()) return *receiver_;
  return *sockets_[sourcePort % sockets_.size()];
}

UdpSocket* TransmitPool::tryOpen(uint16_t sourcePort) {
  SocketOptions options;
  options.local = receiver_->local();
  options.local.setPort(sourcePort);
  options.device = receiver_->options().device;
  options.multicastInterface = receiver_->options().multicastInterface;
  options.sendBuffer = settings_.sendBuffer;
  options.checksum = settings_.udpChecksum;
  options.receive = false;
  try {
    sockets_.push_back(std::make_unique<UdpSocket>(options));
    return sockets_.back().get();
  } catch (const SystemFailure&) {
    return nullptr;
  }
}

}  // namespace roce
