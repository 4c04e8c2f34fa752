// Counts of an AF_XDP port itself; the kernel's counts come in addition.
#pragma once
#include <cstdint>

#include "stats.h"

namespace roce {

struct XdpStats {
  uint64_t txPackets = 0;      // handed over, whichever way
  uint64_t txBytes = 0;        // UDP payload of those
  uint64_t txThroughKernel = 0;  // of those, by a raw IP socket: no MAC address yet, or another interface
  uint64_t txLooped = 0;       // of those, to an address of the link itself
  uint64_t sendErrors = 0;     // packets for which the kernel gave an error
  uint64_t sendRejected = 0;   // slots that were wrong
  uint64_t sendBlocked = 0;    // batches that ended early: no place to send from
  uint64_t loopDrops = 0;      // packets to an address of the link itself for which there was no room
  uint64_t rxFrames = 0;       // received
  uint64_t rxPackets = 0;      // handed over, whatever the verdict
  uint64_t rxBytes = 0;        // UDP payload of those
  uint64_t superPackets = 0;   // frames that held two packets or more
  uint64_t gathered = 0;       // frames of several buffers that did not lie side by side
  uint64_t icrcBad = 0;
  uint64_t flushTwice = 0;     // FLUSHes taken whose ICRC covers BTH to RETH twice
  uint64_t badDescriptors = 0;  // of the ring, that no frame can have: outside of the memory, or without an end
  uint64_t malformed = 0;      // frames with headers that contradict each other
  uint64_t checksumErrors = 0;  // wrong checksum of the IPv4 header
  uint64_t badSources = 0;     // from an address that no host has
  uint64_t runts = 0;          // too short for a BTH and an ICRC
  uint64_t overruns = 0;       // packets for which no slot was left, or no room
};

inline constexpr StatField<XdpStats> kXdpStatFields[] = {
    {"txPackets", &XdpStats::txPackets},
    {"txBytes", &XdpStats::txBytes},
    {"txThroughKernel", &XdpStats::txThroughKernel},
    {"txLooped", &XdpStats::txLooped},
    {"sendErrors", &XdpStats::sendErrors},
    {"sendRejected", &XdpStats::sendRejected},
    {"sendBlocked", &XdpStats::sendBlocked},
    {"loopDrops", &XdpStats::loopDrops},
    {"rxFrames", &XdpStats::rxFrames},
    {"rxPackets", &XdpStats::rxPackets},
    {"rxBytes", &XdpStats::rxBytes},
    {"superPackets", &XdpStats::superPackets},
    {"gathered", &XdpStats::gathered},
    {"icrcBad", &XdpStats::icrcBad},
    {"flushTwice", &XdpStats::flushTwice},
    {"badDescriptors", &XdpStats::badDescriptors},
    {"malformed", &XdpStats::malformed},
    {"checksumErrors", &XdpStats::checksumErrors},
    {"badSources", &XdpStats::badSources},
    {"runts", &XdpStats::runts},
    {"overruns", &XdpStats::overruns},
};

}  // namespace roce
