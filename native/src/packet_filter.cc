#include "packet_filter.h"

#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <netinet/in.h>

#include <utility>

namespace roce {
namespace {

constexpr uint32_t kRoceV1 = 0x8915;
/// MAC control: PAUSE and PFC (IEEE 802.3 clause 31).
constexpr uint32_t kMacControl = 0x8808;
constexpr uint32_t kQinqOfOld = 0x9100;
constexpr uint32_t kRocePort = 4791;
/// RFC 7348 §8, and what Linux used before that was assigned.
constexpr uint32_t kVxlanPort = 4789, kVxlanPortOfOld = 8472;
constexpr uint32_t kFragmentOffset = 0x1fff;
/// Where the type stands in an Ethernet header without tags.
constexpr uint32_t kEtherType = 12;
constexpr int kTags = 3;
/// ICMP errors (RFC 792): unreachable, time exceeded, parameter problem; of ICMPv6 all types below this (RFC 4443 §2.1).
constexpr uint32_t kUnreachable = 3, kTimeExceeded = 11, kParameterProblem = 12, kFirstInformation = 128;
/// The most that a packet socket gives.
constexpr uint32_t kWhole = 0x40000;

/// Instructions, and jumps to labels further on. A is the accumulator and X the index register, as in the
/// kernel's Documentation/networking/filter.rst.
class Program {
 public:
  /// A place to jump to: the jumps that wait for it.
  class Label {
    friend class Program;
    std::vector<std::pair<size_t, bool>> jumps_;
  };

  void add(uint32_t code, uint32_t k = 0) { code_.push_back({static_cast<uint16_t>(code), 0, 0, k}); }
  /// A = the bytes at X + offset.
  void load(uint16_t size, uint32_t offset) { add(BPF_LD | BPF_IND | size, offset); }
  /// To `target` where A is the value, else on.
  void ifEqual(uint32_t value, Label& target) { jump(BPF_JEQ, value, target, true); }
  void unlessEqual(uint32_t value, Label& target) { jump(BPF_JEQ, value, target, false); }
  void unlessAtLeast(uint32_t value, Label& target) { jump(BPF_JGE, value, target, false); }
  void ifAbove(uint32_t value, Label& target) { jump(BPF_JGT, value, target, true); }
  void ifAnyBit(uint32_t mask, Label& target) { jump(BPF_JSET, mask, target, true); }
  void here(const Label& label) {
    for (const auto& [at, ifTrue] : label.jumps_)
      (ifTrue ? code_[at].jt : code_[at].jf) = static_cast<uint8_t>(code_.size() - at - 1);
  }
  std::vector<sock_filter> take() { return std::move(code_); }

 private:
  void jump(uint32_t operation, uint32_t value, Label& target, bool ifTrue) {
    target.jumps_.emplace_back(code_.size(), ifTrue);
    add(BPF_JMP | BPF_K | operation, value);
  }
  std::vector<sock_filter> code_;
};

}  // namespace

std::vector<sock_filter> packetFilter(const PacketFilterOptions& options) {
  Program p;
  Program::Label ipv6, icmp, icmp6, accept, reject;

  if (options.receivedOnly) {
    p.add(BPF_LD | BPF_W | BPF_ABS, static_cast<uint32_t>(SKF_AD_OFF + SKF_AD_PKTTYPE));
    p.ifEqual(PACKET_OUTGOING, reject);
  }

  // X: where the EtherType stands that counts, two bytes before IP; in packets without one, where IP starts.
  const uint32_t ip = options.ethernet ? 2 : 0;
  p.add(BPF_LDX | BPF_IMM, options.ethernet ? kEtherType : 0);
  if (options.ethernet) {
    Program::Label untagged;
    for (int i = 0; i < kTags; i++) {
      Program::Label tag;
      p.load(BPF_H, 0);
      p.ifEqual(ETH_P_8021Q, tag);
      p.ifEqual(ETH_P_8021AD, tag);
      p.unlessEqual(kQinqOfOld, untagged);
      p.here(tag);
      p.add(BPF_MISC | BPF_TXA);
      p.add(BPF_ALU | BPF_ADD | BPF_K, 4);
      p.add(BPF_MISC | BPF_TAX);
    }
    p.here(untagged);
    p.load(BPF_H, 0);
    p.ifEqual(kRoceV1, accept);
    p.ifEqual(kMacControl, accept);
    p.ifEqual(ETH_P_IPV6, ipv6);
    p.unlessEqual(ETH_P_IP, reject);
  } else {
    p.load(BPF_B, 0);
    p.add(BPF_ALU | BPF_AND | BPF_K, 0xf0);
    p.ifEqual(0x60, ipv6);
    p.unlessEqual(0x40, reject);
  }

  // A is the IP protocol; on for UDP.
  const auto protocol = [&] {
    if (options.mirrors) p.ifEqual(IPPROTO_GRE, accept);
    p.unlessEqual(IPPROTO_UDP, reject);
  };
  // A is the destination port.
  const auto port = [&] {
    if (options.mirrors) {
      p.ifEqual(kVxlanPort, accept);
      p.ifEqual(kVxlanPortOfOld, accept);
    }
    p.ifEqual(kRocePort, accept);
  };

  // X += 4 · (length of the IPv4 header in words)
  const auto pastHeader = [&] {
    p.load(BPF_B, ip);
    p.add(BPF_ALU | BPF_AND | BPF_K, 0x0f);
    p.add(BPF_ALU | BPF_LSH | BPF_K, 2);
    p.add(BPF_ALU | BPF_ADD | BPF_X);
    p.add(BPF_MISC | BPF_TAX);
  };

  p.load(BPF_H, ip + 6);
  p.ifAnyBit(kFragmentOffset, reject);
  p.load(BPF_B, ip + 9);
  p.ifEqual(IPPROTO_ICMP, icmp);
  protocol();
  pastHeader();
  p.load(BPF_H, ip + 2);
  port();
  p.add(BPF_RET | BPF_K, 0);

  p.here(icmp);
  pastHeader();
  p.load(BPF_B, ip);
  p.ifEqual(kUnreachable, accept);
  p.ifEqual(kTimeExceeded, accept);
  p.ifEqual(kParameterProblem, accept);
  p.add(BPF_RET | BPF_K, 0);

  p.here(ipv6);
  p.load(BPF_B, ip + 6);
  p.ifEqual(IPPROTO_ICMPV6, icmp6);
  protocol();
  p.load(BPF_H, ip + 40 + 2);
  port();
  p.add(BPF_RET | BPF_K, 0);

  p.here(icmp6);
  p.load(BPF_B, ip + 40);
  p.unlessAtLeast(kFirstInformation, accept);

  p.here(reject);
  p.add(BPF_RET | BPF_K, 0);
  p.here(accept);
  Program::Label whole;
  p.add(BPF_LD | BPF_W | BPF_LEN);
  p.ifAbove(options.wholeFrom, whole);
  p.add(BPF_RET | BPF_K, options.snapLength);
  p.here(whole);
  p.add(BPF_RET | BPF_K, kWhole);
  return p.take();
}

std::vector<sock_filter> rejectAll() { return {{BPF_RET | BPF_K, 0, 0, 0}}; }

}  // namespace roce
