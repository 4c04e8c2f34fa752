#include "process_memory.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <thread>
#include <vector>

#include "arguments.h"

#ifndef SYS_pidfd_send_signal
#define SYS_pidfd_send_signal 424
#endif
#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif

namespace roce {
namespace {

constexpr uint64_t kAddressEnd = uint64_t{1} << 47;
/// An access that takes longer waits for a userfaultfd or a file system in user space that does not answer.
constexpr int kPatienceMs = 5000;
constexpr int kLookMs = 500;

/// Ends processes whose memory blocks the thread that accesses it: the kernel lets no signal of ours interrupt such an access. One
/// thread for all environments, started with the first process.
class Watcher {
 public:
  static Watcher& get() {
    static Watcher& only = *new Watcher;  // Its thread may outlive every environment.
    return only;
  }

  void add(const std::shared_ptr<WatchedProcess>& process) {
    const std::lock_guard<std::mutex> guard(lock_);
    if (!started_) std::thread([this] { run(); }).detach();
    started_ = true;
    watched_.push_back(process);
  }

 private:
  [[noreturn]] void run() {
    for (;;) {
      std::this_thread::sleep_for(std::chrono::milliseconds(kLookMs));
      look();
    }
  }

  void look() {
    const std::lock_guard<std::mutex> guard(lock_);
    watched_.erase(std::remove_if(watched_.begin(), watched_.end(), [](const auto& one) { return one.expired(); }),
                   watched_.end());
    for (const auto& one : watched_) {
      const auto process = one.lock();
      if (!process) continue;
      // Looks are counted, not time: while we are stopped (job control, a debugger), no access goes on.
      const uint64_t access = process->access.load();
      process->looks = access == process->seen ? process->looks + 1 : 0;
      process->seen = access;
      if (access == 0 || process->looks != kPatienceMs / kLookMs || process->handle < 0) continue;
      if (syscall(SYS_pidfd_send_signal, process->handle, SIGKILL, nullptr, 0) == 0)
        fprintf(stderr, "process %d was ended: its memory did not answer for %d s\n", static_cast<int>(process->pid),
                kPatienceMs / 1000);
    }
  }

  std::mutex lock_;
  bool started_ = false;
  std::vector<std::weak_ptr<WatchedProcess>> watched_;
};

/// One access, as the watcher sees it.
class Access {
 public:
  explicit Access(WatchedProcess& process) : process_(process) { process_.access.store(++process_.accesses); }
  ~Access() { process_.access.store(0); }

