/** The engine on the network: an `Adapter` with one queue pair, driven through its public face. */

import { createRandom } from '@node-roce/link';
import {
  Access,
  Adapter,
  Cqe,
  DOORBELL_RECV,
  FRAGMENT_WORDS,
  Fragment,
  Icrc,
  QP_STATES,
  RecvWqe,
  Ring,
  RX_SLOT_WORDS,
  Rx,
  RxBatch,
  SendFlags,
  SendWqe,
  Sge,
  TX_SLOT_WORDS,
  Tx,
  TxBatch,
  WC_STATUS_NAMES,
  WcFlags,
  WcOpcode,
  type WcOpcodeName,
  WrOpcode,
} from '@node-roce/transport';
import type { ModelCompletion } from '../model/work.ts';
import type { ConnectionOptions, Endpoint, EndpointInfo, SimReceive, SimSend } from './endpoint.ts';
import type { SimPacket } from './wire.ts';

export interface EngineEndpointOptions {
  gid: Uint8Array;
  psn: number;
  arenaBytes: number;
  seed: number;
  /** AETHs carry the count of receives. */
  credits: boolean;
  /** Entries of each queue. */
  depth?: number;
}

const ALL_ACCESS = Access.LOCAL_WRITE | Access.REMOTE_WRITE | Access.REMOTE_READ | Access.REMOTE_ATOMIC;
const WC_OPCODES = new Map(
  Object.entries(WcOpcode).map(([name, value]) => [value as number, name as WcOpcodeName]),
);

export class EngineEndpoint implements Endpoint {
  readonly gid: Uint8Array;
  readonly arena: Uint8Array<ArrayBuffer>;
  readonly info: EndpointInfo;
  readonly adapter: Adapter;
  readonly #tx: TxBatch;
  readonly #rx = new RxBatch(256, 2 * 1024 * 1024);
  readonly #peers: Uint8Array[] = [];
  readonly #doorbells: Ring;
  readonly #sendQueue: Ring;
  readonly #receiveQueue: Ring;
  readonly #sendCq: Ring;
  readonly #receiveCq: Ring;
  readonly #lkey: number;
  readonly #address: bigint;
  #peer: EndpointInfo | undefined;

  constructor(options: EngineEndpointOptions) {
    const { gid, seed, credits, depth = 64 } = options;
    const random = createRandom(seed);
    this.gid = gid;
    this.arena = new Uint8Array(options.arenaBytes);
    this.adapter = new Adapter({
      random: random.next,
      peers: {
        add: (dgid) => this.#peers.push(dgid.slice()) - 1,
        remove: () => {},
      },
      gids: [{ gid, address: 'simulated', type: 'RoCE v2' }],
      activeMtu: 4096,
      credits,
      onCompletionEvent: () => {},
      onAsyncEvent: () => {},
    });
    this.#tx = new TxBatch(this.adapter.regions);
    this.#doorbells = new Ring(this.adapter.doorbells);
    const pd = this.adapter.allocPd();
    const mr = this.adapter.registerMr({
      pd,
      backing: 1,
      buffer: this.arena.buffer,
      offset: 0,
      length: this.arena.length,
      access: ALL_ACCESS,
    });
    this.#lkey = mr.lkey;
    this.#address = mr.addr;
    const sendCq = this.adapter.createCq(depth * 2);
    const recvCq = this.adapter.createCq(depth * 2);
    this.#sendCq = new Ring(sendCq.ring);
    this.#receiveCq = new Ring(recvCq.ring);
    const cap = { maxSendWr: depth, maxRecvWr: depth, maxSendSge: 1, maxRecvSge: 1, maxInlineData: 0 };
    const init = {
      pd,
      type: 'RC' as const,
      sendCq: sendCq.handle,
      recvCq: recvCq.handle,
      cap,
      sqSigAll: false,
    };
    const qp = this.adapter.createQp(init);
    this.#sendQueue = new Ring(qp.sendQueue);
    this.#receiveQueue = new Ring(qp.recvQueue);
    this.info = { gid, qpn: qp.qpn, psn: options.psn, rkey: mr.rkey, base: mr.iova };
  }

