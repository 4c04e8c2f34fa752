/** One program at the device: its objects, and what it may call. Nothing of another program can be named. */
import { randomBytes } from 'node:crypto';
import { closeSync } from 'node:fs';
import { constants } from 'node:os';
import { descriptorPair, ProcessMemory, receiveDescriptor } from '@node-roce/dgram-native';
import {
  IBV_REREG_MR_CHANGE_ACCESS,
  IBV_REREG_MR_CHANGE_PD,
  IBV_REREG_MR_CHANGE_TRANSLATION,
  IBV_REREG_MR_FLAGS_SUPPORTED,
  IBV_SRQ_LIMIT,
  IBV_SRQ_MAX_WR,
} from '@node-roce/ibverbs';
import {
  EVENT_CODES,
  fromCap,
  IGNORED_ACCESS,
  inCNames,
  MAX_TAG_OPS,
  namesOf,
  toAhAttr,
  toCap,
} from '@node-roce/ibverbs/parts';
import { type CompletionChannel, type Device, type DeviceEvent, RoceError } from '@node-roce/verbs-api';
import { addressOf, deviceReply, operationOf, portReply, QP_TYPES, qpAttr, qpReply } from './attributes.ts';
import { type Mapping, ProgramMemory } from './memory.ts';
import {
  CALL_NAMES,
  type CallName,
  CqBits,
  GROUPS,
  MemoryKind,
  type Reply,
  type Request,
} from './messages.ts';
import { Objects, type Thing } from './objects.ts';
import { decodeRequest, encode, Failed, Malformed, refusal, replyTo } from './protocol.ts';
import { type MadeRings, SharedRings, type WorkQueue } from './shared-rings.ts';
import { gidTableLength } from './system-files.ts';

/** Tagged buffers that its lists have room for, all together: they are in the device's memory, not in the arena. */
const MAX_TAGS = 65_536;
/** Bits of `enum ibv_qp_attr_mask` that have a name; the others of a query count for nothing. */
const QUERIED = 0x021f_ffff;

const NO_GID = new Uint8Array(16);

const { EFAULT, EINVAL, ENOMEM, EOPNOTSUPP } = constants.errno;

type Run = { [K in CallName]?: (request: Request<K>) => Promise<Reply<K>> | Reply<K> };

/** An error of verbs, as a call fails with it. */
function failure(error: RoceError): Failed {
  const { errno, message } = inCNames(error);
  return new Failed(constants.errno[errno as keyof typeof constants.errno], message);
}

/** The result of what waits for an event; undefined once there are no more. */
async function unlessEnded<T>(event: Promise<T>): Promise<T | undefined> {
  try {
    return await event;
  } catch (error) {
    if (error instanceof RoceError) return undefined;
    throw error;
  }
}

/** The parts of a work queue that the library gets; without a queue, zeros. */
const shown = (queue: WorkQueue | undefined) => queue && { id: queue.id, ...placeOf(queue.shape) };
const placeOf = ({ offset, capacity, stride }: MadeRings[number] | WorkQueue['shape']) => ({
  offset,
  capacity,
  stride,
});

/** A program that is connected. `call` is for one message at a time, in their order. */
export class Program {
  /** Names the program to `listen` calls of its other connections: 16 bytes that no other program knows. */
  readonly token = randomBytes(16);
  readonly memory: ProgramMemory;
  readonly rings = new SharedRings();
  /** Wakes the device for posted requests. */
  readonly wake: () => void;
  /** The descriptor that wakes it, the server's. */
  doorbell: number | undefined;
  /** Called when the program has filled a ring with more than there is room for. */
  onOverfull = () => {};
  /** Name as the program gave it, and process as the kernel has it; for logs only. */
  name = '?';
  /** The process; 0 if it has no number here. */
  pid = 0;
  /** A connection on which the program sends the descriptor of its memory: our end, and its. */
  readonly #memoryEnds: [number, number];
  readonly #device: Device;
  readonly #objects = new Objects();
  readonly #settle: () => void;
  readonly #detach: () => void;
  /** Tagged buffers that its lists have room for. */
  #tags = 0;

