/** A live table of packets by flow. `roce flows` analyzes a file in more detail. */
import { type Addresses, IcrcVerdict, isNak, type RocePacket } from '@node-roce/capture';
import { AethKind, aethKind, ECN_CE, ICRC_BYTES, Opcode, psnDiff, Transport } from '@node-roce/wire';

/** Flows with rows of their own; packets of later ones count in the totals only. */
const MAX_FLOWS = 10_000;

/** Counts since the start. */
export class FlowCounts {
  packets = 0;
  /** Of the frames that they came in, from the link layer's header to the ICRC. */
  bytes = 0;
  /** RC requests whose PSN was not ahead of all before: retransmitted, late, or a mirror's duplicates. */
  sentAgain = 0;
  naks = 0;
  rnrNaks = 0;
  ecnMarked = 0;
  cnps = 0;
  icrcBad = 0;

  /** The packet's share, as far as it needs no memory of others. */
  add(packet: RocePacket): void {
    this.packets++;
    this.bytes += lengthOf(packet);
    if (packet.ecn === ECN_CE) this.ecnMarked++;
    if (packet.opcode === Opcode.CNP) this.cnps++;
    if (packet.icrc === IcrcVerdict.BAD) this.icrcBad++;
    else if (isNak(packet)) {
      const syndrome = packet.bytes[packet.bth + packet.info.offsets.aeth];
      if (aethKind(syndrome) === AethKind.RNR_NAK) this.rnrNaks++;
      else this.naks++;
    }
  }
}

/** Bytes of the packet in a frame of its own. */
function lengthOf({ bth, link, info, payloadLength, padCount }: RocePacket): number {
  return bth - link + info.headerLength + payloadLength + padCount + ICRC_BYTES;
}

/** One direction between two addresses to one queue pair. */
export class Flow extends FlowCounts {
  readonly source: number;
  readonly destination: number;
  readonly destQp: number;
  transport = '';
  #highest = -1;

  constructor(source: number, destination: number, destQp: number) {
    super();
    this.source = source;
    this.destination = destination;
    this.destQp = destQp;
  }

  /** @returns whether it is a request with a PSN that had passed before */
  takeRequest(psn: number): boolean {
    if (this.#highest >= 0 && psnDiff(psn, this.#highest) <= 0) return true;
    this.#highest = psn;
    return false;
  }
}

/** Counters of a live capture, in total and by flow; the number of flows is bounded. */
export class FlowTable {
  readonly total = new FlowCounts();
  /** In the order of their first packets. */
  readonly flows: Flow[] = [];
  readonly #byKey = new Map<number, Map<number, Flow>>();

  add(packet: RocePacket): void {
    const { total } = this;
    total.add(packet);
    const flow = this.#flowOf(packet);
    if (flow === undefined) return;
    flow.add(packet);
    flow.transport = packet.info.transportName;
    const { info, icrc } = packet;
    const isOrdered = info.transport === Transport.RC && info.isRequest && icrc !== IcrcVerdict.BAD;
    if (isOrdered && flow.takeRequest(packet.psn)) {
      flow.sentAgain++;
      total.sentAgain++;
    }
  }

  #flowOf({ source, destination, destQp }: RocePacket): Flow | undefined {
    // Address numbers have 16 bits each, so the key is exact.
    const pair = source * 65_536 + destination;
    let byQp = this.#byKey.get(pair);
    const known = byQp?.get(destQp);
    if (known !== undefined || this.flows.length >= MAX_FLOWS) return known;
    if (byQp === undefined) {
      byQp = new Map();
      this.#byKey.set(pair, byQp);
    }
    const flow = new Flow(source, destination, destQp);
    byQp.set(destQp, flow);
    this.flows.push(flow);
    return flow;
  }
}

export const nameOfFlow = ({ source, destination }: Flow, addresses: Addresses): string =>
  `${addresses.text(source)} → ${addresses.text(destination)}`;
