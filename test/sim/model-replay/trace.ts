/** The connections of a capture, and its datagrams, as packets of the model with their times. */
import { openCapture } from '@node-roce/pcap/node';
import { decodePacket, type ModelPacket } from '@node-roce/sim';
import { gidFromIpBytes, opcodeInfo, ROCE_UDP_PORT, Transport, verifyIcrc } from '@node-roce/wire';

export type Side = 'A' | 'B';

export interface TracePacket {
  /** Number of the packet in the capture, from 1, as tshark counts. */
  number: number;
  /** µs since the capture's first packet. */
  time: number;
  from: Side;
  packet: ModelPacket;
  isRequest: boolean;
  /** GIDs of the IP header, and its other fields that reach a program. */
  source: Uint8Array;
  destination: Uint8Array;
  trafficClass: number;
}

/** The packets between two queue pairs. */
export interface Connection {
  qpn: Record<Side, number>;
  packets: TracePacket[];
}

interface Datagram extends Pick<TracePacket, 'from' | 'source' | 'destination' | 'trafficClass'> {
  sourcePort: number;
  roce: Uint8Array;
}

/** Host A has the address that ends in 2 (10.77.0.2, fd77::2). */
const LAST_BYTE_OF_A = 2;

/** The RoCE datagram in an Ethernet frame, if its ICRC is right: what an adapter would look at. */
function datagramOf(frame: Uint8Array): Datagram | undefined {
  const etherType = (frame[12] << 8) | frame[13];
  const ip = frame.subarray(14);
  const v4 = etherType === 0x0800;
  if (!v4 && etherType !== 0x86dd) return undefined;
  const ipBytes = v4 ? (ip[0] & 15) * 4 : 40;
  if ((v4 ? ip[9] : ip[6]) !== 17) return undefined;
  const udp = ip.subarray(ipBytes);
  if (((udp[2] << 8) | udp[3]) !== ROCE_UDP_PORT) return undefined;
  const udpLength = (udp[4] << 8) | udp[5];
  const end = ipBytes + udpLength;
  if (ip.length < end || !verifyIcrc(ip, 0, end)) return undefined;
  const [source, destination] = v4
    ? [ip.slice(12, 16), ip.slice(16, 20)]
    : [ip.slice(8, 24), ip.slice(24, 40)];
  return {
    from: ip[v4 ? 15 : 23] === LAST_BYTE_OF_A ? 'A' : 'B',
    source: gidFromIpBytes(source),
    destination: gidFromIpBytes(destination),
    trafficClass: v4 ? ip[1] : ((ip[0] & 15) << 4) | (ip[1] >> 4),
    sourcePort: (udp[0] << 8) | udp[1],
    roce: udp.subarray(8, udpLength - 4),
  };
}

export const otherSide = (side: Side): Side => (side === 'A' ? 'B' : 'A');

/** Every RoCE packet with a right ICRC that the model can read, in order. */
async function* readPackets(path: string): AsyncGenerator<TracePacket & { sourcePort: number }> {
  let number = 0;
  let start: number | undefined;
  for await (const records of openCapture(path)) {
    for (const record of records) {
      number++;
      const time = record.seconds * 1e6 + record.nanoseconds / 1e3;
      start ??= time;
      const datagram = datagramOf(record.data);
      if (datagram === undefined) continue;
      const { roce, ...rest } = datagram;
      const decoded = decodePacket(roce);
      if (!decoded.ok) continue;
      const { packet } = decoded;
      const { isRequest } = opcodeInfo(packet.opcode)!;
      yield { number, time: time - start, packet, isRequest, ...rest };
    }
  }
}

const isOf = (service: keyof typeof Transport, { opcode }: ModelPacket) =>
  opcodeInfo(opcode)!.transport === Transport[service];

/**
 * Reads a capture and sorts its packets of RC or UC by connection. rxe derives the UDP source port from both
 * QPNs, so the two directions of a connection have the same port; where flow labels make them differ there is
 * but one connection.
 */