  get state(): (typeof QP_STATES)[number] {
    return QP_STATES[this.#sendQueue.state];
  }

  connect(peer: EndpointInfo, options: ConnectionOptions): void {
    this.#peer = peer;
    const { qpn, psn } = this.info;
    const grh = { dgid: peer.gid, flowLabel: 0, sgidIndex: 0, hopLimit: 64, trafficClass: 0 };
    const ahAttr = { grh, isGlobal: true, dlid: 0, sl: 0, srcPathBits: 0, staticRate: 0, portNum: 1 };
    this.adapter.modifyQp(
      qpn,
      { qpState: 'INIT', pkeyIndex: 0, portNum: 1, qpAccessFlags: options.qpAccessFlags },
      0,
    );
    this.adapter.modifyQp(
      qpn,
      {
        qpState: 'RTR',
        ahAttr,
        pathMtu: options.pathMtu,
        destQpNum: peer.qpn,
        rqPsn: peer.psn,
        maxDestRdAtomic: options.maxDestRdAtomic,
        minRnrTimer: options.minRnrTimer,
      },
      0,
    );
    const { timeout, retryCnt, rnrRetry, maxRdAtomic } = options;
    this.adapter.modifyQp(qpn, { qpState: 'RTS', sqPsn: psn, timeout, retryCnt, rnrRetry, maxRdAtomic }, 0);
  }

  postSend(request: SimSend): void {
    const ring = this.#sendQueue;
    const { words } = ring;
    const index = ring.producer;
    if (ring.used >= ring.capacity) throw new Error('the send queue is full');
    const w = ring.wordOf(index);
    const flags =
      (request.signaled === false ? 0 : SendFlags.SIGNALED) |
      (request.fence ? SendFlags.FENCE : 0) |
      (request.solicited ? SendFlags.SOLICITED : 0);
    words[w + SendWqe.OPCODE_FLAGS] = WrOpcode[request.opcode] | (flags << 8);
    words[w + SendWqe.WR_ID_LOW] = request.wrId;
    words[w + SendWqe.WR_ID_HIGH] = 0;
    words[w + SendWqe.SGE_COUNT] = request.length === 0 ? 0 : 1;
    words[w + SendWqe.LENGTH] = request.length;
    words[w + SendWqe.IMMEDIATE] = request.immediate ?? 0;
    if (request.remoteOffset !== undefined) {
      const peer = this.#peer!;
      setU64(words, w + SendWqe.REMOTE_ADDRESS_HIGH, peer.base + BigInt(request.remoteOffset));
      words[w + SendWqe.RKEY] = request.rkey ?? peer.rkey;
    }
    setU64(words, w + SendWqe.COMPARE_ADD_HIGH, request.compareAdd ?? 0n);
    setU64(words, w + SendWqe.SWAP_HIGH, request.swap ?? 0n);
    this.#writeSge(words, w + SendWqe.SGE, request);
    ring.publish((index + 1) | 0);
    if (ring.wakes()) this.#ringDoorbell(this.info.qpn);
  }

  postReceive(request: SimReceive): void {
    const ring = this.#receiveQueue;
    const index = ring.producer;
    if (ring.used >= ring.capacity) throw new Error('the receive queue is full');
    const w = ring.wordOf(index);
    ring.words[w + RecvWqe.WR_ID_LOW] = request.wrId;
    ring.words[w + RecvWqe.WR_ID_HIGH] = 0;
    ring.words[w + RecvWqe.SGE_COUNT] = request.length === 0 ? 0 : 1;
    ring.words[w + RecvWqe.LENGTH] = request.length;
    this.#writeSge(ring.words, w + RecvWqe.SGE, request);
    ring.publish((index + 1) | 0);
    if (ring.wakes()) this.#ringDoorbell((this.info.qpn | DOORBELL_RECV) >>> 0);
  }

  #writeSge(words: Uint32Array, w: number, { offset, length }: { offset: number; length: number }): void {
    setU64(words, w + Sge.ADDRESS_HIGH, this.#address + BigInt(offset));
    words[w + Sge.LENGTH] = length;
    words[w + Sge.LKEY] = this.#lkey;
  }

  #ringDoorbell(value: number): void {
    const ring = this.#doorbells;
    const index = ring.producer;
    ring.words[ring.wordOf(index)] = value;
    ring.publish((index + 1) | 0);
  }

