#include "peers.h"

#include <algorithm>
#include <cstring>
#include <random>

namespace roce {

GidHash::GidHash() {
  std::random_device random;
  for (uint64_t& word : secret_) word = uint64_t{random()} << 32 | random();
}

size_t GidHash::operator()(const Gid& gid) const {
  uint64_t high, low;
  std::memcpy(&high, gid.data(), 8);
  std::memcpy(&low, gid.data() + 8, 8);
  const auto product = static_cast<unsigned __int128>(high ^ secret_[0]) * ((low ^ secret_[1]) | 1);
  return static_cast<size_t>(product) ^ static_cast<size_t>(product >> 64);
}

uint32_t PeerTable::add(Peer peer) {
  changes_++;
  uint32_t index;
  if (free_.empty()) {
    index = static_cast<uint32_t>(peers_.size());
    peers_.emplace_back();
  } else {
    index = free_.back();
    free_.pop_back();
  }
  // Those at one address are many queue pairs of one host: mostly the first has the same way.
  auto& same = byGid_[peer.gid];
  const auto alike = std::find_if(same.begin(), same.end(), [&](uint32_t other) {
    const Peer& known = peers_[other];
    return known.local == peer.local && known.hopLimit == peer.hopLimit && known.to.port() == peer.to.port();
  });
  peer.way = alike != same.end() ? peers_[*alike].way : ++ways_;
  same.push_back(index);
  peer.live = true;
  peers_[index] = std::move(peer);
  return index;
}

void PeerTable::remove(uint32_t index) {
  changes_++;
  Peer& peer = peers_[index];
  const auto same = byGid_.find(peer.gid);
  auto& indices = same->second;
  const bool hasWindow = &window(peer.gid, peer.local) == &peer.window;
  indices.erase(std::find(indices.begin(), indices.end(), index));
  if (indices.empty()) byGid_.erase(same);
  peer.live = false;
  // What the source sends next is counted on from there: a disconnect behind a connection's data, once its queue pair has gone.
  if (hasWindow && peer.window.anySeen()) window(peer.gid, peer.local) = peer.window;
  free_.push_back(index);
}

uint32_t PeerTable::find(const Gid& gid, uint32_t local) const {
  const auto same = byGid_.find(gid);
  if (same == byGid_.end()) return kNoPeer;
  for (const uint32_t index : same->second)
    if (peers_[index].local == local) return index;
  return same->second.front();
}

IdWindow& PeerTable::window(const Gid& gid, uint32_t local) {
  Peer* peer = at(find(gid, local));
  // What a peer sends to another local address, a group perhaps, Linux counts apart.
  return peer != nullptr && peer->local == local ? peer->window : strangers_.window(gid, local);
}

bool PeerTable::anyOf(uint32_t local) const {
  return std::any_of(peers_.begin(), peers_.end(),
                     [local](const Peer& peer) { return peer.live && peer.local == local; });
}

IdWindow& StrangerTable::window(const Gid& gid, uint32_t local) {
  if (entries_.empty()) entries_.resize(kEntries);
  Entry& entry = entries_[(hash_(gid) + local) % kEntries];
  if (entry.gid != gid || entry.local != local) entry = {gid, local, IdWindow{}};
  return entry.window;
}

}  // namespace roce
