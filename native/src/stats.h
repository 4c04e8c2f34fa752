// Counters of a port.
#pragma once
#include <cstdint>

namespace roce {

struct Stats {
  uint64_t txPackets = 0;      // taken by the kernel
  uint64_t txBytes = 0;        // UDP payload of those
  uint64_t txMessages = 0;     // passed to the kernel: a GSO run is one
  uint64_t gsoRuns = 0;        // runs of two packets or more
  uint64_t gsoFallbacks = 0;   // runs that the kernel refused, sent one by one then
  uint64_t runSlots = 0;       // slots of several packets that differ in their PSNs alone
  uint64_t sendErrors = 0;     // packets for which the kernel gave an error
  uint64_t sendRejected = 0;   // slots that were wrong
  uint64_t sendBlocked = 0;    // batches that ended early at a full socket
  uint64_t rxDatagrams = 0;    // received: a GRO super-packet is one
  uint64_t rxPackets = 0;      // handed over, whatever the verdict
  uint64_t rxBytes = 0;        // UDP payload of those
  uint64_t groRuns = 0;        // super-packets of two packets or more
  uint64_t icrcBad = 0;
  uint64_t icrcOutOfWindow = 0;
  uint64_t flushTwice = 0;     // FLUSHes taken whose ICRC covers BTH to RETH twice
  uint64_t solved = 0;         // Identifications found by solving: not the predicted ones
  uint64_t mayFragment = 0;    // with a right ICRC for an IPv4 header without "don't fragment"
  uint64_t runts = 0;          // too short for a BTH and an ICRC
  uint64_t truncated = 0;      // datagrams too long for their place in the slab
  uint64_t overruns = 0;       // packets of a super-packet for which no slot was left
  uint64_t receiveErrors = 0;  // errors of recvmmsg
};

/// The name of a count in JavaScript.
template <class Counts>
struct StatField {
  const char* name;
  uint64_t Counts::*count;
};

inline constexpr StatField<Stats> kStatFields[] = {
    {"txPackets", &Stats::txPackets},
    {"txBytes", &Stats::txBytes},
    {"txMessages", &Stats::txMessages},
    {"gsoRuns", &Stats::gsoRuns},
    {"gsoFallbacks", &Stats::gsoFallbacks},
    {"runSlots", &Stats::runSlots},
    {"sendErrors", &Stats::sendErrors},
    {"sendRejected", &Stats::sendRejected},
    {"sendBlocked", &Stats::sendBlocked},
    {"rxDatagrams", &Stats::rxDatagrams},
    {"rxPackets", &Stats::rxPackets},
    {"rxBytes", &Stats::rxBytes},
    {"groRuns", &Stats::groRuns},
    {"icrcBad", &Stats::icrcBad},
    {"icrcOutOfWindow", &Stats::icrcOutOfWindow},
    {"flushTwice", &Stats::flushTwice},
    {"solved", &Stats::solved},
    {"mayFragment", &Stats::mayFragment},
    {"runts", &Stats::runts},
    {"truncated", &Stats::truncated},
    {"overruns", &Stats::overruns},
    {"receiveErrors", &Stats::receiveErrors},
};

}  // namespace roce
