// Memory that is shared with another process: a sealed memfd, its pages under a WebAssembly.Memory, its descriptor over a socket.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "addon.h"
#include "arguments.h"

namespace roce {
namespace {

size_t pageSize() { return static_cast<size_t>(sysconf(_SC_PAGESIZE)); }

/// createSharedFile(bytes): the descriptor of a sparse memfd. Its seals forbid another size, so that no one who has the
/// descriptor can take mapped pages away (SIGBUS).
Napi::Value createSharedFile(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  if (!info[0].IsNumber()) throw typeError(env, "bytes must be a number");
  const double bytes = info[0].As<Napi::Number>().DoubleValue();
  if (!(bytes >= 1 && bytes <= 140737488355328.0)) throw rangeError(env, "bytes must be 1 … 2^47");
  // ftruncate would end the process (SIGXFSZ).
  rlimit limit;
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < bytes)
    throw systemError(env, EFBIG, "the limit of the size of files (ulimit -f) forbids shared memory: ftruncate");
  const int fd = memfd_create("roce", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) throw systemError(env, errno, "memfd_create");
  const char* failed = nullptr;
  if (ftruncate(fd, static_cast<off_t>(bytes)) != 0) failed = "ftruncate";
  else if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) failed = "fcntl";
  if (failed != nullptr) {
    const int error = errno;
    close(fd);
    throw systemError(env, error, failed);
  }
  return Napi::Number::New(env, fd);
}

/// The argument that is a whole number of pages of shared memory.
Bytes pagesArgument(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  const Bytes pages = bytesArgument(info, 0, "pages");
  const size_t page = pageSize();
  if (!isShared(env, info[0]) || reinterpret_cast<uintptr_t>(pages.data) % page != 0 || pages.length % page != 0 ||
      pages.length == 0)
    throw rangeError(env, "pages must be whole pages of a shared WebAssembly.Memory");
  return pages;
}

/// mapSharedFile(pages, fd, offset): from now on the bytes are those of the file.
void mapSharedFile(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  const Bytes pages = pagesArgument(info);
  const int fd = static_cast<int>(integerArgument(info, 1, "fd", 0x7fff'ffff));
  if (!info[2].IsNumber()) throw typeError(env, "offset must be a number");
  const double offset = info[2].As<Napi::Number>().DoubleValue();
  const double most = 140737488355328.0 - static_cast<double>(pages.length);
  if (!(offset >= 0 && offset <= most) || static_cast<uint64_t>(offset) % pageSize() != 0)
    throw rangeError(env, "offset must be a whole page below 2^47");
  const int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) throw rangeError(env, "fd must be a file of createSharedFile");
  void* at = mmap(pages.data, pages.length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd,
                  static_cast<off_t>(offset));
  if (at == MAP_FAILED) throw systemError(env, errno, "mmap");
}

/// unmapSharedFile(pages): the bytes are zeros again, and the file's pages have one reader less.
void unmapSharedFile(const Napi::CallbackInfo& info) {
  const Bytes pages = pagesArgument(info);
  void* at = mmap(pages.data, pages.length, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  if (at == MAP_FAILED) throw systemError(info.Env(), errno, "mmap");
}

/// sendDescriptor(socket, fd): one byte and the descriptor, over a Unix socket that has nothing queued.
void sendDescriptor(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  const int socket = static_cast<int>(integerArgument(info, 0, "socket", 0x7fff'ffff));
  const int fd = static_cast<int>(integerArgument(info, 1, "fd", 0x7fff'ffff));
  char byte = 0;
  iovec data = {&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof fd)] = {};
  msghdr message = {};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof fd);
  std::memcpy(CMSG_DATA(header), &fd, sizeof fd);
  if (sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT) != 1) throw systemError(env, errno, "sendmsg");
}

}  // namespace

void exportSharedFile(Napi::Env env, Napi::Object exports) {
  exports.Set("createSharedFile", Napi::Function::New<createSharedFile>(env, "createSharedFile"));
  exports.Set("mapSharedFile", Napi::Function::New<mapSharedFile>(env, "mapSharedFile"));
  exports.Set("unmapSharedFile", Napi::Function::New<unmapSharedFile>(env, "unmapSharedFile"));
  exports.Set("sendDescriptor", Napi::Function::New<sendDescriptor>(env, "sendDescriptor"));
}

}  // namespace roce
