// Both sides of the limit in one thread, for processor time: what c-limit does in two processes, in the order of the packets.
//
//   one-thread stream LENGTH PORT        packets of so much payload, as long a run of GSO as there can be, an ACK for each run or two
//   one-thread roundtrip SIZE PORT
//
// Each line of stdin is a count of packets or of round trips; the answer to it is a line with the processor time, ns each.
#include <iostream>

#include "side.h"

using namespace c_limit;

namespace {

constexpr uint32_t kPackets = 128;  // between two ACKs

struct alignas(cmsghdr) Control {
  uint8_t bytes[CMSG_SPACE(sizeof(int))];
};

class Stream {
 public:
  Stream(uint32_t length, int port)
      : from_(1, 2, port, true), to_(2, 1, port, true), length_(length), bytes_(length + 16) {}

  void run(uint32_t count) {
    for (uint32_t done = 0; done < count;) {
      const uint32_t packets = std::min(kPackets, count - done);
      send(packets);
      receive();
      acknowledge(to_, psn_);
      uint8_t ack[64];
      ssize_t n;
      while ((n = recv(from_.fd, ack, sizeof ack, 0)) < 0)
        if (errno != EAGAIN) fail("recv");
      if (from_.take(ack, static_cast<uint32_t>(n)) != (psn_ & 0xffffff)) fail("an ACK");
      done += packets;
    }
  }

 private:
  void send(uint32_t packets) {
    const uint32_t run = std::min<uint32_t>(kPackets, 65507 / bytes_);
    uint32_t messages = 0;
    uint8_t* at = staging_.data();
    for (uint32_t left = packets; left > 0; messages++) {
      const uint32_t n = std::min(run, left);
      uint8_t* start = at;
      for (uint32_t i = 0; i < n; i++) at += from_.put(at, psn_++ & 0xffffff, length_, i);
      pieces_[messages] = {start, static_cast<size_t>(at - start)};
      msghdr& m = headers_[messages].msg_hdr;
      m = {};
      m.msg_name = &from_.peer;
      m.msg_namelen = sizeof from_.peer;
      m.msg_iov = &pieces_[messages];
      m.msg_iovlen = 1;
      if (n > 1) {
        m.msg_control = controls_[messages].bytes;
        m.msg_controllen = CMSG_SPACE(sizeof(uint16_t));
        cmsghdr* c = CMSG_FIRSTHDR(&m);
        c->cmsg_level = IPPROTO_UDP;
        c->cmsg_type = UDP_SEGMENT;
        c->cmsg_len = CMSG_LEN(sizeof(uint16_t));
        const uint16_t size = static_cast<uint16_t>(bytes_);
        std::memcpy(CMSG_DATA(c), &size, sizeof size);
      }
      left -= n;
    }
    if (sendmmsg(from_.fd, headers_.data(), messages, 0) != static_cast<int>(messages)) fail("sendmmsg");
  }

  void receive() {
    while (received_ != psn_) {
      for (uint32_t i = 0; i < kReceives; i++) {
        pieces_[i] = {slab_.data() + size_t{i} * 65536, 65536};
        headers_[i].msg_hdr = {};
        headers_[i].msg_hdr.msg_iov = &pieces_[i];
        headers_[i].msg_hdr.msg_iovlen = 1;
        headers_[i].msg_hdr.msg_control = controls_[i].bytes;
        headers_[i].msg_hdr.msg_controllen = sizeof(Control);
      }
      const int n = recvmmsg(to_.fd, headers_.data(), kReceives, 0, nullptr);
      if (n < 0 && errno != EAGAIN) fail("recvmmsg");
      for (int i = 0; i < n; i++)
        for (uint32_t at = 0; at < headers_[i].msg_len; at += bytes_)
          if (to_.take(slab_.data() + size_t(i) * 65536 + at, bytes_) != (received_++ & 0xffffff)) fail("a packet was lost");
    }
  }

  Side from_, to_;
  uint32_t length_, bytes_;
  uint32_t psn_ = 0, received_ = 0;
  std::vector<uint8_t> staging_ = std::vector<uint8_t>(size_t{kPackets} * 65536);
  std::vector<uint8_t> slab_ = std::vector<uint8_t>(size_t{kReceives} * 65536);
  std::vector<mmsghdr> headers_ = std::vector<mmsghdr>(kPackets);
  std::vector<iovec> pieces_ = std::vector<iovec>(kPackets);
  std::vector<Control> controls_ = std::vector<Control>(kPackets);
};

class RoundTrips {
 public:
  RoundTrips(uint32_t size, int port) : a_(1, 2, port, true), b_(2, 1, port, true), packet_(size + 16) {}

  void run(uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
      pass(a_, b_, i);
      pass(b_, a_, i);
    }
  }

 private:
  void pass(Side& from, Side& to, uint32_t psn) {
    const auto size = static_cast<uint32_t>(packet_.size());
    from.put(packet_.data(), psn & 0xffffff, size - 16, 0);
    if (sendto(from.fd, packet_.data(), size, 0, reinterpret_cast<sockaddr*>(&from.peer), sizeof from.peer) < 0) fail("sendto");
    ssize_t n;
    while ((n = recv(to.fd, packet_.data(), size, 0)) < 0)
      if (errno != EAGAIN) fail("recv");
    to.take(packet_.data(), static_cast<uint32_t>(n));
  }

  Side a_, b_;
  std::vector<uint8_t> packet_;
};

template <typename Work>
int serve(Work&& work) {
  for (uint32_t count; std::cin >> count;) {
    const double before = processorSeconds();
    work.run(count);
    std::cout << (processorSeconds() - before) * 1e9 / count << std::endl;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 4) {
    const auto length = static_cast<uint32_t>(std::atoi(argv[2]));
    const int port = std::atoi(argv[3]);
    if (std::strcmp(argv[1], "stream") == 0) return serve(Stream(length, port));
    if (std::strcmp(argv[1], "roundtrip") == 0) return serve(RoundTrips(length, port));
  }
  std::fprintf(stderr, "usage: one-thread stream LENGTH PORT | roundtrip SIZE PORT\n");
  return 2;
}
