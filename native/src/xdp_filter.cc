#include "xdp_filter.h"

#include <arpa/inet.h>
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/if_link.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "udp_socket.h"

namespace roce {
namespace {

// Older headers lack some of these (linux/bpf.h).
constexpr uint32_t kNoPreallocation = 1, kMappable = 1u << 10, kHasFragments = 1u << 5;
constexpr int kAttachXdp = 37;
constexpr int kLinkCreate = 28;

/// Queue pairs have numbers of 24 bits, 64 to a word; the word behind them is the MAC address.
constexpr uint32_t kQueuePairWords = 1u << 18;
constexpr size_t kWordsBytes = (kQueuePairWords + 1) * sizeof(uint64_t);
constexpr uint32_t kMostAddresses = 4096;

int bpf(int command, bpf_attr& attributes) {
  return static_cast<int>(syscall(__NR_bpf, command, &attributes, sizeof attributes));
}

int createMap(uint32_t type, uint32_t keyBytes, uint32_t valueBytes, uint32_t entries, uint32_t flags) {
  bpf_attr attributes{};
  attributes.map_type = type;
  attributes.key_size = keyBytes;
  attributes.value_size = valueBytes;
  attributes.max_entries = entries;
  attributes.map_flags = flags;
  const int fd = bpf(BPF_MAP_CREATE, attributes);
  if (fd < 0) throw SystemFailure{errno, "bpf(BPF_MAP_CREATE)"};
  return fd;
}

int updateMap(int map, const void* key, const void* value) {
  bpf_attr attributes{};
  attributes.map_fd = static_cast<uint32_t>(map);
  attributes.key = reinterpret_cast<uintptr_t>(key);
  attributes.value = reinterpret_cast<uintptr_t>(value);
  return bpf(BPF_MAP_UPDATE_ELEM, attributes);
}

/// Instructions, and jumps to labels further on (Documentation/bpf/standardization/instruction-set.rst).
class Assembler {
 public:
  class Label {
    friend class Assembler;
    std::vector<size_t> jumps_;
  };

  void copy(int to, int from) { add(BPF_ALU64 | BPF_MOV | BPF_X, to, from, 0, 0); }
  void set(int to, int32_t value) { add(BPF_ALU64 | BPF_MOV | BPF_K, to, 0, 0, value); }
  void calculate(int operation, int to, int32_t value) { add(BPF_ALU64 | operation | BPF_K, to, 0, 0, value); }
  void calculateBy(int operation, int to, int by) { add(BPF_ALU64 | operation | BPF_X, to, by, 0, 0); }
  void load(int size, int to, int from, int offset) { add(BPF_LDX | BPF_MEM | size, to, from, offset, 0); }
  void store(int size, int to, int offset, int from) { add(BPF_STX | BPF_MEM | size, to, from, offset, 0); }
  void jump(int operation, int a, int32_t value, Label& target) { jumpAdd(BPF_JMP | operation | BPF_K, a, 0, value, target); }
  void jumpBy(int operation, int a, int b, Label& target) { jumpAdd(BPF_JMP | operation | BPF_X, a, b, 0, target); }
  void go(Label& target) { jumpAdd(BPF_JMP | BPF_JA, 0, 0, 0, target); }
  void map(int to, int fd) {
    add(BPF_LD | BPF_DW | BPF_IMM, to, BPF_PSEUDO_MAP_FD, 0, fd);
    add(0, 0, 0, 0, 0);
  }
  void call(int function) { add(BPF_JMP | BPF_CALL, 0, 0, 0, function); }
  void exit() { add(BPF_JMP | BPF_EXIT, 0, 0, 0, 0); }
  void here(const Label& label) {
    for (const size_t at : label.jumps_) code_[at].off = static_cast<int16_t>(code_.size() - at - 1);
  }
  const std::vector<bpf_insn>& code() const { return code_; }

