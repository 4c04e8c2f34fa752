/** One adapter with one reliable connection, whose peer is the test: it writes the packets and looks at what comes back. */
import {
  AETH_BYTES,
  ATOMIC_ETH_BYTES,
  aethSyndrome,
  atomicAckHigh,
  atomicAckLow,
  BTH_ACK_REQ,
  BTH_BYTES,
  BTH_PAD_SHIFT,
  BthFlags,
  bthOpcode,
  bthPsn,
  encodeAtomicEth,
  encodeReth,
  FETH_BYTES,
  Opcode,
  RETH_BYTES,
  writeBth,
  writeFeth,
} from '@node-roce/wire';
import { gatherSlot, Icrc, markRuns, type QpAttr, RX_SLOT_WORDS, Rx } from '../src/index.ts';
import { addressOf, gidOf, type Packet, Side } from './pair.ts';

/** QPN of the peer that is not there. */
const PEER_QPN = 77;

export interface PacketInit {
  opcode: number;
  psn: number;
  /** Asks for an ACK; true unless given. */
  ackReq?: boolean;
  /** READ and WRITE. */
  reth?: { addr: bigint; rkey: number; length: number };
  /** FLUSH. */
  feth?: { placement: number; selectivity: number };
  /** Atomics. */
  atomic?: { addr: bigint; rkey: number; swapAdd: bigint; compare?: bigint };
  /** AETH of a response. */
  aeth?: { syndrome: number; msn?: number };
  payload?: Uint8Array;
  /** The pad count of the BTH, if it is not to be that of the payload. */
  pad?: number;
  pkey?: number;
}

/** An adapter whose peer is the test: packets are made and read by hand. */
export class ByHand {
  readonly side: Side;
  /** Packets of a batch are marked as runs. */
  runs = true;

  /** The queue pair is in RTS: it expects `rqPsn` and starts with `sqPsn`. */
  constructor(attr: QpAttr = {}, options: ConstructorParameters<typeof Side>[2] = {}) {
    this.side = new Side(2, 9, options);
    this.connect(attr);
  }

  /** Virtual time, µs. */
  get now(): number {
    return this.side.adapter.clock[0];
  }

  set now(time: number) {
    this.side.adapter.clock[0] = time;
  }

  /** Connects the side's queue pair, which is in RESET. */
  connect(attr: QpAttr = {}, last: 'RTR' | 'RTS' = 'RTS'): void {
    const { adapter, qp } = this.side;
    const { sqPsn = 0x500, timeout = 14, retryCnt = 7, rnrRetry = 7, maxRdAtomic = 16, ...toRtr } = attr;
    adapter.modifyQp(qp.qpn, { qpState: 'INIT', pkeyIndex: 0, portNum: 1, qpAccessFlags: 0xe });
    adapter.modifyQp(qp.qpn, {
      qpState: 'RTR',
      ahAttr: addressOf(1),
      pathMtu: 1024,
      destQpNum: PEER_QPN,
      rqPsn: 1000,
      maxDestRdAtomic: 16,
      minRnrTimer: 12,
      ...toRtr,
    });
    if (last === 'RTR') return;
    adapter.modifyQp(qp.qpn, { qpState: 'RTS', sqPsn, timeout, retryCnt, rnrRetry, maxRdAtomic });
  }

  /** A packet of the peer. */
  packet(init: PacketInit): Packet {
    const { opcode, psn, ackReq = true, feth, reth, atomic, aeth, payload = new Uint8Array(0) } = init;
    const pad = init.pad ?? -payload.length & 3;
    const extensions =
      (feth ? FETH_BYTES : 0) +
      (reth ? RETH_BYTES : 0) +
      (atomic ? ATOMIC_ETH_BYTES : 0) +
      (aeth ? AETH_BYTES : 0);
    const bytes = new Uint8Array(BTH_BYTES + extensions + payload.length + (-payload.length & 3));
    writeBth(
      bytes,
      0,
      opcode,
      BthFlags.MIG_REQ | (pad << BTH_PAD_SHIFT),
      init.pkey ?? 0xffff,
      this.side.qp.qpn,
      (psn & 0xff_ffff) | (ackReq ? BTH_ACK_REQ : 0),
    );
    let at = BTH_BYTES;
    if (feth) {
      writeFeth(bytes, at, feth.placement, feth.selectivity);
      at += FETH_BYTES;
    }
    if (reth) {
      encodeReth(bytes, at, { va: reth.addr, rkey: reth.rkey, length: reth.length });
      at += RETH_BYTES;
    }
    if (atomic) {
      const { addr, rkey, swapAdd, compare = 0n } = atomic;
      encodeAtomicEth(bytes, at, { va: addr, rkey, swapAdd, compare });
      at += ATOMIC_ETH_BYTES;
    }
    if (aeth) {
      new DataView(bytes.buffer).setUint32(at, ((aeth.syndrome << 24) | (aeth.msn ?? 0)) >>> 0);
      at += AETH_BYTES;
    }
    bytes.set(payload, at);
    return bytes;
  }