  /** @param memory of another context of the same process: both register the same pages */
  constructor(device: Device, memory: ProgramMemory = new ProgramMemory()) {
    this.#device = device;
    try {
      this.#memoryEnds = descriptorPair();
    } catch (error) {
      this.rings.close();
      throw error;
    }
    this.memory = memory.retain();
    const { wake, settle, detach } = device.serve(this.rings, this.rings);
    this.wake = wake;
    this.#settle = settle;
    this.#detach = detach;
  }

  /** The end that the program gets. */
  get memoryEnd(): number {
    return this.#memoryEnds[1];
  }

  /** Objects that are there. */
  get objects(): number {
    return this.#objects.size;
  }

  /**
   * Carries out a call.
   *
   * @returns the reply, with the errno of the failure
   * @throws Malformed for a message that no library sends
   */
  async call(call: number, payload: Buffer): Promise<Buffer> {
    // Requests that were posted before the call are taken first: one that precedes the end of its queue still leaves.
    this.#settle();
    const name = CALL_NAMES[call];
    const run = this.#calls[name] as ((request: unknown) => Promise<Reply<CallName>>) | undefined;
    if (!run) throw new Malformed(`call ${call}`);
    try {
      return replyTo(name, await run(decodeRequest(name, payload)));
    } catch (error) {
      if (error instanceof RoceError) return refusal(failure(error));
      if (error instanceof Failed) return refusal(error);
      throw error;
    }
  }

  /** The completion channel behind a handle. */
  channel(handle: number): CompletionChannel | undefined {
    const thing = this.#objects.find(handle);
    return thing?.kind === 'channel' ? thing.it : undefined;
  }

  /** Resolves with the message for the program's descriptor of a channel, undefined once the channel is gone. */
  async nextCompletionEvent(channel: CompletionChannel): Promise<Buffer | undefined> {
    const cq = await unlessEnded(channel.getEvent());
    cq?.ackEvents(1);
    return cq && encode(GROUPS.event, { handle: cq.context as number });
  }

