/** Queue pairs of ours and of the guest's that reach each other; memory on our side between guards. */
import { createHash } from 'node:crypto';
import {
  type AccessInit,
  type AddressHandle,
  type CompletionQueue,
  type ConnectionData,
  type ConnectOptions,
  type Device,
  type MemoryRegion,
  type OpenOptions,
  openDevice,
  type ProtectionDomain,
  type QueuePair,
  type QueuePairInit,
} from '@node-roce/verbs-api';
import { connectAttributes } from '@node-roce/verbs-api/parts';
import { gidFromText } from '@node-roce/wire';
import { VerbsAgent } from './agent.ts';
import { GID_INDEX, type Guest } from './guest.ts';
import { LINK } from './link.ts';

export const sha256 = (bytes: Uint8Array): string => createHash('sha256').update(bytes).digest('hex');

/** The pattern that rverbs fills with: a 32-bit linear congruential generator, its top byte each. */
export function fill(bytes: Uint8Array, seed: number): void {
  let state = seed >>> 0;
  for (let i = 0; i < bytes.length; i++) {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    bytes[i] = state >>> 24;
  }
}

export interface EndsOptions {
  version?: 4 | 6;
  open?: Partial<OpenOptions>;
}

export interface ConnectionOptions {
  /** RC unless given. */
  type?: 'RC' | 'UC';
  mtu?: number;
  /** Of our side. */
  connect?: ConnectOptions;
  /** Options of our queue pair in addition to its type and sizes. */
  ours?: Partial<QueuePairInit>;
  /** Attributes of the guest's queue pair, in rverbs' words, or of its creation. */
  theirs?: Record<string, string | number>;
  /** First PSNs: ours, theirs. */
  psn?: [number, number];
}

export interface DatagramOptions {
  /** Of our queue pair, and of the guest's; 0x11111111. */
  qkey?: [number, number];
  ours?: Partial<QueuePairInit>;
  theirs?: Record<string, string | number>;
}

/** Two queue pairs that can reach each other: ours, and rverbs' number and the QPN of the guest's. */
export interface QueuePairs {
  readonly qp: QueuePair;
  readonly theirQp: number;
  readonly theirQpn: number;
}

/** Two queue pairs of UD, and the ways between them. */
export interface DatagramPairs extends QueuePairs {
  readonly ah: AddressHandle;
  /** rverbs' number of the way to us. */
  readonly theirAh: number;
}

const SIZES = { max_send_wr: 256, max_recv_wr: 256 };
const CREATION = [
  'srq',
  'send_cq',
  'recv_cq',
  'sq_sig_all',
  'max_send_wr',
  'max_recv_wr',
  'max_inline',
  'placement',
];

/** A device here and one in the guest, a protection domain and a completion queue on both. */
export class Ends implements AsyncDisposable {
  readonly guest: Guest;
  readonly version: 4 | 6;
  readonly device: Device;
  readonly pd: ProtectionDomain;
  readonly cq: CompletionQueue;
  readonly agent: VerbsAgent;

  protected constructor(parts: Pick<Ends, 'guest' | 'version' | 'device' | 'pd' | 'cq' | 'agent'>) {
    this.guest = parts.guest;
    this.version = parts.version;
    this.device = parts.device;
    this.pd = parts.pd;
    this.cq = parts.cq;
    this.agent = parts.agent;
  }

  protected static async parts(guest: Guest, { version = 4, open }: EndsOptions) {
    const address = version === 6 ? guest.address.hostIp6 : guest.address.hostIp4;
    const device = await openDevice({ address, ...LINK, ...open });
    const agent = await VerbsAgent.start(guest, { gid: GID_INDEX[version] });
    return { guest, version, device, agent, pd: await device.allocPd(), cq: await device.createCq(512) };
  }

  static async open(guest: Guest, options: EndsOptions = {}): Promise<Ends> {
    return new Ends(await Ends.parts(guest, options));
  }

  /** Our address and the guest's. */
  get host(): string {
    const { hostIp4, hostIp6 } = this.guest.address;
    return this.version === 4 ? hostIp4 : hostIp6;
  }
  get peer(): string {
    const { ip4, ip6 } = this.guest.address;
    return this.version === 4 ? ip4 : ip6;
  }
  /** Our GID as rverbs takes it. */
  get dgid(): string {
    return gidHex(this.host);
  }

  /** A queue pair on both sides, connected to each other. */
  async connect(options: ConnectionOptions = {}): Promise<QueuePairs> {
    const { type = 'RC', mtu = 4096, connect = {}, ours = {}, theirs = {}, psn } = options;
    const { agent } = this;
    const cap = { maxSendWr: 256, maxRecvWr: 256 };
    const qp = await this.pd.createQp({ type, sendCq: this.cq, cap, ...ours });
    const created = { type, ...SIZES, ...pick(theirs, CREATION) };
    const { qp: theirQp, qpn } = await agent.call<{ qp: number; qpn: number }>('qp', created);
    const [ourPsn, theirPsn] = psn ?? [qp.initialPsn, 0x654321];
    const { max_dest_rd_atomic = 16, min_rnr_timer = 12 } = theirs;
    const { timeout = 14, retry_cnt = 6, rnr_retry = 7, max_rd_atomic = 16 } = theirs;
    const reliable = type === 'RC';
    await agent.call('modify_qp', {
      qp: theirQp,
      state: 'INIT',
      pkey_index: 0,
      port: 1,
      access: theirs.access ?? 'REMOTE_WRITE,REMOTE_READ,REMOTE_ATOMIC',
    });
    await agent.call('modify_qp', {
      qp: theirQp,
      state: 'RTR',
      path_mtu: mtu,
      dest_qpn: qp.qpNum,
      rq_psn: ourPsn,
      dgid: this.dgid,
      ...(reliable ? { max_dest_rd_atomic, min_rnr_timer } : {}),
    });
    await agent.call('modify_qp', {
      qp: theirQp,
      state: 'RTS',
      sq_psn: theirPsn,
      ...(reliable ? { timeout, retry_cnt, rnr_retry, max_rd_atomic } : {}),
    });
    const remote = { qpNum: qpn, psn: theirPsn, gid: this.peer };
    if (psn === undefined) await qp.connect(remote, { pathMtu: mtu, ...connect });
    else await this.#connectFrom(ourPsn, qp, remote, { pathMtu: mtu, ...connect });
    return { qp, theirQp, theirQpn: qpn };
  }

