/**
 * The checks before a queue pair takes a packet: ICRC, header, queue pair, P_Key, state, source address, in this
 * order (IBTA vol 1 §9.6.1). Each failure is counted under a name of its own, and answered by nothing.
 */
import {
  BTH_BYTES,
  bthDestQp,
  bthOpcode,
  bthPad,
  bthPkey,
  bthTver,
  GSI_QPN,
  Transport,
} from '@node-roce/wire';
import type { GroupMember } from './addresses.ts';
import { Icrc, RX_SLOT_WORDS, Rx, type RxBatch } from './batch.ts';
import { QpStateCode } from './constants.ts';
import type { Context } from './context.ts';
import { comesBy, InboundPacket, inboundInfo } from './inbound.ts';
import type { QueuePair } from './qp/queue-pair.ts';
import type { QueuePairs } from './queue-pairs.ts';

/** States in which requests are taken. */
const RECEIVING =
  (1 << QpStateCode.RTR) | (1 << QpStateCode.RTS) | (1 << QpStateCode.SQD) | (1 << QpStateCode.SQE);
const receives = (state: number): boolean => ((RECEIVING >>> state) & 1) === 1;
/** Destination QPN of a datagram to a group (IBTA vol 1 §10.5.1). */
const MULTICAST_QPN = 0xff_ffff;
/** ECN bits of a traffic class, and Congestion Experienced (RFC 3168 §5). */
const ECN_MASK = 3;
const ECN_CE = 3;

/** Finds the queue pair of each received packet, or the reason to drop it. */
export class Admission {
  readonly #context: Context;
  readonly #queues: QueuePairs;
  readonly #packet = new InboundPacket();

  constructor(context: Context, queues: QueuePairs) {
    this.#context = context;
    this.#queues = queues;
  }

  /**
   * The packet in this slot of a batch, and where it begins a run those behind it.
   *
   * @param most how many may be taken
   * @returns how many were: 1 at least
   */
  receive(batch: RxBatch, index: number, most: number): number {
    const { slab, slots } = batch;
    const { counters } = this.#context;
    const w = index * RX_SLOT_WORDS;
    counters.receivedPackets++;
    const verdict = slots[w + Rx.VERDICT];
    if (verdict !== Icrc.OK) {
      if (verdict === Icrc.BAD) counters.icrcErrors++;
      else counters.icrcOutOfWindow++;
      return 1;
    }
    const at = slots[w + Rx.OFFSET];
    const length = slots[w + Rx.LENGTH];
    if (length < BTH_BYTES) {
      counters.malformed++;
      return 1;
    }
    const opcode = bthOpcode(slab, at);
    const info = inboundInfo(opcode);
    if (!info || bthTver(slab, at) !== 0) {
      counters.malformed++;
      return 1;
    }
    if (info.transport === Transport.CNP) {
      this.#receiveCnp(batch, index, length === info.headerLength);
      return 1;
    }
    const pad = bthPad(slab, at);
    const payload = length - info.headerLength - pad;
    // A READ, atomic or FLUSH that brings payload has a fault of its length, which is answered (§9.7.4.1.6).
    const bare = !info.hasPayload && !info.isReadRequest && !info.isAtomic && !info.isFlush;
    if (payload < 0 || (length & 3) !== 0 || (bare && (payload !== 0 || pad !== 0))) {
      counters.malformed++;
      return 1;
    }
    const destQp = bthDestQp(slab, at);
    const { groups } = this.#context.addresses;
    const local = slots[w + Rx.LOCAL];
    const group = local < groups.length ? groups[local] : undefined;
    let qp = group ? undefined : this.#queues.find(destQp);
    if (destQp === GSI_QPN && qp === undefined && group === undefined) {
      this.#context.generalServices();
      qp = this.#queues.find(GSI_QPN);
    }
    const forGroup = group !== undefined && destQp === MULTICAST_QPN && info.transport === Transport.UD;
    if (qp?.transport !== info.transport && !forGroup) {
      counters.unknownQp++;
      return 1;
    }
    if ((bthPkey(slab, at) & 0x7fff) !== 0x7fff) {
      counters.badPkey++;
      return 1;
    }
    const packet = this.#packet;
    packet.fill(batch, index, at, info, payload);
    if (!qp) for (let i = 0; i < group!.length; i++) this.#receiveDatagram(group![i]);
    else if (qp.datagram) this.#receiveDatagram(qp);
    else return this.#receiveConnected(qp, most);
    return 1;
  }

