// The limit: what a C++ program gets out of the same sockets. It sends the packets that a WRITE of the
// same size makes, with an ICRC made and checked as the addon does and the payload copied into memory,
// but no protocol: a sequence number, a window and one small acknowledgement every so often.
//
//   c-limit throughput MTU MERGE PACKETS PORT     MERGE 1: GSO and GRO; 0: UDP checksum 0, neither
//   c-limit pingpong SIZE SPIN MESSAGES PORT      SPIN 1: polls; 0: sleeps in poll(2)
//
// Both sides are processes of their own, on 127.0.0.1 and 127.0.0.2; with two names of network namespaces behind the
// arguments, in these, on 10.77.0.1 and 10.77.0.2 (bench/cable.mjs). One line of JSON on stdout.
#include "side.h"

using namespace c_limit;

namespace {

/// Sends `count` packets and returns when all are acknowledged.
void sendAll(Side& side, uint32_t count, uint32_t length, bool merge) {
  const uint32_t bytes = length + 16;
  const uint32_t run = merge ? std::min<uint32_t>(128, 65507 / bytes) : 1;
  const uint32_t messages = merge ? kMessages : kSingles;
  std::vector<uint8_t> staging(size_t{messages} * run * bytes);
  std::vector<mmsghdr> headers(messages);
  std::vector<iovec> pieces(messages);
  struct alignas(cmsghdr) Control {
    uint8_t bytes[CMSG_SPACE(sizeof(uint16_t))];
  };
  std::vector<Control> controls(messages);
  uint32_t sent = 0, acked = 0;
  while (acked < count) {
    uint32_t filled = 0;
    while (filled < messages && sent < count && sent + run - acked <= kWindow + run) {
      if (sent - acked >= kWindow) break;
      const uint32_t n = std::min({run, count - sent, kWindow - (sent - acked)});
      uint8_t* start = staging.data() + size_t{filled} * run * bytes;
      uint8_t* p = start;
      for (uint32_t i = 0; i < n; i++) p += side.put(p, sent++ & 0xffffff, length, i);
      pieces[filled] = {start, static_cast<size_t>(p - start)};
      msghdr& m = headers[filled].msg_hdr;
      m = {};
      m.msg_name = &side.peer;
      m.msg_namelen = sizeof side.peer;
      m.msg_iov = &pieces[filled];
      m.msg_iovlen = 1;
      if (n > 1) {
        m.msg_control = controls[filled].bytes;
        m.msg_controllen = sizeof(Control);
        cmsghdr* c = CMSG_FIRSTHDR(&m);
        c->cmsg_level = IPPROTO_UDP;
        c->cmsg_type = UDP_SEGMENT;
        c->cmsg_len = CMSG_LEN(sizeof(uint16_t));
        const uint16_t size = static_cast<uint16_t>(bytes);
        std::memcpy(CMSG_DATA(c), &size, sizeof size);
      }
      filled++;
    }
    for (uint32_t done = 0; done < filled;) {
      const int n = sendmmsg(side.fd, headers.data() + done, filled - done, 0);
      if (n > 0)
        done += static_cast<uint32_t>(n);
      else if (errno == EAGAIN)
        side.wait(POLLOUT);
      else
        fail("sendmmsg");
    }
    uint8_t ack[64];
    for (;;) {
      const ssize_t n = recv(side.fd, ack, sizeof ack, 0);
      if (n < 0) {
        if (filled == 0 && (sent - acked >= kWindow || sent == count)) {
          side.wait(POLLIN);
          continue;
        }
        break;
      }
      const uint32_t psn = side.take(ack, static_cast<uint32_t>(n));
      acked += (psn - acked) & 0xffffff;
      if (acked == count || sent - acked < kWindow) break;
    }
  }
}

/// Takes `count` packets in, acknowledging.
void receiveAll(Side& side, uint32_t count) {
  std::vector<uint8_t> slab(size_t{kReceives} * 65536);
  std::vector<mmsghdr> headers(kReceives);
  std::vector<iovec> pieces(kReceives);
  struct alignas(cmsghdr) Control {
    uint8_t bytes[CMSG_SPACE(sizeof(int))];
  };
  std::vector<Control> controls(kReceives);
  uint32_t received = 0, told = 0;
  while (received < count) {
    for (uint32_t i = 0; i < kReceives; i++) {
      pieces[i] = {slab.data() + size_t{i} * 65536, 65536};
      headers[i].msg_hdr = {};
      headers[i].msg_hdr.msg_iov = &pieces[i];
      headers[i].msg_hdr.msg_iovlen = 1;
      headers[i].msg_hdr.msg_control = controls[i].bytes;
      headers[i].msg_hdr.msg_controllen = sizeof(Control);
    }
    const int n = recvmmsg(side.fd, headers.data(), kReceives, 0, nullptr);
    if (n < 0) {
      if (errno != EAGAIN) fail("recvmmsg");
      if (received != told) acknowledge(side, told = received);
      side.wait(POLLIN);
      continue;
    }
    for (int i = 0; i < n; i++) {
      uint32_t segment = headers[i].msg_len;
      for (cmsghdr* c = CMSG_FIRSTHDR(&headers[i].msg_hdr); c; c = CMSG_NXTHDR(&headers[i].msg_hdr, c))
        if (c->cmsg_level == IPPROTO_UDP && c->cmsg_type == UDP_GRO) {
          int size;
          std::memcpy(&size, CMSG_DATA(c), sizeof size);
          segment = static_cast<uint32_t>(size);
        }
      const uint8_t* p = static_cast<const uint8_t*>(pieces[i].iov_base);
      for (uint32_t left = headers[i].msg_len; left > 0;) {
        const uint32_t bytes = std::min(left, segment);
        if (side.take(p, bytes) != (received & 0xffffff)) {
          std::fprintf(stderr, "a packet was lost\n");
          std::exit(1);
        }
        received++;
        p += bytes;
        left -= bytes;
        if (received - told >= kAckEvery) acknowledge(side, told = received);
      }
    }
  }
  if (received != told) acknowledge(side, received);
}

int throughput(uint32_t mtu, bool merge, uint32_t count, int port) {
  const uint32_t warm = count / 8;
  auto* spent = static_cast<double*>(
      mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  Side left(1, 2, port, merge), right(2, 1, port, merge);
  const pid_t child = fork();
  pin(child == 0);
  if (child == 0) {
    receiveAll(right, warm);
    const double before = processorSeconds();
    receiveAll(right, count);
    *spent = processorSeconds() - before;
    _exit(0);
  }
  sendAll(left, warm, mtu, merge);
  const double start = now(), before = processorSeconds();
  sendAll(left, count, mtu, merge);
  const double seconds = now() - start, own = processorSeconds() - before;
  int status;
  waitpid(child, &status, 0);
  if (status != 0) return 1;
  std::printf("{\"gbps\":%.4f,\"packetsPerSecond\":%.1f,\"cpuNsPerPacket\":%.2f,\"crc\":\"%s\"}\n",
              8e-9 * mtu * count / seconds, count / seconds, (own + *spent) * 1e9 / count, crc.name);
  return 0;
}

void echo(Side& side, uint32_t size, bool spin, uint32_t count, bool first, std::vector<double>* times) {
  std::vector<uint8_t> p(size + 16);
  for (uint32_t i = 0; i < count; i++) {
    const double start = now();
    for (int half = 0; half < 2; half++) {
      if ((half == 0) == first) {
        const uint32_t bytes = side.put(p.data(), i & 0xffffff, size, 0);
        while (sendto(side.fd, p.data(), bytes, 0, reinterpret_cast<sockaddr*>(&side.peer), sizeof side.peer) < 0)
          if (errno != EAGAIN) fail("sendto");
        continue;
      }
      for (;;) {
        const ssize_t n = recv(side.fd, p.data(), p.size(), 0);
        if (n > 0) {
          side.take(p.data(), static_cast<uint32_t>(n));
          break;
        }
        if (!spin) side.wait(POLLIN);
      }
    }
    if (times) (*times)[i] = (now() - start) * 1e6;
  }
}

int pingpong(uint32_t size, bool spin, uint32_t count, int port) {
  Side left(1, 2, port, false), right(2, 1, port, false);
  const uint32_t warm = count / 8;
  const pid_t child = fork();
  pin(child == 0);
  if (child == 0) {
    echo(right, size, spin, warm + count, false, nullptr);
    _exit(0);
  }
  std::vector<double> times(count);
  echo(left, size, spin, warm, true, nullptr);
  echo(left, size, spin, count, true, &times);
  int status;
  waitpid(child, &status, 0);
  std::sort(times.begin(), times.end());
  std::printf("{\"p50\":%.3f,\"p99\":%.3f,\"p999\":%.3f}\n", times[count / 2], times[static_cast<size_t>(count * 0.99)],
              times[static_cast<size_t>(count * 0.999)]);
  return status == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 8) {
    network = 0x0a4d0000;
    namespaces[0] = argv[6];
    namespaces[1] = argv[7];
  }
  if (argc == 6 || argc == 8) {
    const int a = std::atoi(argv[2]), b = std::atoi(argv[3]), c = std::atoi(argv[4]), port = std::atoi(argv[5]);
    if (std::strcmp(argv[1], "throughput") == 0)
      return throughput(static_cast<uint32_t>(a), b != 0, static_cast<uint32_t>(c), port);
    if (std::strcmp(argv[1], "pingpong") == 0)
      return pingpong(static_cast<uint32_t>(a), b != 0, static_cast<uint32_t>(c), port);
  }
  std::fprintf(stderr, "usage: c-limit throughput MTU MERGE PACKETS PORT | pingpong SIZE SPIN MESSAGES PORT, [NAMESPACE NAMESPACE]\n");
  return 2;
}