  /** As `connect` of a queue pair, which begins with the PSN that it has drawn: with this one. */
  async #connectFrom(initialPsn: number, qp: QueuePair, remote: ConnectionData, options: ConnectOptions) {
    const local = { initialPsn, gidIndex: undefined };
    const { init, rtr, rts } = connectAttributes(local, remote, options, this.device.facts, qp.type);
    for (const attributes of [init, rtr, rts]) await qp.modify(attributes);
  }

  /** A queue pair of UD on both sides, in RTS, and address handles to each other. */
  async datagrams({ qkey, ours, theirs = {} }: DatagramOptions = {}): Promise<DatagramPairs> {
    const { agent, pd } = this;
    const [ourKey, theirKey] = qkey ?? [QKEY, QKEY];
    const cap = { maxSendWr: 256, maxRecvWr: 256 };
    const qp = await pd.createQp({ type: 'UD', sendCq: this.cq, cap, ...ours });
    await qp.activate({ qkey: ourKey });
    const created = { type: 'UD', ...SIZES, ...pick(theirs, CREATION) };
    const { qp: theirQp, qpn } = await agent.call<{ qp: number; qpn: number }>('qp', created);
    const init = { state: 'INIT', pkey_index: 0, port: 1, qkey: theirKey };
    await agent.call('modify_qp', { qp: theirQp, ...init });
    await agent.call('modify_qp', { qp: theirQp, state: 'RTR' });
    await agent.call('modify_qp', { qp: theirQp, state: 'RTS', sq_psn: 0x654321 });
    const { ah } = await agent.call<{ ah: number }>('ah', { dgid: this.dgid });
    return {
      qp,
      theirQp,
      theirQpn: qpn,
      ah: await pd.createAh({ gid: this.peer }),
      theirAh: ah,
    };
  }

  /** Registers `size` bytes of ours, open to all, between guards of 4 KiB. */
  async memory(
    size: number,
    { misalign = 0, seed, access }: { misalign?: number; seed?: number; access?: AccessInit } = {},
  ): Promise<Guarded> {
    const all = new Uint8Array(4096 + misalign + size + 4096);
    fill(all, 0x1234);
    const bytes = all.subarray(4096 + misalign, 4096 + misalign + size);
    if (seed !== undefined) fill(bytes, seed);
    const open = { remoteRead: true, remoteWrite: true, remoteAtomic: true };
    const mr = await this.pd.registerMr(bytes, { access: access ?? open });
    return new Guarded(mr, bytes, all.subarray(0, 4096 + misalign), all.subarray(4096 + misalign + size));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.agent.close();
    await this.device.close();
  }
}

/** The defaults of both sides of a UD test. */
export const QKEY = 0x1111_1111;

/** A GID as rverbs takes it: 32 hexadecimal digits. */
export const gidHex = (address: string): string => Buffer.from(gidFromText(address)).toString('hex');

export type LinkUpOptions = EndsOptions & ConnectionOptions;

/** Everything that a test of one connection needs. */
export class LinkUp extends Ends implements QueuePairs {
  readonly qp!: QueuePair;
  readonly theirQp!: number;
  readonly theirQpn!: number;

  static async make(guest: Guest, options: LinkUpOptions = {}): Promise<LinkUp> {
    const link = new LinkUp(await Ends.parts(guest, options));
    try {
      return Object.assign(link, await link.connect(options));
    } catch (error) {
      await link[Symbol.asyncDispose]();
      throw error;
    }
  }
}

function pick(from: Record<string, string | number>, names: string[]): Record<string, string | number> {
  return Object.fromEntries(Object.entries(from).filter(([name]) => names.includes(name)));
}

/** A region of ours and the bytes around it, which nobody may touch. */
export class Guarded {
  readonly mr: MemoryRegion;
  readonly bytes: Uint8Array;
  readonly #before: Uint8Array;
  readonly #after: Uint8Array;
  readonly #guards: string;

  constructor(mr: MemoryRegion, bytes: Uint8Array, before: Uint8Array, after: Uint8Array) {
    this.mr = mr;
    this.bytes = bytes;
    this.#before = before;
    this.#after = after;
    this.#guards = this.#digest();
  }

  #digest(): string {
    return sha256(this.#before) + sha256(this.#after);
  }

  get sha256(): string {
    return sha256(this.bytes);
  }

  get guardsIntact(): boolean {
    return this.#digest() === this.#guards;
  }
}
