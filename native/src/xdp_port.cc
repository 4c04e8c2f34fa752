#include "xdp_port.h"

#include <linux/ethtool.h>
#include <linux/if_ether.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "arguments.h"
#include "clock.h"
#include "udp_socket.h"

namespace roce {
namespace {

constexpr uint32_t kMostQueues = 64;
/// Packets to addresses of the link itself that may wait.
constexpr uint32_t kLoopSlots = 256;
/// Room for frames of several buffers that do not lie side by side, of one batch.
constexpr size_t kScratchBytes = 2u << 20;
/// Milliseconds between two reads of the kernel's events, while no thread sleeps on them.
constexpr uint32_t kRefreshMs = 50;
constexpr size_t kPage = 4096;

size_t pages(size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

/// A descriptor for ioctl(2) on interfaces.
class Control {
 public:
  Control() : fd_(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
    if (fd_ < 0) throw SystemFailure{errno, "socket"};
  }
  ~Control() { ::close(fd_); }
  Control(const Control&) = delete;
  Control& operator=(const Control&) = delete;
  int fd() const { return fd_; }

 private:
  int fd_;
};

/// The queues that an interface receives by; 0 for a driver without channels. (/sys may show another network namespace.)
uint32_t receiveQueues(const std::string& interface) {
  const Control control;
  ethtool_channels channels{};
  channels.cmd = ETHTOOL_GCHANNELS;
  ifreq request{};
  interface.copy(request.ifr_name, IFNAMSIZ - 1);
  request.ifr_data = reinterpret_cast<char*>(&channels);
  return ioctl(control.fd(), SIOCETHTOOL, &request) == 0 ? channels.rx_count + channels.combined_count : 0;
}

bool isPowerOfTwo(uint32_t value) { return value != 0 && (value & (value - 1)) == 0; }

}  // namespace

struct XdpPort::Memory {
  explicit Memory(size_t wanted) : bytes(wanted) {
    void* mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) throw SystemFailure{errno, "mmap"};
    data = static_cast<uint8_t*>(mapped);
    // A child would copy the pages on its first write, and the kernel go on with those of whom it knows.
    madvise(data, bytes, MADV_DONTFORK);
  }
  ~Memory() { munmap(data, bytes); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  uint8_t* data;
  size_t bytes;
};

void XdpPort::define(Napi::Env env, Napi::Object exports) {
  exports.Set("XdpPort", DefineClass(env, "XdpPort",
                                     withMethods<XdpPort>({
                                         // No getters: node-addon-api's take whatever object they are called on for a port.
                                         InstanceMethod<&XdpPort::memory>("memory"),
                                         InstanceMethod<&XdpPort::fragments>("fragments"),
                                         InstanceMethod<&XdpPort::addLocal>("addLocal"),
                                         InstanceMethod<&XdpPort::removeLocal>("removeLocal"),
                                         InstanceMethod<&XdpPort::setQueuePair>("setQueuePair"),
                                         InstanceMethod<&XdpPort::wantWrite>("wantWrite"),
                                         InstanceMethod<&XdpPort::stats>("stats"),
                                         InstanceMethod<&XdpPort::close>("close"),
                                     })));
}

XdpPort::XdpPort(const Napi::CallbackInfo& info)
    : ObjectWrap(info), LinkPort(*this, info) {
  const Napi::Env env = info.Env();
  const Options options(env, info[0], "options");
  interface_ = options.string("interface", nullptr);
  if (interface_.empty() || interface_.size() >= IF_NAMESIZE || interface_.find('\0') != std::string::npos)
    throw rangeError(env, "interface must be a name of an interface");
  port_ = static_cast<uint16_t>(options.integer("port", 1, 0xffff, 4791));
  Opening opening{};
  opening.queues = options.integer("queues", 1, 0xffff, 1);
  opening.mode = options.boolean("generic", false) ? XdpMode::generic : XdpMode::native;
  opening.copying = options.boolean("zeroCopy", false) ? XdpCopying::zeroCopy : XdpCopying::copy;
  opening.receiveChunks = options.integer("receiveChunks", 64, 1u << 16, 4096);
  opening.sendSlots = options.integer("sendSlots", 64, 1u << 16, 1024);
  opening.slotBytes = options.boolean("largeSlots", false) ? 2 * XdpSocket::kChunk : XdpSocket::kChunk;
  opening.waits = options.boolean("waits", false);
  opening.flushTwiceIn = options.boolean("takeFlushTwice", false);
  opening.flushTwiceOut = options.boolean("sendFlushTwice", false);
  if (!isPowerOfTwo(opening.receiveChunks) || !isPowerOfTwo(opening.sendSlots))
    throw rangeError(env, "receiveChunks and sendSlots must be powers of two");
  try {
    open(opening);
  } catch (const SystemFailure& failure) {
    shut();
    throw systemError(env, failure.errnum, failure.syscall, interface_);
  }
}

XdpPort::~XdpPort() {
  // The environment may be going: nothing here may need JavaScript.
  waker_.reset();
  shut();
}

void XdpPort::open(const Opening& opening) {
  // First what lacks a capability, then what is not possible on the interface.
  const uint32_t answered = receiveQueues(interface_);
  const uint32_t all = answered != 0 ? answered : opening.queues;
  const uint32_t queues = std::min(all, kMostQueues);
  queuesWithoutSocket_ = all - queues;
  filter_.emplace(queues, port_);
  readInterface();

  // One stretch of memory for all queues: offsets into it are offsets into the slab. Only the first queue sends.
  const size_t first = pages(XdpSocket::bytesFor(opening.receiveChunks, opening.sendSlots, opening.slotBytes));
  const size_t other = pages(XdpSocket::bytesFor(opening.receiveChunks, 0, opening.slotBytes));
  const size_t sockets = first + (queues - 1) * other;
  const size_t loop = size_t{kLoopSlots} * XdpSender::kLoopStride;
  memory_ = std::make_shared<Memory>(sockets + kScratchBytes + loop);
  for (uint32_t queue = 0; queue < queues; queue++) {
    uint8_t* at = memory_->data + (queue == 0 ? 0 : first + (queue - 1) * other);
    sockets_.push_back(std::make_unique<XdpSocket>(XdpSocket::Settings{
        interfaceIndex_, queue, opening.copying, at, opening.receiveChunks, queue == 0 ? opening.sendSlots : 0,
        opening.slotBytes, opening.waits}));
    filter_->setSocket(queue, sockets_.back()->fd());
  }
  filter_->attach(interfaceIndex_, opening.mode);

  ways_.emplace(interfaceIndex_, ethernet_, peers_);
  XdpReceiver::Settings receiving{};
  receiving.memory = memory_->data;
  receiving.scratch = memory_->data + sockets;
  receiving.scratchBytes = kScratchBytes;
  receiving.port = port_;
  receiving.flushTwice = opening.flushTwiceIn;
  receiving.loopback = !ethernet_;
  receiver_ = std::make_unique<XdpReceiver>(crc_, receiving, stats_, peers_, localIndex_, queuePairs_);
  XdpSender::Settings sending;
  sending.flushTwice = opening.flushTwiceOut;
  sending.loop = memory_->data + sockets + kScratchBytes;
  sending.loopSlots = kLoopSlots;
  sending.sendSlots = opening.sendSlots;
  sender_ = std::make_unique<XdpSender>(crc_, sending, stats_, peers_, *ways_, *sockets_[0]);
  readInterface();

  openWaker();
  for (uint32_t i = 0; i < sockets_.size(); i++) waker_->watch(sockets_[i]->fd(), i);
  waker_->watch(ways_->fd(), kMostQueues);
}

void XdpPort::readInterface() {
  const Control control;
  ifreq request{};
  int errnum = 0;
  const auto ask = [&](unsigned long what) {
    if (errnum == 0 && ioctl(control.fd(), what, &request) != 0) errnum = errno;
  };
  if (interfaceIndex_ == 0) {
    interface_.copy(request.ifr_name, IFNAMSIZ - 1);
    ask(SIOCGIFINDEX);
  } else {
    // It may be called otherwise by now, and another one as it was.
    request.ifr_ifindex = interfaceIndex_;
    ask(SIOCGIFNAME);
  }
  const int index = interfaceIndex_ == 0 ? request.ifr_ifindex : interfaceIndex_;
  ask(SIOCGIFHWADDR);
  const int type = request.ifr_hwaddr.sa_family;
  Mac mac;
  std::memcpy(mac.data(), request.ifr_hwaddr.sa_data, mac.size());
  ask(SIOCGIFMTU);
  const int mtu = request.ifr_mtu;
  if (errnum != 0) throw SystemFailure{errnum, "ioctl"};
  if (type != ARPHRD_ETHER && type != ARPHRD_LOOPBACK) throw SystemFailure{EPROTONOSUPPORT, "ioctl"};
  interfaceIndex_ = index;
  ethernet_ = type == ARPHRD_ETHER;
  filter_->setMac(mac.data());
  if (ways_) ways_->setMac(mac);
  if (sender_) sender_->setMtu(static_cast<uint32_t>(mtu));
}

void XdpPort::shut() {
  if (filter_) filter_->detach();
  countDrops(pastDrops_);
  sender_.reset();
  receiver_.reset();
  ways_.reset();
  sockets_.clear();
  filter_.reset();
  memory_.reset();
  peers_ = PeerTable{};
  localIndex_.clear();
  queuePairs_.clear();
  locals_.clear();
  regions_.release();
}

/// memory(): the slab in which packets stay in place.
Napi::Value XdpPort::memory(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  expectOpen(env);
  auto* shared = new std::shared_ptr<Memory>(memory_);
  const Napi::ArrayBuffer buffer = Napi::ArrayBuffer::New(
      env, memory_->data, memory_->bytes, [](Napi::BasicEnv, void*, std::shared_ptr<Memory>* kept) { delete kept; },
      shared);
  return Napi::Uint8Array::New(env, memory_->bytes, buffer, 0);
}

/// fragments(): whether frames may have several buffers.
Napi::Value XdpPort::fragments(const Napi::CallbackInfo& info) {
  expectOpen(info.Env());
  return Napi::Boolean::New(info.Env(), filter_->fragments() && sockets_[0]->fragments());
}

namespace {

Gid gidArgument(const Napi::CallbackInfo& info, size_t index) {
  const Bytes bytes = bytesArgument(info, index, "address");
  Gid gid;
  if (bytes.length != gid.size()) throw typeError(info.Env(), "address must be a Uint8Array of 16 bytes");
  std::memcpy(gid.data(), bytes.data, gid.size());
  return gid;
}

}  // namespace

/// addLocal(address, services): takes packets for an address; returns its index.
Napi::Value XdpPort::addLocal(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  expectOpen(env);
  const Gid gid = gidArgument(info, 0);
  const bool services = booleanArgument(info, 1, "services");
  if (isWildcard(gid)) throw rangeError(env, "address must not be the unspecified address");
  if (localIndex_.count(gid) != 0) throw rangeError(env, "address must not be in the port already");
  if (locals_.size() == kMostLocals) throw rangeError(env, "a port has at most 1024 local addresses");
  const uint32_t flags = isMulticast(gid) ? XdpFilter::kGroup : services ? XdpFilter::kServices : 0;
  try {
    filter_->setAddress(gid, flags);
  } catch (const SystemFailure& failure) {
    throw systemError(env, failure.errnum, failure.syscall);
  }
  const auto free = std::find_if(locals_.begin(), locals_.end(), [](const Local& local) { return !local.live; });
  const auto index = static_cast<uint32_t>(free - locals_.begin());
  if (free == locals_.end()) locals_.push_back({gid, true});
  else *free = {gid, true};
  localIndex_[gid] = index;
  return Napi::Number::New(env, index);
}

/// removeLocal(local): its index may be another address's later.
void XdpPort::removeLocal(const Napi::CallbackInfo& info) {
  expectOpen(info.Env());
  const uint32_t index = freeLocalArgument(info);
  filter_->removeAddress(locals_[index].gid);
  localIndex_.erase(locals_[index].gid);
  locals_[index].live = false;
}

LinkPort::Source XdpPort::sourceOf(uint32_t index) const {
  const bool live = index < locals_.size() && locals_[index].live;
  return {live ? &locals_[index].gid : nullptr, static_cast<uint32_t>(interfaceIndex_)};
}

void XdpPort::peerAdded(uint32_t index, const Gid& source) {
  const Gid& gid = peers_.at(index)->gid;
  ways_->add(index, source, localIndex_.count(gid) != 0 && !isMulticast(gid));
}

/// setQueuePair(qpn, on): whether packets for it are the link's, or the kernel's.
void XdpPort::setQueuePair(const Napi::CallbackInfo& info) {
  expectOpen(info.Env());
  const uint32_t qpn = integerArgument(info, 0, "qpn", 0xff'ffff);
  const bool on = booleanArgument(info, 1, "on");
  filter_->setQueuePair(qpn, on);
  if (on) queuePairs_.insert(qpn);
  else queuePairs_.erase(qpn);
}

uint32_t XdpPort::sendBatch(const TxArrays& arrays, uint32_t from, uint32_t count) {
  if (sender_->missed()) refresh();
  const uint32_t taken = sender_->send(arrays, regions_, from, count);
  // Later turns again ask the kernel to take the remaining frames, and for free places once frames have left.
  retry(sender_->blocked() || !sender_->kick());
  return taken;
}

uint32_t XdpPort::receiveBatch(const RxArrays& arrays) {
  const uint32_t now = coarseMs();
  if (now - refreshedMs_ >= kRefreshMs) {
    refreshedMs_ = now;
    refresh();
  }
  sender_->recycle(loopTaken_);
  loopTaken_ = 0;
  receiver_->begin(arrays);
  for (const auto& [frame, bytes] : sender_->looped()) {
    if (receiver_->count() == arrays.capacity) break;
    receiver_->take(frame, bytes, true);
    loopTaken_++;
  }
  // Each time another queue is first.
  for (uint32_t i = 0; i < sockets_.size(); i++) receiver_->drain(*sockets_[(nextQueue_ + i) % sockets_.size()]);
  nextQueue_++;
  return receiver_->count();
}

void XdpPort::refresh() {
  if (!ways_->refresh()) return;
  try {
    readInterface();
  } catch (const SystemFailure&) {
    // It is gone; nothing comes from it any more.
  }
}

void XdpPort::wantWrite(const Napi::CallbackInfo& info) {
  expectOpen(info.Env());
  wantsWrite_ = booleanArgument(info, 0, "on");
  retry(!sender_->kick());
}

void XdpPort::woken() {
  refresh();
  if (retrying_) retry(!sender_->kick());
}

void XdpPort::retry(bool more) {
  const bool wanted = more || wantsWrite_;
  if (wanted == retrying_) return;
  wanted ? waker_->retryWrite() : waker_->watchWrite(-1);
  retrying_ = wanted;
}

void XdpPort::countDrops(uint64_t (&drops)[5]) const {
  for (const auto& socket : sockets_) {
    xdp_statistics statistics{};
    if (!socket->statistics(statistics)) continue;
    drops[0] += statistics.rx_dropped;
    drops[1] += statistics.rx_ring_full;
    drops[2] += statistics.rx_fill_ring_empty_descs;
    drops[3] += statistics.rx_invalid_descs;
    drops[4] += statistics.tx_invalid_descs;
  }
}

Napi::Value XdpPort::stats(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  uint64_t drops[5];
  std::copy(std::begin(pastDrops_), std::end(pastDrops_), drops);
  countDrops(drops);
  const auto queues = static_cast<uint64_t>(
      std::count_if(sockets_.begin(), sockets_.end(), [](const auto& socket) { return socket->received().loadConsumer() != 0; }));
  Napi::Object into = Napi::Object::New(env);
  setCounts(into, stats_, kXdpStatFields);
  setCount(into, "queuesUsed", queues);
  setCount(into, "queuesWithoutSocket", queuesWithoutSocket_);
  setCount(into, "kernelDrops", drops[0] + drops[1]);
  setCount(into, "kernelRingFull", drops[1]);
  setCount(into, "kernelFillEmpty", drops[2]);
  setCount(into, "kernelBadReceive", drops[3]);
  setCount(into, "kernelBadSend", drops[4]);
  return into;
}

void XdpPort::close(const Napi::CallbackInfo&) {
  if (!waker_) return;
  waker_.reset();
  shut();
  letGo();
}

}  // namespace roce
