// Whom packets go to and come from: the table of peers that the link fills, and a table of fixed size
// for the Identification windows of everybody else, so that no stranger can make us allocate.
#pragma once
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "address.h"
#include "icrc.h"
#include "id_window.h"

namespace roce {

struct Peer {
  bool live = false;
  /// False once the way to it has turned out not to take GSO, or the link has switched it off.
  bool gso = true;
  uint8_t hopLimit = 0;
  uint32_t local = 0;
  /// The same number for peers that packets reach in the same way: address, port, local address and hop limit agree.
  uint64_t way = 0;
  Gid gid{};
  /// The local address.
  Gid source{};
  Endpoint to;
  IdWindow window;
};

/// Hashes addresses with a secret, so that nobody can choose addresses that collide.
class GidHash {
 public:
  GidHash();
  size_t operator()(const Gid& gid) const;

 private:
  uint64_t secret_[2];
};

class StrangerTable {
 public:
  /// The window of that flow; a flow that shares its place with another one takes it over, afresh.
  IdWindow& window(const Gid& gid, uint32_t local);
  /// Bytes that it allocates, once and by its first flow.
  static constexpr size_t bytes() { return kEntries * sizeof(Entry); }

 private:
  static constexpr size_t kEntries = 1024;
  struct Entry {
    Gid gid{};
    uint32_t local = kNoPeer;
    IdWindow window;
  };
  GidHash hash_;
  std::vector<Entry> entries_;
};

class PeerTable {
 public:
  /// @returns the peer's index
  uint32_t add(Peer peer);
  void remove(uint32_t index);
  /// nullptr where there is no peer of that index.
  Peer* at(uint32_t index) {
    return index < peers_.size() && peers_[index].live ? &peers_[index] : nullptr;
  }
  /// The index of the peer with that address, the one of local address `local` if there are several;
  /// kNoPeer if nobody has it.
  uint32_t find(const Gid& gid, uint32_t local) const;
  bool anyOf(uint32_t local) const;
  /// The window of a flow: of the first peer with that address and local address, so that no stranger disturbs it; without one, of
  /// the table of strangers. A flow keeps its window when that peer is removed.
  IdWindow& window(const Gid& gid, uint32_t local);
  size_t size() const { return peers_.size() - free_.size(); }
  /// Counts peers that came and went: pointers and indices are good as long as it stays.
  uint64_t changes() const { return changes_; }

 private:
  uint64_t changes_ = 0;
  std::vector<Peer> peers_;
  std::vector<uint32_t> free_;
  uint64_t ways_ = 0;
  StrangerTable strangers_;
  std::unordered_map<Gid, std::vector<uint32_t>, GidHash> byGid_;
};

}  // namespace roce