  /** Resolves with the message for the program's descriptor of the context, undefined once it is closed. */
  async nextAsyncEvent(): Promise<Buffer | undefined> {
    for (;;) {
      const taken = await unlessEnded(this.#device.getEvent());
      if (!taken) return undefined;
      taken.ack();
      const about = elementOf(taken.event);
      // About something that was destroyed meanwhile: libibverbs shows none such.
      if (about) return encode(GROUPS.event, { type: EVENT_CODES[taken.event.type], ...about });
    }
  }

  /** Ends everything of the program. */
  async close(): Promise<void> {
    const mappings = this.#objects.clear();
    this.#settle();
    this.#detach();
    await unlessEnded(this.#device.close());
    for (const mapping of mappings) this.memory.unmap(mapping);
    this.memory.release();
    this.rings.close();
    for (const end of this.#memoryEnds) closeSync(end);
  }

  #map(address: bigint, length: bigint, kind: number): Mapping {
    if (kind > MemoryKind.ATTACHED) throw new Malformed(`memory of kind ${kind}`);
    const attach = kind === MemoryKind.ATTACHED;
    if (attach && !this.memory.process) this.#takeMemory();
    let mapping: Mapping | undefined;
    try {
      mapping = this.memory.map(address, length, attach);
    } catch (error) {
      throw new Failed(ENOMEM, (error as Error).message);
    }
    if (!mapping) throw new Failed(EFAULT, 'memory that no program can have, or more than 4 GiB of it');
    return mapping;
  }

  /** Takes the descriptor that the program has sent, before its first call. */
  #takeMemory(): void {
    const fd = receiveDescriptor(this.#memoryEnds[0]);
    if (fd < 0) throw new Failed(EFAULT, 'the program has handed over no descriptor of its memory');
    try {
      this.memory.process = new ProcessMemory(fd, this.pid);
    } catch {
      closeSync(fd);
      throw new Malformed('a descriptor that is of no memory');
    }
  }

  /** Registers or reregisters what is mapped; where that fails, it is not. */
  async #withMapping<T>(mapping: Mapping | undefined, register: () => Promise<T>): Promise<T> {
    try {
      return await register();
    } catch (error) {
      if (mapping) this.memory.unmap(mapping);
      throw error;
    }
  }

  async #register({ pd, access, address, length, iova, kind }: Request<'REG_MR'>): Promise<Reply<'REG_MR'>> {
    const domain = this.#objects.get('pd', pd);
    this.#objects.room();
    const mapping = this.#map(address, length, kind);
    const options = { access: access & ~IGNORED_ACCESS, iova };
    const it = await this.#withMapping(mapping, () => domain.registerMr(mapping.bytes, options));
    return { handle: this.#objects.keep({ kind: 'mr', it, mapping }), lkey: it.lkey, rkey: it.rkey };
  }

  async #reregister(request: Request<'REREG_MR'>): Promise<Reply<'REREG_MR'>> {
    const { handle, flags, pd, access, address, length, kind } = request;
    const thing = this.#objects.thing('mr', handle);
    const has = (bit: number) => (flags & bit) !== 0;
    if (flags === 0 || has(~IBV_REREG_MR_FLAGS_SUPPORTED)) throw new Failed(EINVAL, `flags: ${flags}`);
    const domain = has(IBV_REREG_MR_CHANGE_PD) ? { pd: this.#objects.get('pd', pd) } : {};
    const mapping = has(IBV_REREG_MR_CHANGE_TRANSLATION) ? this.#map(address, length, kind) : undefined;
    await this.#withMapping(mapping, () =>
      thing.it.reregister({
        ...domain,
        ...(mapping ? { memory: mapping.bytes, iova: address } : {}),
        ...(has(IBV_REREG_MR_CHANGE_ACCESS) ? { access: access & ~IGNORED_ACCESS } : {}),
      }),
    );
    if (mapping && thing.mapping) this.memory.unmap(thing.mapping);
    if (mapping) thing.mapping = mapping;
    return { lkey: thing.it.lkey, rkey: thing.it.rkey };
  }

