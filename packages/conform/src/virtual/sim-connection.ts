/** A queue pair of a simulated adapter, as a connection of a device under test. */
import type {
  ModelCompletion,
  ModelOpcode,
  SimDevice,
  SimQp,
  SimRegion,
  SimSrq,
  SimWindow,
  SimXrcSrq,
} from '@node-roce/sim';
import type { Completion, ConnectionSpec, DeviceConnection, Post, Receive, WindowSpec } from '../device.ts';
import type { VirtualLine } from './line.ts';

const OPCODES: Readonly<Record<Post['opcode'], ModelOpcode>> = {
  send: 'SEND',
  send_imm: 'SEND_WITH_IMM',
  write: 'RDMA_WRITE',
  write_imm: 'RDMA_WRITE_WITH_IMM',
  read: 'RDMA_READ',
  cas: 'ATOMIC_CMP_AND_SWP',
  faa: 'ATOMIC_FETCH_AND_ADD',
  local_inv: 'LOCAL_INV',
  flush: 'FLUSH',
  atomic_write: 'ATOMIC_WRITE',
};

/** Receives that a connection is opened with have ids from here on. */
const FIRST_RECEIVE = 1000;

type SimEvent = ReturnType<SimDevice['pollEvents']>[number];

/** The names of `ibv_event_type_str`. */
const EVENTS: Readonly<Record<SimEvent, string>> = {
  SRQ_LIMIT_REACHED: 'SRQ limit reached',
  QP_LAST_WQE_REACHED: 'last WQE reached',
  SQ_DRAINED: 'send queue drained',
};

/** Memory that the tester may look into, and the key that opens it. */
export type Region = Pick<SimRegion, 'bytes' | 'rkey' | 'base'>;

/** A queue pair of a simulated adapter, with its region. */
export class SimConnection implements DeviceConnection {
  readonly psn: number;
  readonly #qp: SimQp;
  readonly #line: VirtualLine;
  #region: Region;
  /** Where requests and receives are, if not in the arena. */
  #own: SimRegion | undefined;
  readonly #spec: ConnectionSpec;
  readonly srq: SimSrq | undefined;
  /** XRC targets have no completion queue of their own. */
  readonly #receipts: Pick<SimXrcSrq, 'pollReceive'> | undefined;
  readonly srqns: readonly [number, number] | undefined;

  /**
   * @param own the region is one of its own, not the arena
   * @param xrc shared receive queues of an XRC target
   */
  constructor(
    line: VirtualLine,
    qp: SimQp,
    region: Region,
    own: boolean,
    spec: ConnectionSpec,
    srq?: SimSrq,
    xrc?: readonly [SimXrcSrq, SimXrcSrq],
  ) {
    this.srq = xrc?.[0] ?? srq;
    this.#receipts = xrc?.[0];
    this.srqns = xrc && [xrc[0].number, xrc[1].number];
    this.#line = line;
    this.#qp = qp;
    this.#region = region;
    this.#own = own ? (region as SimRegion) : undefined;
    this.#spec = spec;
    this.psn = spec.devicePsn;
  }

  get qpn(): number {
    return this.#qp.info.qpn;
  }

  get va(): bigint {
    return this.#region.base;
  }

  get rkey(): number {
    return this.#region.rkey;
  }

  postFirstReceives(): void {
    const { receives, receiveLength, size } = this.#spec;
    const stride = Math.min(receiveLength, Math.floor(size / Math.max(1, receives)));
    for (let i = 0; i < receives; i++) {
      this.#postReceive({ id: FIRST_RECEIVE + i, offset: i * stride, length: receiveLength });
    }
  }

  #postReceive({ id = 0, offset = 0, length }: Receive): void {
    (this.srq ?? this.#qp).postReceive({ wrId: id, offset, length, region: this.#own });
  }

  async receive(receive: Receive): Promise<void> {
    this.#postReceive(receive);
  }

  async post({ opcode, id = 0, count = 1, offset = 0, length = 0, ...post }: Post): Promise<void> {
    for (let i = 0; i < count; i++) {
      this.#qp.postSend({
        wrId: id + i,
        opcode: OPCODES[opcode],
        region: this.#own,
        offset,
        length,
        signaled: true,
        solicited: post.solicited,
        fence: post.fence,
        remoteSrqn: post.remoteSrqn,
        immediate: post.immediate,
        compareAdd: post.compareAdd,
        swap: post.swap,
        // A FLUSH has no bytes of its own: global visibility, of the range.
        ...(opcode === 'flush' ? { length: 0, flush: { length, placement: 1, selectivity: 0 } } : {}),
        ...(opcode === 'local_inv' ? { invalidateRkey: post.remote?.rkey } : {}),
        ...(opcode.startsWith('send') || opcode === 'local_inv'
          ? {}
          : { remoteAddress: post.remote?.va ?? 0n, rkey: post.remote?.rkey ?? 0 }),
        ...(post.qkey === undefined
          ? {}
          : { to: { gid: this.#line.gid, qpn: this.#spec.qpn, qkey: post.qkey } }),
      });
    }
  }

  async completions(want: number, ms: number): Promise<Completion[]> {
    const got: Completion[] = [];
    const poll = () => {
      const received = this.#receipts?.pollReceive().map((each) => each.completion);
      got.push(...[...this.#qp.pollSend(), ...(received ?? this.#qp.pollReceive())].map(completionOf));
      return got.length >= want;
    };
    if (!poll()) await this.#line.wait(poll, ms);
    return got;
  }

  async state(): Promise<string> {
    return this.#qp.state;
  }

  async peek(offset: number, length: number): Promise<Uint8Array> {
    return this.#region.bytes.slice(offset, offset + length);
  }

  async poke(offset: number, bytes: Uint8Array): Promise<void> {
    this.#region.bytes.set(bytes, offset);
  }

  /** The region, if it is not the arena. */
  get own(): SimRegion {
    return this.#own!;
  }

  /** The same memory, registered anew. */
  moveTo(region: SimRegion): void {
    this.#region = region;
    this.#own = region;
  }

  /** Posts the binding of a window to a part of the region. */
  bind({ offset, length, id = 0 }: WindowSpec, window: SimWindow, rkey: number, access: number): void {
    const bind = { window, rkey, region: this.own, offset, length, access };
    this.#qp.postSend({ wrId: id, opcode: 'BIND_MW', offset: 0, length: 0, signaled: true, bind });
  }

  /** Waits for an event at most `ms`. */
  async eventsOf(poll: () => SimEvent[], ms: number): Promise<string[]> {
    let got: SimEvent[] = [];
    const some = () => {
      got = poll();
      return got.length > 0;
    };
    if (!some()) await this.#line.wait(some, ms);
    return got.map((event) => EVENTS[event]);
  }

  async fail(): Promise<void> {
    this.#qp.fail();
  }

  async close(): Promise<void> {}
}

function completionOf({ wrId, status, byteLen, immediate, sourceQpn }: ModelCompletion): Completion {
  return { id: wrId, status, length: byteLen, immediate, sourceQpn };
}