 private:
  void add(int code, int to, int from, int offset, int32_t immediate) {
    bpf_insn instruction{};
    instruction.code = static_cast<uint8_t>(code);
    instruction.dst_reg = static_cast<uint8_t>(to & 15);
    instruction.src_reg = static_cast<uint8_t>(from & 15);
    instruction.off = static_cast<int16_t>(offset);
    instruction.imm = immediate;
    code_.push_back(instruction);
  }
  void jumpAdd(int code, int a, int b, int32_t value, Label& target) {
    target.jumps_.push_back(code_.size());
    add(code, a, b, 0, value);
  }
  std::vector<bpf_insn> code_;
};

}  // namespace

XdpFilter::XdpFilter(uint32_t queues, uint16_t port) {
  try {
    sockets_ = createMap(BPF_MAP_TYPE_XSKMAP, 4, 4, queues, 0);
    addresses_ = createMap(BPF_MAP_TYPE_HASH, sizeof(Gid), 4, kMostAddresses, kNoPreallocation);
    numbers_ = createMap(BPF_MAP_TYPE_ARRAY, 4, sizeof(uint64_t), kQueuePairWords + 1, kMappable);
    void* mapped = mmap(nullptr, kWordsBytes, PROT_READ | PROT_WRITE, MAP_SHARED, numbers_, 0);
    if (mapped == MAP_FAILED) throw SystemFailure{errno, "mmap"};
    words_ = static_cast<uint64_t*>(mapped);
    program_ = load(port, true);
    // Linux 5.17 and older know no frames of several buffers.
    if (program_ < 0 && errno == EINVAL) {
      fragments_ = false;
      program_ = load(port, false);
    }
    if (program_ < 0) throw SystemFailure{errno, "bpf(BPF_PROG_LOAD)"};
  } catch (...) {
    close();
    throw;
  }
}

void XdpFilter::close() {
  detach();
  if (words_ != nullptr) munmap(words_, kWordsBytes);
  words_ = nullptr;
  for (int* fd : {&program_, &numbers_, &addresses_, &sockets_}) {
    if (*fd >= 0) ::close(*fd);
    *fd = -1;
  }
}

int XdpFilter::load(uint16_t port, bool fragments) const {
  // Registers that calls leave alone: the context, the frame, its end, and the header at hand.
  constexpr int context = 6, frame = 7, end = 8, at = 9, stack = 10;
  constexpr int keyAt = -16, numberAt = -20;
  Assembler p;
  Assembler::Label pass, untagged, v4, common, take;

  p.copy(context, 1);
  p.load(BPF_W, frame, context, offsetof(xdp_md, data));
  p.load(BPF_W, end, context, offsetof(xdp_md, data_end));
  p.copy(at, frame);
  p.calculate(BPF_ADD, at, ETH_HLEN);
  p.copy(1, at);
  p.calculate(BPF_ADD, 1, 4);
  p.jumpBy(BPF_JGT, 1, end, pass);
  p.load(BPF_H, 5, frame, 12);
  // A tag that only has a priority (VLAN 0, IEEE 802.1Q §9.6); other VLANs have interfaces of their own.
  p.jump(BPF_JNE, 5, htons(ETH_P_8021Q), untagged);
  p.load(BPF_H, 5, at, 0);
  p.calculate(BPF_AND, 5, htons(0x0fff));
  p.jump(BPF_JNE, 5, 0, pass);
  p.load(BPF_H, 5, at, 2);
  p.calculate(BPF_ADD, at, 4);
  p.here(untagged);
  p.jump(BPF_JEQ, 5, htons(ETH_P_IP), v4);
  p.jump(BPF_JNE, 5, htons(ETH_P_IPV6), pass);

  // IPv6 without extension headers, UDP, BTH.
  p.copy(1, at);
  p.calculate(BPF_ADD, 1, 40 + 8 + 12);
  p.jumpBy(BPF_JGT, 1, end, pass);
  p.load(BPF_B, 5, at, 6);
  p.jump(BPF_JNE, 5, IPPROTO_UDP, pass);
  p.load(BPF_H, 5, at, 42);
  p.jump(BPF_JNE, 5, htons(port), pass);
  // Word by word: in the frame, addresses are aligned to nothing.
  for (int i = 0; i < 4; i++) {
    p.load(BPF_W, 5, at, 24 + 4 * i);
    p.store(BPF_W, stack, keyAt + 4 * i, 5);
  }
  p.calculate(BPF_ADD, at, 40 + 8);
  p.go(common);

  // IPv4 without options, no fragment; UDP, BTH.
  p.here(v4);
  p.copy(1, at);
  p.calculate(BPF_ADD, 1, 20 + 8 + 12);
  p.jumpBy(BPF_JGT, 1, end, pass);
  p.load(BPF_B, 5, at, 0);
  p.jump(BPF_JNE, 5, 0x45, pass);
  p.load(BPF_H, 5, at, 6);
  p.calculate(BPF_AND, 5, htons(0x3fff));
  p.jump(BPF_JNE, 5, 0, pass);
  p.load(BPF_B, 5, at, 9);
  p.jump(BPF_JNE, 5, IPPROTO_UDP, pass);
  p.load(BPF_H, 5, at, 22);
  p.jump(BPF_JNE, 5, htons(port), pass);
  p.set(5, 0);
  p.store(BPF_W, stack, keyAt, 5);
  p.store(BPF_W, stack, keyAt + 4, 5);
  p.set(5, static_cast<int32_t>(htonl(0xffff)));
  p.store(BPF_W, stack, keyAt + 8, 5);
  p.load(BPF_W, 5, at, 16);
  p.store(BPF_W, stack, keyAt + 12, 5);
  p.calculate(BPF_ADD, at, 20 + 8);

  // `at` is the BTH. Is the address ours?
  p.here(common);
  p.map(1, addresses_);
  p.copy(2, stack);
  p.calculate(BPF_ADD, 2, keyAt);
  p.call(BPF_FUNC_map_lookup_elem);
  p.jump(BPF_JEQ, 0, 0, pass);
  p.load(BPF_W, end, 0, 0);  // the address's flags; where the frame ends is known by now
  p.jump(BPF_JSET, end, kGroup, take);

  // Is the MAC address? On a bridge or in promiscuous mode others come by, too.
  p.set(5, kQueuePairWords);
  p.store(BPF_W, stack, numberAt, 5);
  p.map(1, numbers_);
  p.copy(2, stack);
  p.calculate(BPF_ADD, 2, numberAt);
  p.call(BPF_FUNC_map_lookup_elem);
  p.jump(BPF_JEQ, 0, 0, pass);
  for (const auto& [size, offset] : {std::pair{BPF_W, 0}, std::pair{BPF_H, 4}}) {
    p.load(size, 1, 0, offset);
    p.load(size, 2, frame, offset);
    p.jumpBy(BPF_JNE, 1, 2, pass);
  }

  // Is the queue pair? Its number becomes `frame`.
  p.load(BPF_B, frame, at, 5);
  p.calculate(BPF_LSH, frame, 16);
  p.load(BPF_B, 5, at, 6);
  p.calculate(BPF_LSH, 5, 8);
  p.calculateBy(BPF_OR, frame, 5);
  p.load(BPF_B, 5, at, 7);
  p.calculateBy(BPF_OR, frame, 5);
  Assembler::Label ordinary;
  p.jump(BPF_JNE, frame, 1, ordinary);
  p.jump(BPF_JSET, end, kServices, take);
  p.go(pass);
  p.here(ordinary);
  p.copy(5, frame);
  p.calculate(BPF_RSH, 5, 6);
  p.store(BPF_W, stack, numberAt, 5);
  p.map(1, numbers_);
  p.copy(2, stack);
  p.calculate(BPF_ADD, 2, numberAt);
  p.call(BPF_FUNC_map_lookup_elem);
  p.jump(BPF_JEQ, 0, 0, pass);
  p.load(BPF_DW, 1, 0, 0);
  p.calculate(BPF_AND, frame, 63);
  p.calculateBy(BPF_RSH, 1, frame);
  p.calculate(BPF_AND, 1, 1);
  p.jump(BPF_JEQ, 1, 0, pass);

  p.here(take);
  p.map(1, sockets_);
  p.load(BPF_W, 2, context, offsetof(xdp_md, rx_queue_index));
  // The action where the queue has no socket.
  p.set(3, XDP_PASS);
  p.call(BPF_FUNC_redirect_map);
  p.exit();

  p.here(pass);
  p.set(0, XDP_PASS);
  p.exit();

  bpf_attr attributes{};
  attributes.prog_type = BPF_PROG_TYPE_XDP;
  attributes.insns = reinterpret_cast<uintptr_t>(p.code().data());
  attributes.insn_cnt = static_cast<uint32_t>(p.code().size());
  attributes.license = reinterpret_cast<uintptr_t>("MIT");
  attributes.prog_flags = fragments ? kHasFragments : 0;
  std::strcpy(attributes.prog_name, "node_roce");
  return bpf(BPF_PROG_LOAD, attributes);
}

void XdpFilter::attach(int interfaceIndex, XdpMode mode) {
  detach();
  bpf_attr attributes{};
  attributes.link_create.prog_fd = static_cast<uint32_t>(program_);
  attributes.link_create.target_fd = static_cast<uint32_t>(interfaceIndex);
  attributes.link_create.attach_type = kAttachXdp;
  attributes.link_create.flags = mode == XdpMode::native ? XDP_FLAGS_DRV_MODE : XDP_FLAGS_SKB_MODE;
  link_ = bpf(kLinkCreate, attributes);
  if (link_ < 0) throw SystemFailure{errno, "bpf(BPF_LINK_CREATE)"};
}

void XdpFilter::detach() {
  if (link_ >= 0) ::close(link_);
  link_ = -1;
}

void XdpFilter::setAddress(const Gid& gid, uint32_t flags) {
  if (updateMap(addresses_, gid.data(), &flags) != 0) throw SystemFailure{errno, "bpf(BPF_MAP_UPDATE_ELEM)"};
}

void XdpFilter::removeAddress(const Gid& gid) {
  bpf_attr attributes{};
  attributes.map_fd = static_cast<uint32_t>(addresses_);
  attributes.key = reinterpret_cast<uintptr_t>(gid.data());
  bpf(BPF_MAP_DELETE_ELEM, attributes);
}

void XdpFilter::setQueuePair(uint32_t qpn, bool on) {
  uint64_t& word = words_[qpn >> 6];
  const uint64_t bit = uint64_t{1} << (qpn & 63);
  if (on)
    __atomic_or_fetch(&word, bit, __ATOMIC_RELAXED);
  else
    __atomic_and_fetch(&word, ~bit, __ATOMIC_RELAXED);
}

void XdpFilter::setMac(const uint8_t* mac) {
  uint64_t word = 0;
  std::memcpy(&word, mac, 6);
  __atomic_store_n(&words_[kQueuePairWords], word, __ATOMIC_RELAXED);
}

void XdpFilter::setSocket(uint32_t queue, int fd) {
  const auto value = static_cast<uint32_t>(fd);
  if (updateMap(sockets_, &queue, &value) != 0) throw SystemFailure{errno, "bpf(BPF_MAP_UPDATE_ELEM)"};
}

}  // namespace roce
