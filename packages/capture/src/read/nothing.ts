/** Contents of a capture without RoCE, and a hint. */
import { counted, formatCount } from '../units.ts';
import { FOREIGN } from './foreign.ts';
import { snapAdvice } from './snap-length.ts';
import type { CaptureSummary } from './summary.ts';

/** Two sentences on a capture in which nothing was decoded. */
export interface NothingDecoded {
  text: string;
  hint: string;
}

/** Frequent companions of RoCE by name (IANA protocol numbers, IEEE EtherTypes). */
const NAMES: ReadonlyMap<string, string> = new Map([
  ['IP protocol 1', 'ICMP'],
  ['IP protocol 2', 'IGMP'],
  ['IP protocol 6', 'TCP'],
  ['next header 6', 'TCP'],
  ['IP protocol 50', 'IPsec ESP'],
  ['next header 50', 'IPsec ESP'],
  ['next header 58', 'ICMPv6'],
  ['EtherType 0x806', 'ARP'],
  ['EtherType 0x8809', 'LACP'],
  ['EtherType 0x88cc', 'LLDP'],
]);

/** Undefined if there are RoCE packets or pause frames. */
export function nothingDecoded(summary: CaptureSummary): NothingDecoded | undefined {
  const { frames, rocePackets, pauseFrames, icmpErrors, otherKinds, damaged, linkTypes } = summary;
  if (rocePackets > 0 || pauseFrames > 0) return undefined;
  if (frames === 0)
    return { text: 'The capture has no frames', hint: 'Is the interface right, and is there traffic?' };
  const about = icmpErrors === 0 ? [] : [['ICMP error about a RoCE packet', icmpErrors] as const];
  const kinds = [...about, ...Object.entries(otherKinds), ...Object.entries(damaged)].map(
    ([kind, count]) => `${formatCount(count)} × ${NAMES.get(kind) ?? kind}`,
  );
  const links = linkTypes.length === 0 ? '' : ` (link type ${linkTypes.join(', ')})`;
  const text = `No RoCE packet was decoded in ${counted(frames, 'frame')}${links}: ${kinds.join(', ')}`;
  return { text, hint: hintFor(summary) };
}

function hintFor({ otherKinds, damaged, neededSnapLength }: CaptureSummary): string {
  if (damaged.truncated !== undefined)
    return `Frames are cut inside their headers: ${snapAdvice(neededSnapLength)}.`;
  if (damaged['vendor-opcode'] !== undefined)
    return 'Opcodes from 0xc0 on are left to manufacturers: these packets are RoCE of one adapter maker, whose meaning is not public.';
  const kinds = Object.keys(otherKinds);
  if (kinds.includes(FOREIGN))
    return 'Another program uses the UDP port of RoCE, such as a client whose port was chosen by chance: these are its datagrams.';
  const ports = kinds.filter((kind) => /^UDP port \d+$/.test(kind)).map((kind) => kind.slice(9));
  if (ports.length > 0)
    return `If one of these UDP ports carries RoCE, name it: --port ${ports[0]}. A port is found by itself only if ICRCs are right and whole frames were captured.`;
  if (kinds.includes('MACsec, encrypted'))
    return 'MACsec hides its contents: capture inside of the link, or at the host.';
  if (kinds.includes('IP protocol 50') || kinds.includes('next header 50'))
    return 'IPsec hides its contents: capture inside of the tunnel.';
  return 'Is it the right interface? Adapters that offload RDMA hide its packets from the host: use a mirror port of the switch, or the sniffer of the adapter.';
}

/** Kinds that are counted on their own. */
const MAX_KINDS = 1000;
/** Kinds in the result; the rest is `other`. */
const SHOWN_KINDS = 8;

/** Frames that are not RoCE by their kind, in bounded memory: for the case that nothing else is in a capture. */
export class OtherFrames {
  readonly #counts = new Map<string, number>();
  #rest = 0;

  /** @param kind the decoder's detail, such as `UDP port 53` */
  add(kind: string): void {
    const count = this.#counts.get(kind);
    if (count === undefined && this.#counts.size >= MAX_KINDS) this.#rest++;
    else this.#counts.set(kind, (count ?? 0) + 1);
  }

  /** The kinds with most frames, the most first; `other` stands for the rest. */
  counts(): Record<string, number> {
    const all = [...this.#counts].sort(([, x], [, y]) => y - x);
    const rest = all.slice(SHOWN_KINDS).reduce((sum, [, count]) => sum + count, this.#rest);
    return Object.fromEntries([...all.slice(0, SHOWN_KINDS), ...(rest > 0 ? [['other', rest]] : [])]);
  }
}