  async #createCq({ cqe, channel, bits }: Request<'CREATE_CQ'>): Promise<Reply<'CREATE_CQ'>> {
    this.#objects.room();
    const options = {
      context: this.#objects.next,
      timestamps: (bits & CqBits.TIMES) !== 0,
      tags: (bits & CqBits.TAGS) !== 0,
      ...(channel === 0 ? {} : { channel: this.#objects.get('channel', channel) }),
    };
    const [it, [ring]] = await this.rings.during(() => this.#device.createCq(cqe, options));
    const handle = this.#objects.keep({ kind: 'cq', it, rings: [ring.offset] });
    return { handle, cqe: it.cqe, ring: placeOf(ring) };
  }

  async #createSrq(request: Request<'CREATE_SRQ'>): Promise<Reply<'CREATE_SRQ'>> {
    const pd = this.#objects.get('pd', request.pd);
    const { max_wr: maxWr, max_sge: maxSge, srq_limit: limit, cq, max_num_tags, max_ops } = request;
    this.#objects.room();
    const max = cq === 0 ? 0 : max_num_tags;
    if (this.#tags + max > MAX_TAGS) throw new Failed(ENOMEM, `more than ${MAX_TAGS} tags`);
    const init = { maxWr, maxSge, limit, context: this.#objects.next };
    const tags = cq === 0 ? {} : { tags: { max, cq: this.#objects.get('cq', cq) } };
    if (cq !== 0 && max_ops > MAX_TAG_OPS) throw new Failed(EINVAL, `max_ops: ${max_ops}`);
    const [it, [ring]] = await this.rings.during(() => pd.createSrq({ ...init, ...tags }));
    const queue = this.#open('receive', ring, () => {});
    const handle = this.#objects.keep({ kind: 'srq', it, rings: [ring.offset], queues: [queue], tags: max });
    this.#tags += max;
    const { maxWr: max_wr, maxSge: max_sge } = it;
    return { handle, max_wr, max_sge, number: it.number ?? it.handle, queue: shown(queue) };
  }

  #open(kind: 'send' | 'receive', ring: MadeRings[number], bell: () => void): WorkQueue {
    return this.rings.open(kind, ring, bell, () => this.onOverfull());
  }

  async #createQp(request: Request<'CREATE_QP'>): Promise<Reply<'CREATE_QP'>> {
    const pd = this.#objects.get('pd', request.pd);
    const type = QP_TYPES[request.qp_type as keyof typeof QP_TYPES];
    const init = {
      type,
      sendCq: this.#objects.get('cq', request.send_cq),
      recvCq: this.#objects.get('cq', request.recv_cq),
      ...(request.srq === 0 ? {} : { srq: this.#objects.get('srq', request.srq) }),
      cap: toCap(request.cap),
      sqSigAll: request.sq_sig_all !== 0,
      context: this.#objects.next,
    };
    this.#objects.room();
    if (!type) throw new Failed(EOPNOTSUPP, `qp_type: ${request.qp_type} is not offered`);
    const [it, made] = await this.rings.during(() => pd.createQp(init));
    // Of a queue pair that answers rendezvous there are none.
    const queues = made.map((ring, i) => {
      const isReceive = i === 1;
      const bell = () => this.#device.ring(it.qpNum, isReceive);
      return this.#open(isReceive ? 'receive' : 'send', ring, bell);
    });
    const rings = made.map(({ offset }) => offset);
    const handle = this.#objects.keep({ kind: 'qp', it, rings, queues });
    const [sends, receives] = queues.map(shown);
    return { handle, qp_num: it.qpNum, cap: fromCap(it.cap), sends, receives };
  }

  async #modifyQp(request: Request<'MODIFY_QP'>): Promise<Reply<'MODIFY_QP'>> {
    const thing = this.#objects.thing('qp', request.handle);
    const [, resized] = await this.rings.during(() => thing.it.modify(qpAttr(request)));
    const [sends, receives] = this.#moveQueues(thing, resized).map(shown);
    return { cap: fromCap(thing.it.cap), moved: Number(resized.length > 0), sends, receives };
  }

  /** The queues of an object have other rings from now on, if any were made. */
  #moveQueues(thing: Thing, resized: MadeRings): WorkQueue[] {
    const { queues = [] } = thing;
    for (const [i, ring] of resized.entries()) queues[i]?.moveTo(ring);
    this.#addRings(thing, resized);
    return queues;
  }

  /** Rings of a resize. The engine may write to those before for a while: they are free with the next resize, or the object. */
  #addRings({ rings = [] }: Thing, made: MadeRings): void {
    if (made.length === 0) return;
    rings.push(...made.map(({ offset }) => offset));
    this.rings.free(rings.splice(0, rings.length - 2 * made.length));
  }

  async #modifySrq(request: Request<'MODIFY_SRQ'>): Promise<Reply<'MODIFY_SRQ'>> {
    const thing = this.#objects.thing('srq', request.handle);
    const { mask, max_wr, srq_limit } = request;
    if ((mask & ~(IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT)) !== 0) throw new Failed(EINVAL, `srq_attr_mask: ${mask}`);
    const change = {
      ...((mask & IBV_SRQ_MAX_WR) !== 0 ? { maxWr: max_wr } : {}),
      ...((mask & IBV_SRQ_LIMIT) !== 0 ? { limit: srq_limit } : {}),
    };
    const [, resized] = await this.rings.during(() => thing.it.modify(change));
    const [queue] = this.#moveQueues(thing, resized).map(shown);
    return { moved: Number(resized.length > 0), queue };
  }

  async #destroy(handle: number): Promise<void> {
    const thing = this.#objects.find(handle);
    if (!thing) throw new Failed(EINVAL, `${handle} is the handle of nothing`);
    await thing.it[Symbol.asyncDispose]();
    this.#objects.forget(handle);
    this.#tags -= thing.tags ?? 0;
    if (thing.mapping) this.memory.unmap(thing.mapping);
    for (const queue of thing.queues ?? []) this.rings.closeQueue(queue);
    this.rings.free(thing.rings ?? []);
  }