  /** Takes a congestion notification packet. One that is not from the peer of a connection has no effect. */
  #receiveCnp(batch: RxBatch, index: number, isWhole: boolean): void {
    this.#context.counters.cnpReceived++;
    const at = batch.slots[index * RX_SLOT_WORDS + Rx.OFFSET];
    const qp = this.#queues.find(bthDestQp(batch.slab, at));
    if (qp === undefined) return;
    const hasPkey = (bthPkey(batch.slab, at) & 0x7fff) === 0x7fff;
    const isOpen = !qp.datagram && receives(qp.state);
    qp.notified(isWhole && hasPkey && isOpen && comesBy(qp.attributes, batch, index));
  }

  /** UD takes from everybody who knows the Q_Key. */
  #receiveDatagram(qp: GroupMember): void {
    if (!receives(qp.state)) {
      this.#context.counters.wrongState++;
      return;
    }
    this.#count(qp);
    qp.responder.receive(this.#packet);
  }

  /** RC and UC take from their peer alone. */
  #receiveConnected(qp: QueuePair, most: number): number {
    const { counters } = this.#context;
    const packet = this.#packet;
    const { info } = packet;
    const { state, sends, migration } = qp;
    const open = info.isRequest ? receives(state) && (state !== QpStateCode.SQE || !qp.reliable) : sends;
    if (!open) {
      counters.wrongState++;
      return 1;
    }
    const isFromPeer =
      migration === undefined ? comesBy(qp.attributes, packet.batch, packet.index) : migration.admit(packet);
    if (!isFromPeer) {
      counters.wrongSource++;
      return 1;
    }
    const isMarked = this.#count(qp);
    if (isMarked) qp.marked();
    qp.heard();
    // All that was checked is the same for the packets of a run. Each mark counts, and each packet of a path that may change.
    if (most > 1 && !isMarked && (migration === undefined || migration.state === 'MIGRATED')) {
      const taken = this.#receiveRun(qp, most);
      if (taken > 0) return taken;
    }
    if (info.isRequest) qp.responder.receive(packet);
    else qp.completer?.receive(packet);
    return 1;
  }

  /** The run that the packet at hand begins. @returns how many were taken; 0: there is none, or it has to be taken packet by packet */
  #receiveRun(qp: QueuePair, most: number): number {
    const packet = this.#packet;
    const { batch, index, at, info } = packet;
    const { slots } = batch;
    const w = index * RX_SLOT_WORDS;
    const run = Math.min(slots[w + Rx.RUN], most);
    if (run < 2) return 0;
    const step = slots[w + RX_SLOT_WORDS + Rx.OFFSET] - at;
    const last = w + (run - 1) * RX_SLOT_WORDS;
    const isWhole =
      slots[last + Rx.OFFSET] === at + (run - 1) * step && slots[last + Rx.LENGTH] === slots[w + Rx.LENGTH];
    // Something between the link and the engine took packets out.
    if (!isWhole) return 0;
    const taken = info.isRequest
      ? (qp.responder.receiveRun?.(packet, run, step) ?? 0)
      : (qp.completer?.receiveRun(packet, run, step) ?? 0);
    if (taken > 1) {
      qp.counters.receivedPackets += taken - 1;
      this.#context.counters.receivedPackets += taken - 1;
    }
    return taken;
  }

  /** The queue pair takes the current packet. @returns whether that is marked "congestion experienced" */
  #count({ counters }: GroupMember): boolean {
    const { batch, index } = this.#packet;
    counters.receivedPackets++;
    const isMarked = (batch.slots[index * RX_SLOT_WORDS + Rx.TRAFFIC_CLASS] & ECN_MASK) === ECN_CE;
    if (isMarked) counters.ecnMarked++;
    return isMarked;
  }
}
