/** One program at the device: its objects, and what it may call. Nothing of another program can be named. */
import { randomBytes } from 'node:crypto';
import { closeSync } from 'node:fs';
import { constants } from 'node:os';
import { descriptorPair, ProcessMemory, receiveDescriptor } from '@node-roce/dgram-native';
import * as v from '@node-roce/ibverbs';
import {
  addressOf,
  attributesOf,
  capOf,
  operationOf,
  writeAddress,
  writeCap,
  writeQueue,
} from './attributes.ts';
import { MAX_BYTES, MAX_MAPPINGS, type Mapping, ProgramMemory } from './memory.ts';
import { Call, CqBits, Failed, Malformed, Kind as MemoryKind, Reader, Writer } from './protocol.ts';
import { type MadeRings, SharedRings, type WorkQueue } from './shared-rings.ts';
import { gidTableLength } from './system-files.ts';

/** Objects of one program at most, of all kinds. */
const MAX_OBJECTS = 65_536;
/** Tagged buffers that its lists have room for, all together: they are in the device's memory, not in the arena. */
const MAX_TAGS = 65_536;
/** Bits of `enum ibv_qp_attr_mask` that have a name; the others of a query count for nothing. */
const QUERIED = 0x021f_ffff;

const NO_GID = new Uint8Array(16);

const { EFAULT, EINVAL, ENOMEM, EOPNOTSUPP } = constants.errno;

type Kind = 'pd' | 'mr' | 'mw' | 'ah' | 'cq' | 'channel' | 'srq' | 'qp';
interface Kinds {
  pd: v.ibv_pd;
  mr: v.ibv_mr;
  mw: v.ibv_mw;
  ah: v.ibv_ah;
  cq: v.ibv_cq;
  channel: v.ibv_comp_channel;
  srq: v.ibv_srq;
  qp: v.ibv_qp;
}
type Thing = {
  [K in Kind]: {
    kind: K;
    it: Kinds[K];
    mapping?: Mapping;
    access?: number;
    /** Parts of the arena that its rings have, or had before a resize. */
    rings?: number[];
    queues?: WorkQueue[];
    /** Tagged buffers that it has room for. */
    tags?: number;
  };
}[Kind];

/** Types of queue pairs whose entries the library writes. */
const QP_TYPES: readonly number[] = [v.IBV_QPT_RC, v.IBV_QPT_UC, v.IBV_QPT_UD, v.IBV_QPT_RAW_PACKET];

const FREE: { [K in Kind]: (it: Kinds[K]) => Promise<number> } = {
  pd: v.ibv_dealloc_pd,
  mr: v.ibv_dereg_mr,
  mw: v.ibv_dealloc_mw,
  ah: v.ibv_destroy_ah,
  cq: v.ibv_destroy_cq,
  channel: v.ibv_destroy_comp_channel,
  srq: v.ibv_destroy_srq,
  qp: v.ibv_destroy_qp,
};

/** Members of ibv_srq_init_attr_ex of a queue that matches tags. */
const TAG_MATCHING = v.IBV_SRQ_INIT_ATTR_TYPE | v.IBV_SRQ_INIT_ATTR_CQ | v.IBV_SRQ_INIT_ATTR_TM;

/** The errno of a call that failed: its own, as other programs' calls fail meanwhile. */
function errnoOf(call: Promise<unknown>): number {
  const { errno } = v.errorOf(call) ?? { errno: 'ENOMEM' };
  return constants.errno[errno as keyof typeof constants.errno];
}

/** A result of ibverbs that is a pointer: null throws the errno of the call. */
async function made<T>(call: Promise<T | null>): Promise<T> {
  const it = await call;
  if (it === null) throw new Failed(errnoOf(call), v.errorOf(call)?.message);
  return it;
}