 private:
  WatchedProcess& process_;
};

/// Where an access goes: a range of a view, and an address.
struct Place {
  uint8_t* bytes;
  size_t length;
  off_t address;
};

/// The arguments (bytes, offset, length, address).
Place placeArgument(const Napi::CallbackInfo& info) {
  const Bytes bytes = bytesArgument(info, 0, "bytes");
  const double offset = info[1].IsNumber() ? info[1].As<Napi::Number>().DoubleValue() : -1;
  const double length = info[2].IsNumber() ? info[2].As<Napi::Number>().DoubleValue() : -1;
  const double address = info[3].IsNumber() ? info[3].As<Napi::Number>().DoubleValue() : -1;
  const auto most = static_cast<double>(bytes.length);
  if (!(offset >= 0 && length >= 0 && offset <= most && length <= most - offset))
    throw rangeError(info.Env(), "offset and length must lie in bytes");
  if (!(address >= 0 && address + length <= static_cast<double>(kAddressEnd)))
    throw rangeError(info.Env(), "address must end at 2^47 at most");
  return {bytes.data + static_cast<size_t>(offset), static_cast<size_t>(length), static_cast<off_t>(address)};
}

/// Calls `once` until all is done. @returns whether it is
template <typename Call>
bool whole(Place place, Call once) {
  while (place.length > 0) {
    const ssize_t n = once(place);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    place.bytes += n;
    place.length -= static_cast<size_t>(n);
    place.address += n;
  }
  return true;
}

/// A position that only memories and a few devices have: of files, the kernel refuses it and asks no file system.
constexpr off_t kHighPosition = static_cast<off_t>(uint64_t{0xffff'8000} << 32);

/// Whether it is a file of /proc that was opened for both ways: no other file system is in the way of an access.
bool isMemory(int fd) {
  struct statfs about;
  const int flags = fcntl(fd, F_GETFL);
  if (flags < 0 || (flags & O_ACCMODE) != O_RDWR) return false;
  char path[64], target[64];
  snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
  // First by its name, which is the kernel's: a file system that its owner serves may never answer fstatfs.
  const ssize_t length = readlink(path, target, sizeof target - 1);
  if (length <= 4 || std::memcmp(target + length - 4, "/mem", 4) != 0) return false;
  // A file of that name may be anyone's.
  if (lseek(fd, kHighPosition, SEEK_SET) != kHighPosition) return false;
  return fstatfs(fd, &about) == 0 && about.f_type == PROC_SUPER_MAGIC;
}

/// descriptorPair(): both ends of a connection that carries descriptors.
Napi::Value descriptorPair(const Napi::CallbackInfo& info) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, ends) != 0) throw systemError(info.Env(), errno, "socketpair");
  const auto pair = Napi::Array::New(info.Env(), 2);
  for (uint32_t i = 0; i < 2; i++) pair.Set(i, Napi::Number::New(info.Env(), ends[i]));
  return pair;
}

/// receiveDescriptor(end): the descriptor that waits, or -1.
Napi::Value receiveDescriptor(const Napi::CallbackInfo& info) {
  const int end = static_cast<int>(integerArgument(info, 0, "end", 0x7fff'ffff));
  char byte;
  iovec data = {&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  // Without the padding of CMSG_SPACE: the kernel would put a second descriptor there.
  message.msg_controllen = CMSG_LEN(sizeof(int));
  int fd = -1;
  if (recvmsg(end, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC) >= 0)
    if (const cmsghdr* header = CMSG_FIRSTHDR(&message);
        header != nullptr && header->cmsg_type == SCM_RIGHTS && header->cmsg_len == CMSG_LEN(sizeof fd))
      std::memcpy(&fd, CMSG_DATA(header), sizeof fd);
  return Napi::Number::New(info.Env(), fd);
}

/// peerProcess(socket): the process at the other end of a Unix socket, as the kernel knows it; 0 if it has no number here.
Napi::Value peerProcess(const Napi::CallbackInfo& info) {
  const int socket = static_cast<int>(integerArgument(info, 0, "socket", 0x7fff'ffff));
  ucred peer;
  socklen_t length = sizeof peer;
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) throw systemError(info.Env(), errno, "getsockopt");
  return Napi::Number::New(info.Env(), peer.pid);
}

}  // namespace

WatchedProcess::WatchedProcess(pid_t id)
    : pid(id), handle(id > 0 ? static_cast<int>(syscall(SYS_pidfd_open, id, 0)) : -1) {}

WatchedProcess::~WatchedProcess() {
  if (handle >= 0) ::close(handle);
}

void ProcessMemory::define(Napi::Env env, Napi::Object exports) {
  exports.Set("ProcessMemory", DefineClass(env, "ProcessMemory",
                                           {
                                               InstanceMethod<&ProcessMemory::pull>("pull"),
                                               InstanceMethod<&ProcessMemory::push>("push"),
                                               InstanceMethod<&ProcessMemory::close>("close"),
                                           }));
  exports.Set("descriptorPair", Napi::Function::New<descriptorPair>(env, "descriptorPair"));
  exports.Set("receiveDescriptor", Napi::Function::New<receiveDescriptor>(env, "receiveDescriptor"));
  exports.Set("peerProcess", Napi::Function::New<peerProcess>(env, "peerProcess"));
}

/// new ProcessMemory(fd, pid): takes over the descriptor where it is one of a memory.
ProcessMemory::ProcessMemory(const Napi::CallbackInfo& info) : ObjectWrap(info) {
  const int fd = static_cast<int>(integerArgument(info, 0, "fd", 0x7fff'ffff));
  const auto pid = static_cast<pid_t>(integerArgument(info, 1, "pid", 0x7fff'ffff));
  if (!isMemory(fd)) throw rangeError(info.Env(), "fd must be an open /proc/PID/mem, for reading and writing");
  process_ = std::make_shared<WatchedProcess>(pid);
  Watcher::get().add(process_);
  fd_ = fd;
}

ProcessMemory::~ProcessMemory() { release(); }

void ProcessMemory::release() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
  process_.reset();
}

/// pull(bytes, offset, length, address): whether all bytes could be read.
Napi::Value ProcessMemory::pull(const Napi::CallbackInfo& info) {
  const Place place = placeArgument(info);
  if (fd_ < 0) return Napi::Boolean::New(info.Env(), false);
  const Access access(*process_);
  return Napi::Boolean::New(
      info.Env(), whole(place, [this](const Place& at) { return pread(fd_, at.bytes, at.length, at.address); }));
}

/// push(bytes, offset, length, address): whether all bytes could be written.
Napi::Value ProcessMemory::push(const Napi::CallbackInfo& info) {
  const Place place = placeArgument(info);
  if (fd_ < 0) return Napi::Boolean::New(info.Env(), false);
  const Access access(*process_);
  return Napi::Boolean::New(
      info.Env(), whole(place, [this](const Place& at) { return pwrite(fd_, at.bytes, at.length, at.address); }));
}

void ProcessMemory::close(const Napi::CallbackInfo&) { release(); }

}  // namespace roce