  /** Gives packets to the adapter, as one batch. */
  put(...inits: (PacketInit | Packet)[]): void {
    this.putFrom({ source: 1, local: 0 }, ...inits);
  }

  /** As `put`, from another source or at another local address. */
  putFrom({ source = 1, local = 0, trafficClass = 0 }, ...inits: (PacketInit | Packet)[]): void {
    const { rx, adapter } = this.side;
    let offset = 0;
    rx.count = 0;
    for (const init of inits) {
      const packet = init instanceof Uint8Array ? init : this.packet(init);
      rx.slab.set(packet, offset);
      const w = rx.count * RX_SLOT_WORDS;
      rx.slots.fill(0, w, w + RX_SLOT_WORDS);
      rx.slots[w + Rx.OFFSET] = offset;
      rx.slots[w + Rx.LENGTH] = packet.length;
      rx.slots[w + Rx.LOCAL] = local;
      rx.slots[w + Rx.TRAFFIC_CLASS] = trafficClass;
      rx.slots[w + Rx.HOP_LIMIT] = 64;
      rx.slots[w + Rx.VERDICT] = Icrc.OK;
      rx.sources.set(gidOf(source), rx.count * 16);
      rx.count++;
      offset += packet.length;
    }
    if (this.runs) markRuns(rx);
    adapter.receive(rx);
    adapter.checkInvariants();
  }

  /** Everything that the adapter wants to send now. */
  out(): Packet[] {
    const { tx, adapter } = this.side;
    const packets: Packet[] = [];
    for (;;) {
      tx.clear();
      if (adapter.transmit(tx) === 0) {
        adapter.checkInvariants();
        return packets;
      }
      for (let i = 0; i < tx.count; i++) packets.push(gatherSlot(tx, i));
      adapter.sent(tx);
    }
  }

  /** As `out`, but only the count: for many packets. */
  drain(): number {
    const { tx, adapter } = this.side;
    let count = 0;
    for (;;) {
      tx.clear();
      const added = adapter.transmit(tx);
      if (added === 0) return count;
      count += added;
      adapter.sent(tx);
    }
  }

  /** Moves time on, with every timer on the way, and returns the sent packets. */
  run(microseconds: number): Packet[] {
    const { adapter } = this.side;
    const end = this.now + microseconds;
    const packets = this.out();
    for (;;) {
      const next = adapter.nextDeadline();
      if (next > end) break;
      this.now = Math.max(this.now, next);
      adapter.advance();
      packets.push(...this.out());
    }
    this.now = end;
    adapter.advance();
    packets.push(...this.out());
    return packets;
  }
}

const NAMES = new Map(Object.entries(Opcode).map(([name, code]) => [code as number, name]));

/** A packet in short: the operation, the PSN; of an ACK or NAK the syndrome, of an atomic's answer the value. */
export function inShort(packet: Packet): [opcode: string, psn: number, value?: number | bigint] {
  const psn = bthPsn(packet, 0);
  const name = NAMES.get(bthOpcode(packet, 0))!.replace(/^RC_/, '');
  if (name === 'ACKNOWLEDGE') return [name, psn, aethSyndrome(packet, BTH_BYTES)];
  if (name === 'ATOMIC_ACKNOWLEDGE') {
    const at = BTH_BYTES + AETH_BYTES;
    return [name, psn, (BigInt(atomicAckHigh(packet, at)) << 32n) | BigInt(atomicAckLow(packet, at))];
  }
  return [name, psn];
}