export async function readConnections(path: string, service: 'RC' | 'UC' = 'RC'): Promise<Connection[]> {
  const byPort = new Map<number, Connection>();
  for await (const { sourcePort, ...traced } of readPackets(path)) {
    if (!isOf(service, traced.packet)) continue;
    const connection = byPort.get(sourcePort) ?? { qpn: { A: -1, B: -1 }, packets: [] };
    byPort.set(sourcePort, connection);
    connection.qpn[otherSide(traced.from)] = traced.packet.destQpn;
    connection.packets.push(traced);
  }
  return joinHalves([...byPort.values()]);
}

/** The datagrams of a capture by the two queue pairs that they are between; QPN 0xffffff stands for a group. */
export async function readDatagrams(path: string): Promise<Connection[]> {
  const byQpns = new Map<string, Connection>();
  for await (const { sourcePort: _, ...traced } of readPackets(path)) {
    if (!isOf('UD', traced.packet)) continue;
    const qpn = { A: traced.packet.destQpn, B: traced.packet.destQpn };
    qpn[traced.from] = traced.packet.deth!.srcQpn;
    const flow = byQpns.get(`${qpn.A} ${qpn.B}`) ?? { qpn, packets: [] };
    byQpns.set(`${qpn.A} ${qpn.B}`, flow);
    flow.packets.push(traced);
  }
  return [...byQpns.values()];
}

/** Two halves, each with one direction only, are one connection. */
function joinHalves(connections: Connection[]): Connection[] {
  const [first, second] = connections;
  if (connections.length !== 2 || second.qpn.A + second.qpn.B + first.qpn.A + first.qpn.B < 0)
    return connections;
  const isHalf = ({ qpn }: Connection) => qpn.A < 0 || qpn.B < 0;
  if (!isHalf(first) || !isHalf(second)) return connections;
  return [
    {
      qpn: { A: Math.max(first.qpn.A, second.qpn.A), B: Math.max(first.qpn.B, second.qpn.B) },
      packets: [...first.packets, ...second.packets].sort((x, y) => x.number - y.number),
    },
  ];
}

/** A packet in one line, for messages of failed tests. */
export function show(packet: ModelPacket): string {
  const parts = [
    opcodeInfo(packet.opcode)?.name ?? packet.opcode.toString(16),
    `psn 0x${packet.psn.toString(16)}`,
    packet.ackReq ? 'AckReq' : '',
    packet.aeth === undefined ? '' : `syndrome 0x${packet.aeth.syndrome.toString(16)} msn ${packet.aeth.msn}`,
    packet.reth === undefined
      ? ''
      : `va 0x${packet.reth.va.toString(16)} key 0x${packet.reth.rkey.toString(16)} of ${packet.reth.length}`,
    packet.original === undefined ? '' : `original 0x${packet.original.toString(16)}`,
    packet.deth === undefined ? '' : `Q_Key 0x${packet.deth.qkey.toString(16)}`,
    packet.immediate === undefined ? '' : `imm 0x${packet.immediate.toString(16)}`,
    `${packet.payload.length} bytes`,
  ];
  return parts.filter((part) => part !== '').join(' ');
}

/** Everything of a packet that the protocol determines is equal. */
export function samePacket(a: ModelPacket, b: ModelPacket): boolean {
  return show(a) === show(b) && a.solicited === b.solicited && samePayload(a, b) && sameOperands(a, b);
}

export function samePayload(a: ModelPacket, b: ModelPacket): boolean {
  return a.payload.length === b.payload.length && a.payload.every((byte, i) => byte === b.payload[i]);
}

function sameOperands(a: ModelPacket, b: ModelPacket): boolean {
  return (
    a.atomicEth?.va === b.atomicEth?.va &&
    a.atomicEth?.rkey === b.atomicEth?.rkey &&
    a.atomicEth?.swapAdd === b.atomicEth?.swapAdd &&
    // FETCH ADD has no use for the field, and rxe leaves in it whatever the work request held.
    (opcodeInfo(a.opcode)?.key !== 'RC_COMPARE_SWAP' || a.atomicEth?.compare === b.atomicEth?.compare) &&
    a.invalidateRkey === b.invalidateRkey
  );
}
