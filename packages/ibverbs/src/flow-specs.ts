/** The structs of ibv_create_flow(3). Numbers are those that travel in network order: leave `htons` and `htonl` out. */
import type * as c from './constants.ts';
import type { ibv_counters } from './counters.ts';

/** Values, and the bits of them that count; without a mask, none does. */
interface Filtered<T> {
  val?: T;
  mask?: T;
}

/** `struct ibv_flow_spec_eth`. `ether_type` is the one behind the last VLAN tag. */
export interface ibv_flow_spec_eth
  extends Filtered<{
    /** 6 bytes. */
    dst_mac?: Uint8Array | readonly number[];
    src_mac?: Uint8Array | readonly number[];
    ether_type?: number;
    /** Priority, DEI and VLAN id, 16 bits. */
    vlan_tag?: number;
  }> {
  type: typeof c.IBV_FLOW_SPEC_ETH;
}

/** `struct ibv_flow_spec_ipv4`, and `struct ibv_flow_spec_ipv4_ext` with all members. */
export interface ibv_flow_spec_ip4
  extends Filtered<{
    src_ip?: number;
    dst_ip?: number;
    proto?: number;
    tos?: number;
    ttl?: number;
    /** 3 bits. */
    flags?: number;
  }> {
  type: typeof c.IBV_FLOW_SPEC_IPV4 | typeof c.IBV_FLOW_SPEC_IPV4_EXT;
}

/** `struct ibv_flow_spec_ipv6`. */
export interface ibv_flow_spec_ip6
  extends Filtered<{
    /** 16 bytes. */
    src_ip?: Uint8Array | readonly number[];
    dst_ip?: Uint8Array | readonly number[];
    flow_label?: number;
    next_hdr?: number;
    traffic_class?: number;
    hop_limit?: number;
  }> {
  type: typeof c.IBV_FLOW_SPEC_IPV6;
}

/** `struct ibv_flow_spec_tcp_udp`. */
export interface ibv_flow_spec_tcp_udp extends Filtered<{ dst_port?: number; src_port?: number }> {
  type: typeof c.IBV_FLOW_SPEC_TCP | typeof c.IBV_FLOW_SPEC_UDP;
}

/** `struct ibv_flow_spec_counter_action`. */
export interface ibv_flow_spec_counter_action {
  type: typeof c.IBV_FLOW_SPEC_ACTION_COUNT;
  counters: ibv_counters;
}

/** `struct ibv_flow_spec`. */
export type ibv_flow_spec =
  | ibv_flow_spec_eth
  | ibv_flow_spec_ip4
  | ibv_flow_spec_ip6
  | ibv_flow_spec_tcp_udp
  | ibv_flow_spec_counter_action;

/** `struct ibv_flow_attr`, with the specifications, which follow it in C, as a list. */
export interface ibv_flow_attr {
  /** 0. */
  comp_mask?: number;
  /** IBV_FLOW_ATTR_NORMAL, IBV_FLOW_ATTR_ALL_DEFAULT or IBV_FLOW_ATTR_MC_DEFAULT. */
  type: number;
  /** Without effect: each queue pair has its own copy of a frame, so that flows do not compete. */
  priority?: number;
  /** All of `specs` unless given. */
  num_of_specs?: number;
  /** 1. */
  port?: number;
  /** IBV_FLOW_ATTR_FLAGS_DONT_TRAP, which changes nothing: no queue pair takes a frame from another. */
  flags?: number;
  specs?: readonly ibv_flow_spec[];
}
