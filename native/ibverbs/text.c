// Numbers as words, the same as libibverbs': programs print and compare them.
#include <stdio.h>

#include "roce.h"

const char *ibv_node_type_str(enum ibv_node_type type) {
  static const char *const names[] = {
      [IBV_NODE_CA] = "InfiniBand channel adapter", [IBV_NODE_SWITCH] = "InfiniBand switch",
      [IBV_NODE_ROUTER] = "InfiniBand router",      [IBV_NODE_RNIC] = "iWARP NIC",
      [IBV_NODE_USNIC] = "usNIC",                   [IBV_NODE_USNIC_UDP] = "usNIC UDP",
      [IBV_NODE_UNSPECIFIED] = "unspecified"};
  return (unsigned)type < COUNT(names) && names[type] != NULL ? names[type] : "unknown";
}

const char *ibv_port_state_str(enum ibv_port_state state) {
  static const char *const names[] = {"no state change (NOP)", "down", "init", "armed", "active", "active defer"};
  return (unsigned)state < COUNT(names) ? names[state] : "unknown";
}

const char *ibv_event_type_str(enum ibv_event_type type) {
  static const char *const names[] = {
      "CQ error",        "local work queue catastrophic error",      "invalid request local work queue error", "local access violation work queue error",   "communication established",
      "send queue drained", "path migrated",    "path migration request error", "local catastrophic error", "port active",
      "port error",      "LID change",          "P_Key change",     "SM change",         "SRQ catastrophic error",
      "SRQ limit reached", "last WQE reached",  "client reregistration", "GID table change",   "WQ fatal"};
  return (unsigned)type < COUNT(names) ? names[type] : "unknown";
}

const char *ibv_wc_status_str(enum ibv_wc_status status) {
  static const char *const names[] = {
      "success",           "local length error",    "local QP operation error", "local EE context operation error",
      "local protection error", "Work Request Flushed Error",          "memory management operation error", "bad response error",
      "local access error", "remote invalid request error", "remote access error",    "remote operation error",
      "transport retry counter exceeded", "RNR retry counter exceeded", "local RDD violation error", "remote invalid RD request",
      "aborted error",      "invalid EE context number", "invalid EE context state", "fatal error",
      "response timeout error",  "general error",         "TM error",       "TM software rendezvous"};
  return (unsigned)status < COUNT(names) ? names[status] : "unknown";
}

// Of rdma-core 50 and newer.
const char *ibv_wr_opcode_str(enum ibv_wr_opcode opcode) {
  static const char *const names[] = {
      [IBV_WR_RDMA_WRITE] = "IBV_WR_RDMA_WRITE",
      [IBV_WR_RDMA_WRITE_WITH_IMM] = "IBV_WR_RDMA_WRITE_WITH_IMM",
      [IBV_WR_SEND] = "IBV_WR_SEND",
      [IBV_WR_SEND_WITH_IMM] = "IBV_WR_SEND_WITH_IMM",
      [IBV_WR_RDMA_READ] = "IBV_WR_RDMA_READ",
      [IBV_WR_ATOMIC_CMP_AND_SWP] = "IBV_WR_ATOMIC_CMP_AND_SWP",
      [IBV_WR_ATOMIC_FETCH_AND_ADD] = "IBV_WR_ATOMIC_FETCH_AND_ADD",
      [IBV_WR_LOCAL_INV] = "IBV_WR_LOCAL_INV",
      [IBV_WR_BIND_MW] = "IBV_WR_BIND_MW",
      [IBV_WR_SEND_WITH_INV] = "IBV_WR_SEND_WITH_INV",
      [IBV_WR_TSO] = "IBV_WR_TSO",
      [IBV_WR_DRIVER1] = "IBV_WR_DRIVER1",
      [14] = "IBV_WR_FLUSH",
      [ROCE_WR_ATOMIC_WRITE] = "IBV_WR_ATOMIC_WRITE"};
  return (unsigned)opcode < COUNT(names) && names[opcode] != NULL ? names[opcode] : "unknown";
}

// Rates by their code: in units of 2.5 Gb/s where they are such, and in Mb/s.
static const struct {
  enum ibv_rate rate;
  int multiple, megabits;
} rates[] = {
    {IBV_RATE_2_5_GBPS, 1, 2500},    {IBV_RATE_5_GBPS, 2, 5000},      {IBV_RATE_10_GBPS, 4, 10000},
    {IBV_RATE_20_GBPS, 8, 20000},    {IBV_RATE_30_GBPS, 12, 30000},   {IBV_RATE_40_GBPS, 16, 40000},
    {IBV_RATE_60_GBPS, 24, 60000},   {IBV_RATE_80_GBPS, 32, 80000},   {IBV_RATE_120_GBPS, 48, 120000},
    {IBV_RATE_14_GBPS, -1, 14062},   {IBV_RATE_56_GBPS, -1, 56250},   {IBV_RATE_112_GBPS, -1, 112500},
    {IBV_RATE_168_GBPS, -1, 168750}, {IBV_RATE_25_GBPS, -1, 25781},   {IBV_RATE_100_GBPS, -1, 103125},
    {IBV_RATE_200_GBPS, -1, 206250}, {IBV_RATE_300_GBPS, -1, 309375},
    // 28, 50, 400, 600, 800 and 1200 Gb/s: not every header has the names.
    {(enum ibv_rate)19, 11, 28125},   {(enum ibv_rate)20, 20, 53125},   {(enum ibv_rate)21, 160, 425000},
    {(enum ibv_rate)22, 240, 637500}, {(enum ibv_rate)23, 320, 850000}, {(enum ibv_rate)24, 480, 1275000},
};

int ibv_rate_to_mult(enum ibv_rate rate) {
  for (size_t i = 0; i < COUNT(rates); i++)
    if (rates[i].rate == rate) return rates[i].multiple;
  return -1;
}

enum ibv_rate mult_to_ibv_rate(int multiple) {
  for (size_t i = 0; i < COUNT(rates); i++)
    if (multiple > 0 && rates[i].multiple == multiple) return rates[i].rate;
  return IBV_RATE_MAX;
}

int ibv_rate_to_mbps(enum ibv_rate rate) {
  for (size_t i = 0; i < COUNT(rates); i++)
    if (rates[i].rate == rate) return rates[i].megabits;
  return -1;
}

enum ibv_rate mbps_to_ibv_rate(int megabits) {
  for (size_t i = 0; i < COUNT(rates); i++)
    if (rates[i].megabits == megabits) return rates[i].rate;
  return IBV_RATE_MAX;
}
