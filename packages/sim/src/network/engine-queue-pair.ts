/** A queue pair of the engine, driven through its rings as a program drives it. */
import {
  type Adapter,
  type AhAttr,
  Cqe,
  DOORBELL_RECV,
  QP_STATES,
  type QpAttr,
  type QpCreated,
  RecvWqe,
  type Ring,
  SendFlags,
  SendWqe,
  Sge,
  WC_STATUS_NAMES,
  WcFlags,
  WcOpcode,
  WrOpcode,
} from '@node-roce/transport';
import type { ModelStatus, ModelWcOpcode } from '../model/verbs.ts';
import type { Destination, ModelCompletion } from '../model/work.ts';
import type { XrcReceipt } from '../model/xrc-qp.ts';
import {
  type AttributeChange,
  type ConnectionOptions,
  type EndpointInfo,
  type SimQpOptions,
  type SimReceive,
  type SimRegion,
  type SimSend,
  sendsDatagrams,
  type VariableQp,
} from './endpoint.ts';

const WC_OPCODES = new Map(
  Object.entries(WcOpcode).map(([name, value]) => [value as number, name as ModelWcOpcode]),
);

/** Keys and addresses of a region: of the arena, that requests are about unless they name another. */
export interface ArenaKeys {
  lkey: number;
  rkey: number;
  /** Address of its first byte, for us. */
  address: bigint;
  /** Same, for peers. */
  base: bigint;
}

/** The services that a queue pair needs of its device. */
export interface QpHost {
  adapter: Adapter;
  gid: Uint8Array;
  pd: number;
  arena: ArenaKeys;
  ringDoorbell(value: number): void;
}

/** The rings of one queue pair; with an SRQ the receives go there. */
export interface QpRings {
  send: Ring;
  receive: Ring;
  sendCq: Ring;
  receiveCq: Ring;
}

/** A queue pair of an `EngineDevice`. */
export class EngineQp implements VariableQp {
  readonly info: EndpointInfo;
  readonly #host: QpHost;
  readonly #rings: QpRings;
  readonly #options: SimQpOptions;
  #peer: EndpointInfo | undefined;
  /** Address handles by destination, made when they are first needed. */
  readonly #handles = new Map<string, number>();

  constructor(host: QpHost, { qpn }: Pick<QpCreated, 'qpn'>, rings: QpRings, options: SimQpOptions) {
    this.#host = host;
    this.#rings = rings;
    this.#options = options;
    const { rkey, base } = host.arena;
    const { psn, qkey } = options;
    this.info = { gid: host.gid, qpn, psn, rkey, base, ...(qkey === undefined ? {} : { qkey }) };
  }