  pollSend(): ModelCompletion[] {
    return poll(this.#sendCq);
  }

  pollReceive(): ModelCompletion[] {
    return poll(this.#receiveCq);
  }

  fail(): void {
    this.adapter.modifyQp(this.info.qpn, { qpState: 'ERR' }, 0);
  }

  receive(packets: SimPacket[], now: number): void {
    const batch = this.#rx;
    for (let from = 0; from < packets.length; from += batch.capacity) {
      const part = packets.slice(from, from + batch.capacity);
      let offset = 0;
      part.forEach((packet, i) => {
        const w = i * RX_SLOT_WORDS;
        batch.slab.set(packet.bytes, offset);
        batch.sources.set(packet.source, i * 16);
        batch.slots.fill(0, w, w + RX_SLOT_WORDS);
        batch.slots[w + Rx.OFFSET] = offset;
        batch.slots[w + Rx.LENGTH] = packet.bytes.length;
        batch.slots[w + Rx.PEER] = this.#peerOf(packet.source);
        batch.slots[w + Rx.TRAFFIC_CLASS] = packet.trafficClass;
        batch.slots[w + Rx.HOP_LIMIT] = 64;
        batch.slots[w + Rx.VERDICT] = packet.corrupt ? Icrc.BAD : Icrc.OK;
        batch.slots[w + Rx.SOURCE_PORT] = packet.sourcePort;
        offset += (packet.bytes.length + 7) & ~7;
      });
      batch.count = part.length;
      this.adapter.receive(batch, now);
    }
  }

  #peerOf(source: Uint8Array): number {
    const index = this.#peers.findIndex((gid) => gid.every((byte, i) => byte === source[i]));
    return index < 0 ? 0xffff_ffff : index;
  }

  advance(now: number): void {
    this.adapter.advance(now);
  }

  transmit(now: number): SimPacket[] {
    const packets: SimPacket[] = [];
    const batch = this.#tx;
    do {
      batch.clear();
      this.adapter.transmit(batch, now);
      for (let i = 0; i < batch.count; i++) packets.push(this.#gather(batch, i));
      this.adapter.sent(batch);
    } while (batch.count > 0);
    return packets;
  }

  #gather(batch: TxBatch, index: number): SimPacket {
    const slot = batch.slots.subarray(index * TX_SLOT_WORDS, (index + 1) * TX_SLOT_WORDS);
    const headerLength = slot[Tx.HEADER_LENGTH];
    const bytes = new Uint8Array(headerLength + slot[Tx.PAYLOAD_LENGTH] + slot[Tx.PAD]);
    const header = slot[Tx.HEADER_OFFSET];
    bytes.set(batch.headers.subarray(header, header + headerLength));
    let at = headerLength;
    for (let i = 0; i < slot[Tx.FRAGMENT_COUNT]; i++) {
      const f = (slot[Tx.FRAGMENT_FIRST] + i) * FRAGMENT_WORDS;
      const view = batch.regions.views[batch.fragments[f + Fragment.REGION]]!;
      const offset =
        batch.fragments[f + Fragment.OFFSET_HIGH] * 2 ** 32 + batch.fragments[f + Fragment.OFFSET_LOW];
      const length = batch.fragments[f + Fragment.LENGTH];
      bytes.set(view.subarray(offset, offset + length), at);
      at += length;
    }
    return {
      bytes,
      source: this.gid,
      destination: this.#peers[slot[Tx.PEER]],
      trafficClass: slot[Tx.TRAFFIC_CLASS],
      sourcePort: slot[Tx.SOURCE_PORT],
      corrupt: false,
    };
  }

  nextDeadline(): number {
    return this.adapter.nextDeadline();
  }
}

function setU64(words: Uint32Array, w: number, value: bigint): void {
  words[w] = Number((value >> 32n) & 0xffff_ffffn);
  words[w + 1] = Number(value & 0xffff_ffffn);
}

function poll(ring: Ring): ModelCompletion[] {
  const completions: ModelCompletion[] = [];
  let index = ring.consumer;
  for (; index !== ring.producer; index = (index + 1) | 0) {
    const w = ring.wordOf(index);
    const { words } = ring;
    const status = WC_STATUS_NAMES[words[w + Cqe.STATUS]];
    const completion: ModelCompletion = { wrId: words[w + Cqe.WR_ID_LOW], status };
    if (status === 'SUCCESS') {
      completion.opcode = WC_OPCODES.get(words[w + Cqe.OPCODE]);
      completion.byteLen = words[w + Cqe.BYTE_LEN];
      const flags = words[w + Cqe.FLAGS];
      if (flags & WcFlags.WITH_IMM) completion.immediate = words[w + Cqe.IMMEDIATE];
      if (flags & WcFlags.WITH_INV) completion.invalidatedRkey = words[w + Cqe.IMMEDIATE];
    }
    completions.push(completion);
  }
  ring.release(index);
  return completions;
}