  readonly #calls: Run = {
    QUERY_DEVICE: () => deviceReply(this.#device),
    QUERY_PORT: ({ port }) => {
      if (port !== 1) throw new Failed(EINVAL, `port_num: no port ${port}`);
      return portReply(this.#device);
    },
    QUERY_GIDS: () => {
      const { gids } = this.#device;
      const length = gidTableLength(gids.length);
      return { gids: Array.from({ length }, (_, i) => gids[i]?.gid ?? NO_GID) };
    },
    ALLOC_PD: async () => {
      this.#objects.room();
      return { handle: this.#objects.keep({ kind: 'pd', it: await this.#device.allocPd() }) };
    },
    REG_MR: (request) => this.#register(request),
    REREG_MR: (request) => this.#reregister(request),
    CREATE_CHANNEL: () => {
      this.#objects.room();
      return { handle: this.#objects.keep({ kind: 'channel', it: this.#device.createCompChannel() }) };
    },
    CREATE_CQ: (request) => this.#createCq(request),
    RESIZE_CQ: async ({ handle, cqe }) => {
      const thing = this.#objects.thing('cq', handle);
      const [, [ring]] = await this.rings.during(() => thing.it.resize(cqe));
      this.#addRings(thing, [ring]);
      return { cqe: thing.it.cqe, ring: placeOf(ring) };
    },
    CREATE_SRQ: (request) => this.#createSrq(request),
    POST_SRQ_OP: async (request) => {
      const srq = this.#objects.get('srq', request.handle);
      const operation = operationOf(request);
      if (!operation) throw new Failed(EOPNOTSUPP, `opcode: ${request.opcode}`);
      return { tag_handle: await srq.postTagOp(operation) };
    },
    MODIFY_SRQ: (request) => this.#modifySrq(request),
    QUERY_SRQ: async ({ handle }) => {
      const {
        maxWr: max_wr,
        maxSge: max_sge,
        limit: srq_limit,
      } = await this.#objects.get('srq', handle).query();
      return { max_wr, max_sge, srq_limit };
    },
    CREATE_AH: async ({ pd, attr }) => {
      const domain = this.#objects.get('pd', pd);
      this.#objects.room();
      const it = await domain.createAh(toAhAttr(addressOf(attr)));
      // Entries of the send queue name it by the engine's number, which the engine checks against the domain.
      return { handle: this.#objects.keep({ kind: 'ah', it }), number: it.handle };
    },
    CREATE_QP: (request) => this.#createQp(request),
    MODIFY_QP: (request) => this.#modifyQp(request),
    QUERY_QP: async ({ handle, mask }) =>
      qpReply(await this.#objects.get('qp', handle).query(namesOf(mask & QUERIED))),
    ATTACH_MCAST: async ({ handle, gid }) => {
      await this.#objects.get('qp', handle).attachMcast(gid);
      return {};
    },
    DETACH_MCAST: async ({ handle, gid }) => {
      await this.#objects.get('qp', handle).detachMcast(gid);
      return {};
    },
    ALLOC_MW: async ({ pd, type }) => {
      const domain = this.#objects.get('pd', pd);
      this.#objects.room();
      const it = await domain.allocMw(type as 1 | 2);
      return { handle: this.#objects.keep({ kind: 'mw', it }), rkey: it.rkey, number: it.handle };
    },
    DESTROY: async ({ handle }) => {
      await this.#destroy(handle);
      return {};
    },
  };
}

/** The handle that an event is about, or the port; undefined for an object that is gone. */
function elementOf(event: DeviceEvent): { handle?: number; port?: number } | undefined {
  if ('portNum' in event) return { port: event.portNum };
  if (event.type === 'DEVICE_FATAL') return {};
  return event.element && { handle: event.element.context as number };
}
