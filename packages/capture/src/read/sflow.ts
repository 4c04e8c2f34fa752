/**
 * Packets in sFlow datagrams (version 5, sflow.org): samples of a switch's traffic, one of so many packets, of which the first
 * bytes are kept.
 */
import { LinkType } from '@node-roce/pcap';
import { u32 } from '@node-roce/wire';

export const SFLOW_PORT = 6343;

const VERSION = 5;
/** Bytes of an agent's address by its type. */
const AGENT_BYTES = [0, 4, 16];
/** Sample and record formats of the enterprise 0. */
const FLOW_SAMPLE = 1;
const EXPANDED_FLOW_SAMPLE = 3;
const RAW_HEADER = 1;
/** Words of a sample in front of its records: expanded ones name their interfaces with two words each. */
const FLOW_SAMPLE_BYTES = 32;
const EXPANDED_BYTES = 44;
/** Protocol, length of the frame, bytes stripped, length of the header. */
const RAW_HEADER_BYTES = 16;
/** Header protocols: Ethernet, IPv4, IPv6. */
const LINK_TYPES: ReadonlyMap<number, number> = new Map([
  [1, LinkType.ETHERNET],
  [11, LinkType.RAW],
  [12, LinkType.RAW],
]);
/** Samples that are looked for in a datagram; a switch sends a dozen. */
const MAX_SAMPLES = 1024;

/** A sampled packet's first bytes in the frame. */
export interface Sample {
  at: number;
  end: number;
  linkType: number;
}

/** Whether the datagram is sFlow of this version. */
export const isSflow = (b: Uint8Array, o: number, end: number): boolean =>
  o + 8 <= end && u32(b, o) === VERSION && (u32(b, o + 4) === 1 || u32(b, o + 4) === 2);

/** The sampled packets of a datagram at `o`, in their order; damage ends the list. */
export function* sflowSamples(b: Uint8Array, o: number, end: number): Generator<Sample, void> {
  if (!isSflow(b, o, end)) return;
  // Agent's address, sub-agent, sequence number, uptime; then the number of samples.
  let at = o + 8 + AGENT_BYTES[u32(b, o + 4)] + 12;
  if (at + 4 > end) return;
  const count = Math.min(u32(b, at), MAX_SAMPLES);
  at += 4;
  for (let i = 0; i < count && at + 8 <= end; i++) {
    const format = u32(b, at);
    const start = at + 8;
    const after = start + u32(b, at + 4);
    const header =
      format === FLOW_SAMPLE ? FLOW_SAMPLE_BYTES : format === EXPANDED_FLOW_SAMPLE ? EXPANDED_BYTES : 0;
    if (header > 0 && start + header <= end) yield* records(b, start + header, Math.min(after, end));
    at = after;
  }
}

/** @param o behind the sample's own words, the last of which is the number of records */
function* records(b: Uint8Array, o: number, end: number): Generator<Sample, void> {
  const count = Math.min(u32(b, o - 4), MAX_SAMPLES);
  let at = o;
  for (let i = 0; i < count && at + 8 <= end; i++) {
    const format = u32(b, at);
    const start = at + 8;
    const length = u32(b, at + 4);
    if (format === RAW_HEADER && length >= RAW_HEADER_BYTES && start + RAW_HEADER_BYTES <= end) {
      const linkType = LINK_TYPES.get(u32(b, start));
      const from = start + RAW_HEADER_BYTES;
      const to = Math.min(from + u32(b, start + 12), start + length, end);
      if (linkType !== undefined && to > from) yield { at: from, end: to, linkType };
    }
    at = start + length;
  }
}