  get state(): (typeof QP_STATES)[number] {
    return QP_STATES[this.#rings.send.state];
  }

  connect(peer: EndpointInfo, options: ConnectionOptions): void {
    this.#peer = peer;
    const { qpn, psn, qkey } = this.info;
    const { service } = this.#options;
    const { qpAccessFlags, maxDestRdAtomic, minRnrTimer } = options;
    const { timeout, retryCnt, rnrRetry, maxRdAtomic } = options;
    const { adapter } = this.#host;
    const datagrams = sendsDatagrams(service);
    const requests = service === 'RC' || service === 'XRC_INI';
    const responds = service === 'RC' || service === 'XRC_TGT';
    const route = ahAttr(peer.gid, options.trafficClass);
    const way = { ahAttr: route, pathMtu: options.pathMtu, destQpNum: peer.qpn, rqPsn: peer.psn };
    const port = { pkeyIndex: 0, portNum: 1 };
    const init = { ...port, ...(datagrams ? { qkey } : { qpAccessFlags }) };
    const rtr = { ...(datagrams ? {} : way), ...(responds ? { maxDestRdAtomic, minRnrTimer } : {}) };
    const rts = { sqPsn: psn, ...(requests ? { timeout, retryCnt, rnrRetry, maxRdAtomic } : {}) };
    adapter.modifyQp(qpn, { qpState: 'INIT', ...init });
    adapter.modifyQp(qpn, { qpState: 'RTR', ...rtr });
    // A target need not go further (ibv_create_qp_ex(3)).
    if (service !== 'XRC_TGT') adapter.modifyQp(qpn, { qpState: 'RTS', ...rts });
  }

  postSend(request: SimSend): void {
    const ring = this.#rings.send;
    const { words } = ring;
    const index = ring.producer;
    if (ring.used >= ring.capacity) throw new Error('the send queue is full');
    const w = ring.wordOf(index);
    const flags =
      (request.signaled === false ? 0 : SendFlags.SIGNALED) |
      (request.fence ? SendFlags.FENCE : 0) |
      (request.solicited ? SendFlags.SOLICITED : 0) |
      (request.inline ? SendFlags.INLINE : 0);
    words[w + SendWqe.OPCODE_FLAGS] = WrOpcode[request.opcode] | (flags << 8);
    words[w + SendWqe.WR_ID_LOW] = request.wrId;
    words[w + SendWqe.WR_ID_HIGH] = 0;
    words[w + SendWqe.SGE_COUNT] = request.length === 0 || request.inline ? 0 : 1;
    words[w + SendWqe.LENGTH] = request.length;
    words[w + SendWqe.IMMEDIATE] = request.immediate ?? request.invalidateRkey ?? 0;
    this.#writeRemote(words, w, request);
    setU64(words, w + SendWqe.COMPARE_ADD_HIGH, request.compareAdd ?? 0n);
    setU64(words, w + SendWqe.SWAP_HIGH, request.swap ?? 0n);
    if (sendsDatagrams(this.#options.service)) this.#writeDestination(words, w, request.to);
    if (request.remoteSrqn !== undefined) words[w + SendWqe.REMOTE_SRQN] = request.remoteSrqn;
    if (request.flush !== undefined) {
      words[w + SendWqe.FLUSH_LENGTH] = request.flush.length;
      words[w + SendWqe.FLUSH_TYPE] = request.flush.placement;
      words[w + SendWqe.FLUSH_LEVEL] = request.flush.selectivity;
    }
    if (request.bind !== undefined) this.#writeBind(words, w, request.bind);
    if (request.inline) ring.bytes.set(inlineBytes(request), (w + SendWqe.SGE) * 4);
    else writeSge(words, w + SendWqe.SGE, keysOf(request.region, this.#host.arena), request);
    ring.publish((index + 1) | 0);
    if (ring.wake()) this.#host.ringDoorbell(this.info.qpn);
  }

  #writeRemote(words: Uint32Array, w: number, { remoteOffset, remoteAddress, rkey }: SimSend): void {
    if (remoteOffset === undefined && remoteAddress === undefined) return;
    const peer = this.#peer!;
    setU64(words, w + SendWqe.REMOTE_ADDRESS_HIGH, remoteAddress ?? peer.base + BigInt(remoteOffset!));
    words[w + SendWqe.RKEY] = rkey ?? peer.rkey;
  }

  #writeDestination(words: Uint32Array, w: number, to?: Destination): void {
    const { gid, qpn, qkey = 0 } = to ?? this.#peer!;
    const key = gid.join();
    const handle = this.#handles.get(key) ?? this.#host.adapter.createAh(this.#host.pd, ahAttr(gid));
    this.#handles.set(key, handle);
    words[w + SendWqe.ADDRESS_HANDLE] = handle;
    words[w + SendWqe.REMOTE_QPN] = qpn;
    words[w + SendWqe.REMOTE_QKEY] = qkey;
  }

  #writeBind(words: Uint32Array, w: number, bind: NonNullable<SimSend['bind']>): void {
    const arena = keysOf(bind.region, this.#host.arena);
    words[w + SendWqe.BIND_WINDOW] = bind.window.handle;
    words[w + SendWqe.RKEY] = bind.rkey;
    setU64(words, w + SendWqe.REMOTE_ADDRESS_HIGH, arena.base + BigInt(bind.offset));
    setU64(words, w + SendWqe.BIND_LENGTH_HIGH, BigInt(bind.length));
    words[w + SendWqe.BIND_LKEY] = arena.lkey;
    words[w + SendWqe.BIND_ACCESS] = bind.access;
  }

  postReceive(request: SimReceive): void {
    writeReceive(this.#rings.receive, this.#host.arena, request);
    if (this.#options.srq === undefined && this.#rings.receive.wake()) {
      this.#host.ringDoorbell((this.info.qpn | DOORBELL_RECV) >>> 0);
    }
  }

  pollSend(): ModelCompletion[] {
    return poll(this.#rings.sendCq, false);
  }

  pollReceive(): ModelCompletion[] {
    return poll(this.#rings.receiveCq, sendsDatagrams(this.#options.service));
  }

  fail(): void {
    this.#modify({ qpState: 'ERR' });
  }

  resume(): void {
    this.#modify({ qpState: 'RTS' });
  }

  reset(psn: number): void {
    this.#modify({ qpState: 'RESET' });
    (this.info as { psn: number }).psn = psn;
    // Completions that were not polled stay in the queues; the program that resets ignores them.
    this.pollSend();
    this.pollReceive();
  }

  get sendIndex(): number {
    return this.#rings.send.producer;
  }

  drain(): void {
    this.#modify({ qpState: 'SQD', enSqdAsyncNotify: true });
  }

  get draining(): boolean {
    return this.#host.adapter.queryQp(this.info.qpn).attr.sqDraining === true;
  }

  change({ trafficClass, ...attributes }: AttributeChange): void {
    const route = trafficClass === undefined ? {} : { ahAttr: ahAttr(this.#peer!.gid, trafficClass) };
    this.#modify({ ...attributes, ...route });
  }

  /** Destroys the address handles that its datagrams went along. */
  dropHandles(): void {
    for (const handle of this.#handles.values()) this.#host.adapter.destroyAh(handle);
    this.#handles.clear();
  }

  #modify(attributes: QpAttr): void {
    this.#host.adapter.modifyQp(this.info.qpn, attributes);
  }
}

function inlineBytes({ region, offset, length }: SimSend): Uint8Array {
  if (region === undefined) throw new Error('inline data comes from a region');
  return region.bytes.subarray(offset, offset + length);
}

/** The keys of a region that was registered on this device. */
const keysOf = (region: SimRegion | undefined, arena: ArenaKeys): ArenaKeys =>
  region === undefined ? arena : (region as SimRegion & ArenaKeys);

function ahAttr(dgid: Uint8Array, trafficClass = 0): AhAttr {
  const grh = { dgid, flowLabel: 0, sgidIndex: 0, hopLimit: 64, trafficClass };
  return { grh, isGlobal: true, dlid: 0, sl: 0, srcPathBits: 0, staticRate: 0, portNum: 1 };
}

/** Writes a receive into a ring, a queue pair's or an SRQ's, and publishes it. */
export function writeReceive(ring: Ring, arena: ArenaKeys, request: SimReceive): void {
  const keys = keysOf(request.region, arena);
  const index = ring.producer;
  if (ring.used >= ring.capacity) throw new Error('the receive queue is full');
  const w = ring.wordOf(index);
  ring.words[w + RecvWqe.WR_ID_LOW] = request.wrId;
  ring.words[w + RecvWqe.WR_ID_HIGH] = 0;
  ring.words[w + RecvWqe.SGE_COUNT] = request.length === 0 ? 0 : 1;
  ring.words[w + RecvWqe.LENGTH] = request.length;
  writeSge(ring.words, w + RecvWqe.SGE, keys, request);
  ring.publish((index + 1) | 0);
}

/** A key with this turned over names nothing. */
const BROKEN = 0x00ff_ff00;

function writeSge(
  words: Uint32Array,
  w: number,
  { address, lkey }: ArenaKeys,
  { offset, length, broken }: Pick<SimReceive, 'offset' | 'length' | 'broken'>,
): void {
  setU64(words, w + Sge.ADDRESS_HIGH, address + BigInt(offset));
  words[w + Sge.LENGTH] = length;
  words[w + Sge.LKEY] = broken ? lkey ^ BROKEN : lkey;
}

function setU64(words: Uint32Array, w: number, value: bigint): void {
  words[w] = Number((value >> 32n) & 0xffff_ffffn);
  words[w + 1] = Number(value & 0xffff_ffffn);
}

function poll(ring: Ring, datagrams: boolean): ModelCompletion[] {
  return pollReceipts(ring, datagrams).map(({ completion }) => completion);
}

/** Completions with the number of the queue pair that each names. */
export function pollReceipts(ring: Ring, datagrams = false): XrcReceipt[] {
  const receipts: XrcReceipt[] = [];
  let index = ring.consumer;
  for (; index !== ring.producer; index = (index + 1) | 0) {
    const w = ring.wordOf(index);
    const { words } = ring;
    const status = WC_STATUS_NAMES[words[w + Cqe.STATUS]] as ModelStatus;
    const completion: ModelCompletion = { wrId: words[w + Cqe.WR_ID_LOW], status };
    if (status === 'SUCCESS') {
      completion.opcode = WC_OPCODES.get(words[w + Cqe.OPCODE]);
      completion.byteLen = words[w + Cqe.BYTE_LEN];
      const flags = words[w + Cqe.FLAGS];
      if (flags & WcFlags.WITH_IMM) completion.immediate = words[w + Cqe.IMMEDIATE];
      if (flags & WcFlags.WITH_INV) completion.invalidatedRkey = words[w + Cqe.IMMEDIATE];
      if (datagrams) completion.sourceQpn = words[w + Cqe.SRC_QP];
    }
    receipts.push({ qpn: words[w + Cqe.QP_NUM], completion });
  }
  ring.release(index);
  return receipts;
}