async function check(call: Promise<number>): Promise<void> {
  const errno = await call;
  // ibv_rereg_mr has codes of its own, below 0.
  if (errno !== 0) throw new Failed(errno > 0 ? errno : errnoOf(call), v.errorOf(call)?.message);
}

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
  readonly #context: v.ibv_context;
  readonly #things = new Map<number, Thing>();
  /** Handles are never used again: an event that waits in a socket means what it meant. */
  readonly #handles = new WeakMap<object, number>();
  readonly #settle: () => void;
  readonly #detach: () => void;
  #last = 0;
  /** Tagged buffers that its lists have room for. */
  #tags = 0;

  /** @param memory of another context of the same process: both register the same pages */
  constructor(context: v.ibv_context, memory: ProgramMemory = new ProgramMemory()) {
    this.#context = context;
    try {
      this.#memoryEnds = descriptorPair();
    } catch (error) {
      this.rings.close();
      throw error;
    }
    this.memory = memory.retain();
    const { wake, settle, detach } = context.verbs.serve(this.rings, this.rings);
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
    return this.#things.size;
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
    const from = new Reader(payload);
    const to = new Writer();
    const run = this.#calls[call];
    if (run === undefined) throw new Malformed(`call ${call}`);
    try {
      await run(from, to);
      return to.finish(0);
    } catch (error) {
      // The reason is for who asks for it (ROCE_DEBUG).
      if (error instanceof Failed) return new Writer().bytes(Buffer.from(error.message)).finish(error.errno);
      throw error;
    }
  }

  /** The completion channel behind a handle. */
  channel(handle: number): v.ibv_comp_channel | undefined {
    const thing = this.#things.get(handle);
    return thing?.kind === 'channel' ? thing.it : undefined;
  }

  /** Resolves with the message for the program's descriptor of a channel, undefined once the channel is gone. */
  async nextCompletionEvent(channel: v.ibv_comp_channel): Promise<Buffer | undefined> {
    const cq: (v.ibv_cq | undefined)[] = [];
    if ((await v.ibv_get_cq_event(channel, cq)) !== 0 || !cq[0]) return undefined;
    v.ibv_ack_cq_events(cq[0], 1);
    return this.#event(0, cq[0]);
  }

  /** Resolves with the message for the program's descriptor of the context, undefined once it is closed. */
  async nextAsyncEvent(): Promise<Buffer | undefined> {
    const event: v.ibv_async_event = {};
    if ((await v.ibv_get_async_event(this.#context, event)) !== 0) return undefined;
    v.ibv_ack_async_event(event);
    const { cq, qp, srq, port_num } = event.element ?? {};
    return this.#event(event.event_type ?? 0, cq ?? qp ?? srq, port_num);
  }

  /** Ends everything of the program. */
  async close(): Promise<void> {
    const mappings = [...this.#things.values()].flatMap(({ mapping }) => mapping ?? []);
    this.#things.clear();
    this.#settle();
    this.#detach();
    await v.ibv_close_device(this.#context);
    for (const mapping of mappings) this.memory.unmap(mapping);
    this.memory.release();
    this.rings.close();
    for (const end of this.#memoryEnds) closeSync(end);
  }

  #event(type: number, about: object | undefined, port = 0): Buffer {
    const message = Buffer.alloc(12);
    message.writeUInt32LE(type, 0);
    message.writeUInt32LE((about && this.#handles.get(about)) ?? 0, 4);
    message.writeUInt32LE(port, 8);
    return message;
  }

  #keep(thing: Thing): number {
    const handle = ++this.#last;
    this.#things.set(handle, thing);
    this.#handles.set(thing.it, handle);
    return handle;
  }

  #get<K extends Kind>(kind: K, handle: number): Kinds[K] {
    const thing = this.#things.get(handle);
    if (thing?.kind !== kind) throw new Failed(EINVAL);
    return thing.it as Kinds[K];
  }

  #room(): void {
    if (this.#things.size >= MAX_OBJECTS) throw new Failed(ENOMEM);
  }

  async #register(from: Reader, to: Writer): Promise<void> {
    const pd = this.#get('pd', from.u32());
    const access = from.u32();
    const [address, length, iova] = [from.u64(), from.u64(), from.u64()];
    const kind = from.u32();
    from.end();
    this.#room();
    const mapping = this.#map(address, length, kind);
    const call = v.ibv_reg_mr_iova(pd, mapping.bytes, Number(length), iova, access);
    if ((await call) === null) this.memory.unmap(mapping);
    const it = await made(call);
    to.u32(this.#keep({ kind: 'mr', it, mapping, access }), it.lkey, it.rkey);
  }

  #map(address: bigint, length: bigint, kind: number): Mapping {
    if (kind > MemoryKind.ATTACHED) throw new Malformed(`memory of kind ${kind}`);
    const attach = kind === MemoryKind.ATTACHED;
    if (attach && !this.memory.process) this.#takeMemory();
    try {
      const mapping = this.memory.map(address, length, attach);
      if (mapping) return mapping;
    } catch {
      throw new Failed(ENOMEM);
    }
    throw new Failed(EFAULT);
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

  async #reregister(from: Reader, to: Writer): Promise<void> {
    const thing = this.#things.get(from.u32());
    if (thing?.kind !== 'mr') throw new Failed(EINVAL);
    const [flags, pd, newAccess] = [from.u32(), from.u32(), from.u32()];
    const access = (flags & v.IBV_REREG_MR_CHANGE_ACCESS) !== 0 ? newAccess : (thing.access ?? 0);
    const [address, length] = [from.u64(), from.u64()];
    const kind = from.u32();
    from.end();
    const newPd = (flags & v.IBV_REREG_MR_CHANGE_PD) !== 0 ? this.#get('pd', pd) : null;
    const mapping =
      (flags & v.IBV_REREG_MR_CHANGE_TRANSLATION) !== 0 ? this.#map(address, length, kind) : undefined;
    // JavaScript's call has no iova: a new translation is a new registration for which the old one makes room.
    if (mapping) {
      const call = v.ibv_reg_mr_iova(newPd ?? thing.it.pd, mapping.bytes, Number(length), address, access);
      const it = await call;
      const error = it === null ? errnoOf(call) : await v.ibv_dereg_mr(thing.it);
      if (it === null || error !== 0) {
        if (it !== null) await v.ibv_dereg_mr(it);
        this.memory.unmap(mapping);
        throw new Failed(error);
      }
      if (thing.mapping) this.memory.unmap(thing.mapping);
      thing.it = it;
      thing.mapping = mapping;
    } else {
      const call = v.ibv_rereg_mr(thing.it, flags, newPd, null, 0, access);
      await check(call);
    }
    thing.access = access;
    to.u32(thing.it.lkey, thing.it.rkey);
  }

  /** @param bits `CqBits` */
  #createCq(cqe: number, channel: v.ibv_comp_channel | null, bits: number): Promise<v.ibv_cq | null> {
    const times = (bits & CqBits.TIMES) !== 0 ? v.IBV_WC_EX_WITH_COMPLETION_TIMESTAMP : 0;
    const tags = (bits & CqBits.TAGS) !== 0 ? v.IBV_WC_EX_WITH_TM_INFO : 0;
    const wc_flags = BigInt(times | tags);
    if (wc_flags === 0n) return v.ibv_create_cq(this.#context, cqe, null, channel, 0);
    return v.ibv_create_cq_ex(this.#context, { cqe, channel, wc_flags });
  }

  async #createSrq(from: Reader, to: Writer): Promise<void> {
    const pd = this.#get('pd', from.u32());
    const attr = { max_wr: from.u32(), max_sge: from.u32(), srq_limit: from.u32() };
    const [cq, max_num_tags, max_ops] = [from.u32(), from.u32(), from.u32()];
    from.end();
    this.#room();
    const matches = cq !== 0;
    const tags = matches ? max_num_tags : 0;
    if (this.#tags + tags > MAX_TAGS) throw new Failed(ENOMEM);
    const init: v.ibv_srq_init_attr_ex = {
      ...{ pd, attr, comp_mask: v.IBV_SRQ_INIT_ATTR_PD | (matches ? TAG_MATCHING : 0) },
      ...(matches ? { srq_type: v.IBV_SRQT_TM, cq: this.#get('cq', cq) } : {}),
      tm_cap: { max_num_tags, max_ops },
    };
    const create = () => made(v.ibv_create_srq_ex(this.#context, init));
    const [it, [ring]] = await this.rings.during(create);
    const number = [0];
    if (v.ibv_get_srq_num(it, number) !== 0) throw new Failed(EINVAL);
    const queue = this.rings.open(
      'receive',
      ring,
      () => {},
      () => this.onOverfull(),
    );
    const handle = this.#keep({ kind: 'srq', it, rings: [ring.offset], queues: [queue], tags });
    this.#tags += tags;
    to.u32(handle, attr.max_wr, attr.max_sge, number[0]);
    writeQueue(to, queue);
  }

  async #createQp(from: Reader, to: Writer): Promise<void> {
    const pd = this.#get('pd', from.u32());
    const [qp_type, send, recv] = [from.u32(), from.u32(), from.u32()];
    const [srq, sq_sig_all] = [from.u32(), from.u32()];
    const init: v.ibv_qp_init_attr = {
      ...{ qp_type, sq_sig_all, cap: capOf(from) },
      send_cq: this.#get('cq', send),
      recv_cq: this.#get('cq', recv),
      srq: srq === 0 ? null : this.#get('srq', srq),
    };
    from.end();
    this.#room();
    if (!QP_TYPES.includes(qp_type)) throw new Failed(EOPNOTSUPP);
    const [it, [sends, receives]] = await this.rings.during(() => made(v.ibv_create_qp(pd, init)));
    const open = (kind: 'send' | 'receive', ring: MadeRings[number]) =>
      this.rings.open(
        kind,
        ring,
        () => this.#context.verbs.ring(it.qp_num, kind === 'receive'),
        () => this.onOverfull(),
      );
    // Of a queue pair that answers rendezvous there are none.
    const queues = sends ? [open('send', sends), ...(receives ? [open('receive', receives)] : [])] : [];
    const rings = queues.map(({ shape }) => shape.offset);
    to.u32(this.#keep({ kind: 'qp', it, rings, queues }), it.qp_num);
    writeCap(to, init.cap);
    for (const queue of queues) writeQueue(to, queue);
    if (queues.length === 0) to.u32(0, 0, 0, 0);
  }

  async #modifyQp(from: Reader, to: Writer): Promise<void> {
    const handle = from.u32();
    const qp = this.#get('qp', handle);
    const mask = from.u32();
    const attr = attributesOf(from);
    from.end();
    const [, resized] = await this.rings.during(async () => await check(v.ibv_modify_qp(qp, attr, mask)));
    writeCap(to, attr.cap);
    this.#moveQueues(handle, resized, to);
  }

  /** The queues of an object have other rings from now on, if any were made. */
  #moveQueues(handle: number, resized: MadeRings, to: Writer): void {
    const { queues = [] } = this.#things.get(handle) ?? {};
    for (const [i, ring] of resized.entries()) queues[i]?.moveTo(ring);
    this.#addRings(handle, resized);
    for (const queue of resized.length > 0 ? queues : []) writeQueue(to, queue);
  }

  /** Rings of a resize. The engine may write to those before for a while: they are free with the next resize, or the object. */
  #addRings(handle: number, made: MadeRings): void {
    if (made.length === 0) return;
    const { rings = [] } = this.#things.get(handle) ?? {};
    rings.push(...made.map(({ offset }) => offset));
    this.rings.free(rings.splice(0, rings.length - 2 * made.length));
  }

  async #queryQp(from: Reader, to: Writer): Promise<void> {
    const qp = this.#get('qp', from.u32());
    const mask = from.u32() & QUERIED;
    from.end();
    const a: v.ibv_qp_attr = {};
    const init: Partial<v.ibv_qp_init_attr> = {};
    await check(v.ibv_query_qp(qp, a, mask, init));
    to.u32(a.qp_state, a.cur_qp_state, a.path_mtu, a.path_mig_state, a.qkey, a.rq_psn, a.sq_psn);
    to.u32(a.dest_qp_num, a.qp_access_flags, a.pkey_index, a.sq_draining, a.max_rd_atomic);
    to.u32(a.max_dest_rd_atomic, a.min_rnr_timer, a.port_num, a.timeout, a.retry_cnt, a.rnr_retry);
    to.u32(a.rate_limit);
    writeCap(to, init.cap);
    writeAddress(to, a.ah_attr);
    to.u32(Number(init.sq_sig_all ?? 0));
  }

  async #destroy(from: Reader): Promise<void> {
    const handle = from.u32();
    from.end();
    const thing = this.#things.get(handle);
    if (!thing) throw new Failed(EINVAL);
    const free = FREE[thing.kind] as (it: Thing['it']) => Promise<number>;
    await check(free(thing.it));
    this.#things.delete(handle);
    this.#tags -= thing.tags ?? 0;
    if (thing.mapping) this.memory.unmap(thing.mapping);
    for (const queue of thing.queues ?? []) this.rings.closeQueue(queue);
    this.rings.free(thing.rings ?? []);
  }

  readonly #calls: Record<number, (from: Reader, to: Writer) => Promise<void> | void> = {
    [Call.QUERY_DEVICE]: async (from, to) => {
      from.end();
      const all: Partial<v.ibv_device_attr_ex> = {};
      await check(v.ibv_query_device_ex(this.#context, null, all));
      const { orig_attr: a, tm_caps: tm } = all as v.ibv_device_attr_ex;
      // A program has less than the engine: its memory is one file.
      const mostBytes = a.max_mr_size < BigInt(MAX_BYTES) ? a.max_mr_size : BigInt(MAX_BYTES);
      to.u64(a.node_guid).u64(mostBytes).u64(a.page_size_cap);
      // The library has no ibv_create_flow: programs that look are to leave it out.
      const capabilities = a.device_cap_flags & ~v.IBV_DEVICE_MANAGED_FLOW_STEERING;
      to.u32(a.vendor_id, a.vendor_part_id, a.max_qp, a.max_qp_wr, capabilities, a.max_sge);
      to.u32(
        a.max_sge_rd,
        a.max_cq,
        a.max_cqe,
        Math.min(a.max_mr, MAX_MAPPINGS),
        a.max_pd,
        a.max_qp_rd_atom,
        a.max_res_rd_atom,
      );
      to.u32(a.max_qp_init_rd_atom, a.atomic_cap, a.max_mw, a.max_mcast_grp, a.max_mcast_qp_attach);
      to.u32(a.max_total_mcast_qp_attach, a.max_ah, a.max_srq, a.max_srq_wr, a.max_srq_sge, a.max_pkeys);
      to.u32(a.local_ca_ack_delay, a.phys_port_cnt);
      to.u32(tm.max_rndv_hdr_size, tm.max_num_tags, tm.flags, tm.max_ops, tm.max_sge);
    },
    [Call.QUERY_PORT]: async (from, to) => {
      const port = from.u32();
      from.end();
      const a: Partial<v.ibv_port_attr> = {};
      await check(v.ibv_query_port(this.#context, port, a));
      to.u32(
        a.state,
        a.max_mtu,
        a.active_mtu,
        gidTableLength(a.gid_tbl_len ?? 0),
        a.port_cap_flags,
        a.max_msg_sz,
      );
      to.u32(a.bad_pkey_cntr, a.qkey_viol_cntr, a.pkey_tbl_len, a.max_vl_num, a.active_width);
      to.u32(a.active_speed, a.phys_state, a.link_layer, a.flags);
    },
    [Call.QUERY_GIDS]: async (from, to) => {
      from.end();
      const { gids } = this.#context.verbs;
      const length = gidTableLength(gids.length);
      to.u32(length);
      for (let i = 0; i < length; i++) to.bytes(gids[i]?.gid ?? NO_GID);
    },
    [Call.ALLOC_PD]: async (from, to) => {
      from.end();
      this.#room();
      to.u32(this.#keep({ kind: 'pd', it: await made(v.ibv_alloc_pd(this.#context)) }));
    },
    [Call.REG_MR]: (from, to) => this.#register(from, to),
    [Call.REREG_MR]: (from, to) => this.#reregister(from, to),
    [Call.CREATE_CHANNEL]: async (from, to) => {
      from.end();
      this.#room();
      to.u32(this.#keep({ kind: 'channel', it: await made(v.ibv_create_comp_channel(this.#context)) }));
    },
    [Call.CREATE_CQ]: async (from, to) => {
      const [cqe, events, bits] = [from.u32(), from.u32(), from.u32()];
      from.end();
      this.#room();
      const channel = events === 0 ? null : this.#get('channel', events);
      const create = () => made(this.#createCq(cqe, channel, bits));
      const [it, [ring]] = await this.rings.during(create);
      const handle = this.#keep({ kind: 'cq', it, rings: [ring.offset] });
      to.u32(handle, it.cqe, ring.offset, ring.capacity, ring.stride);
    },
    [Call.RESIZE_CQ]: async (from, to) => {
      const handle = from.u32();
      const cq = this.#get('cq', handle);
      const cqe = from.u32();
      from.end();
      const [, [ring]] = await this.rings.during(async () => await check(v.ibv_resize_cq(cq, cqe)));
      this.#addRings(handle, [ring]);
      to.u32(cq.cqe, ring.offset, ring.capacity, ring.stride);
    },
    [Call.CREATE_SRQ]: (from, to) => this.#createSrq(from, to),
    [Call.POST_SRQ_OP]: async (from, to) => {
      const srq = this.#get('srq', from.u32());
      const wr = operationOf(from);
      from.end();
      await check(v.ibv_post_srq_ops(srq, wr));
      to.u32(wr.tm?.handle);
    },
    [Call.MODIFY_SRQ]: async (from, to) => {
      const handle = from.u32();
      const srq = this.#get('srq', handle);
      const [mask, max_wr, srq_limit] = [from.u32(), from.u32(), from.u32()];
      from.end();
      const attr = { max_wr, srq_limit };
      const [, resized] = await this.rings.during(async () => await check(v.ibv_modify_srq(srq, attr, mask)));
      to.u32(resized.length);
      this.#moveQueues(handle, resized, to);
    },
    [Call.QUERY_SRQ]: async (from, to) => {
      const srq = this.#get('srq', from.u32());
      from.end();
      const attr: v.ibv_srq_attr = {};
      await check(v.ibv_query_srq(srq, attr));
      to.u32(attr.max_wr, attr.max_sge, attr.srq_limit);
    },
    [Call.CREATE_AH]: async (from, to) => {
      const pd = this.#get('pd', from.u32());
      const attr = addressOf(from);
      from.end();
      this.#room();
      const it = await made(v.ibv_create_ah(pd, attr));
      // Entries of the send queue name it by the engine's number, which the engine checks against the domain.
      to.u32(this.#keep({ kind: 'ah', it }), it.verbs.handle);
    },
    [Call.CREATE_QP]: (from, to) => this.#createQp(from, to),
    [Call.MODIFY_QP]: (from, to) => this.#modifyQp(from, to),
    [Call.QUERY_QP]: (from, to) => this.#queryQp(from, to),
    [Call.ATTACH_MCAST]: async (from) => {
      const qp = this.#get('qp', from.u32());
      const raw = from.bytes(16);
      from.end();
      await check(v.ibv_attach_mcast(qp, { raw }, 0));
    },
    [Call.DETACH_MCAST]: async (from) => {
      const qp = this.#get('qp', from.u32());
      const raw = from.bytes(16);
      from.end();
      await check(v.ibv_detach_mcast(qp, { raw }, 0));
    },
    [Call.ALLOC_MW]: async (from, to) => {
      const pd = this.#get('pd', from.u32());
      const type = from.u32();
      from.end();
      this.#room();
      const it = await made(v.ibv_alloc_mw(pd, type));
      to.u32(this.#keep({ kind: 'mw', it }), it.rkey, it.verbs.handle);
    },
    [Call.DESTROY]: (from) => this.#destroy(from),
  };
}
