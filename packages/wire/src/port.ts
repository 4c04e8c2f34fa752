/**
 * UDP ports of RoCEv2 (IBTA annex A17). The destination is always 4791. The source is the entropy by which
 * switches and receivers spread flows: nothing may be read from it, but equal peers derive it equally.
 */

export const ROCE_UDP_PORT = 4791;
/** The source ports are the top quarter of all ports. */
export const SOURCE_PORT_MIN = 0xc000;

const FLOW_LABEL_MASK = 0xf_ffff;

/** Source port of a 20-bit flow label: its top six bits folded into the low fourteen (`rdma_flow_label_to_udp_sport`). */
export function sourcePortFromFlowLabel(flowLabel: number): number {
  return ((flowLabel & 0x3fff) ^ ((flowLabel >>> 14) & 0x3f)) | SOURCE_PORT_MIN;
}

/**
 * The flow label that stands in for a connection's flow label 0 (`rdma_calc_flow_label`): the product of
 * the two QPNs folded to 20 bits, so both directions have the same one.
 */
export function flowLabelFromQpns(localQpn: number, remoteQpn: number): number {
  // 24 × 24 bits are 48: exact in a double, but `>>` and `^` would cut it to 32, so it is split first.
  const product = localQpn * remoteQpn;
  const low = product % 0x10_0000;
  const rest = Math.floor(product / 0x10_0000);
  return (low ^ (rest & FLOW_LABEL_MASK) ^ (rest >>> 20)) & FLOW_LABEL_MASK;
}

/** Source port of an RC or UC queue pair: from its flow label, or from the two QPNs when that is 0. */
export function sourcePortForConnection(flowLabel: number, localQpn: number, remoteQpn: number): number {
  return sourcePortFromFlowLabel(flowLabel === 0 ? flowLabelFromQpns(localQpn, remoteQpn) : flowLabel);
}

/** Source port of a UD queue pair as rxe picks it (a 14-bit multiplicative hash of the QPN); QP1 gives 55410. */
export function sourcePortForUd(qpn: number): number {
  return SOURCE_PORT_MIN + (Math.imul(qpn, 0x61c8_8647) >>> 18);
}

/** The flow label the RDMA CM gives a connection, from the two IP ports of its service (`cma_resolve_iboe_route`). */
export function flowLabelForCm(sourcePort: number, destinationPort: number): number {
  return (sourcePort * 31 + destinationPort) & FLOW_LABEL_MASK;
}
