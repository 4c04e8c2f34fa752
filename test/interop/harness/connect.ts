/** A queue pair of ours and one of the guest's, connected; memory on both sides between guards. */
import { createHash } from 'node:crypto';
import {
  type CompletionQueue,
  type ConnectOptions,
  type Device,
  type MemoryRegion,
  type OpenOptions,
  openDevice,
  type ProtectionDomain,
  type QueuePair,
} from '@node-roce/verbs-api';
import { gidFromText } from '@node-roce/wire';
import { VerbsAgent } from './agent.ts';
import { GID_INDEX, type Guest } from './guest.ts';

export const sha256 = (bytes: Uint8Array): string => createHash('sha256').update(bytes).digest('hex');

/** The pattern that rverbs fills with: a 32-bit linear congruential generator, its top byte each. */
export function fill(bytes: Uint8Array, seed: number): void {
  let state = seed >>> 0;
  for (let i = 0; i < bytes.length; i++) {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    bytes[i] = state >>> 24;
  }
}

export interface LinkUpOptions {
  version?: 4 | 6;
  mtu?: number;
  open?: Partial<OpenOptions>;
  /** Of our side, and the same for the guest's where it has them. */
  connect?: ConnectOptions;
  /** Attributes of the guest's queue pair, in rverbs' words. */
  theirs?: Record<string, string | number>;
  /** First PSNs: ours, theirs. */
  psn?: [number, number];
}

/** Everything that a test of one connection needs. */
export class LinkUp implements AsyncDisposable {
  readonly device: Device;
  readonly pd: ProtectionDomain;
  readonly cq: CompletionQueue;
  readonly qp: QueuePair;
  readonly agent: VerbsAgent;
  /** The guest's queue pair: rverbs' number for it, and its QPN. */
  readonly theirQp: number;
  readonly theirQpn: number;

  private constructor(parts: Pick<LinkUp, 'device' | 'pd' | 'cq' | 'qp' | 'agent' | 'theirQp' | 'theirQpn'>) {
    this.device = parts.device;
    this.pd = parts.pd;
    this.cq = parts.cq;
    this.qp = parts.qp;
    this.agent = parts.agent;
    this.theirQp = parts.theirQp;
    this.theirQpn = parts.theirQpn;
  }

  static async make(guest: Guest, options: LinkUpOptions = {}): Promise<LinkUp> {
    const agent = await VerbsAgent.start(guest, { gid: GID_INDEX[options.version ?? 4] });
    const host = options.version === 6 ? guest.address.hostIp6 : guest.address.hostIp4;
    const device = await openDevice({ address: host, ...options.open });
    try {
      return await LinkUp.#connect(guest, options, agent, device, host);
    } catch (error) {
      agent.close();
      await device.close();
      throw error;
    }
  }

  static async #connect(
    guest: Guest,
    options: LinkUpOptions,
    agent: VerbsAgent,
    device: Device,
    host: string,
  ): Promise<LinkUp> {
    const { version = 4, mtu = 4096, connect = {}, theirs = {} } = options;
    const { address } = guest;
    const peer = version === 4 ? address.ip4 : address.ip6;
    const pd = await device.allocPd();
    const cq = await device.createCq(512);
    const qp = await pd.createQp({ sendCq: cq, cap: { maxSendWr: 256, maxRecvWr: 256 } });
    const made = await agent.call<{ qp: number; qpn: number }>('qp', { max_send_wr: 256, max_recv_wr: 256 });
    const ourPsn = options.psn?.[0] ?? qp.initialPsn;
    const theirPsn = options.psn?.[1] ?? 0x654321;
    const dgid = Buffer.from(gidFromText(host)).toString('hex');
    await agent.call('modify_qp', {
      qp: made.qp,
      state: 'INIT',
      pkey_index: 0,
      port: 1,
      access: 'REMOTE_WRITE,REMOTE_READ,REMOTE_ATOMIC',
    });
    await agent.call('modify_qp', {
      qp: made.qp,
      state: 'RTR',
      path_mtu: mtu,
      dest_qpn: qp.qpNum,
      rq_psn: ourPsn,
      max_dest_rd_atomic: 16,
      min_rnr_timer: 12,
      dgid,
      ...pick(theirs, ['max_dest_rd_atomic', 'min_rnr_timer']),
    });
    await agent.call('modify_qp', {
      qp: made.qp,
      state: 'RTS',
      sq_psn: theirPsn,
      timeout: 14,
      retry_cnt: 6,
      rnr_retry: 7,
      max_rd_atomic: 16,
      ...pick(theirs, ['timeout', 'retry_cnt', 'rnr_retry', 'max_rd_atomic']),
    });
    const remote = { qpNum: made.qpn, psn: theirPsn, gid: peer };
    Object.defineProperty(qp, 'initialPsn', { value: ourPsn });
    await qp.connect(remote, { pathMtu: mtu, ...connect });
    return new LinkUp({ device, pd, cq, qp, agent, theirQp: made.qp, theirQpn: made.qpn });
  }

  /** Registers `size` bytes of ours, open to all, between guards of 4 KiB. */
  async memory(
    size: number,
    { misalign = 0, seed }: { misalign?: number; seed?: number } = {},
  ): Promise<Guarded> {
    const all = new Uint8Array(4096 + misalign + size + 4096);
    fill(all, 0x1234);
    const bytes = all.subarray(4096 + misalign, 4096 + misalign + size);
    if (seed !== undefined) fill(bytes, seed);
    const access = { remoteRead: true, remoteWrite: true, remoteAtomic: true };
    const mr = await this.pd.registerMr(bytes, { access });
    return new Guarded(mr, bytes, all.subarray(0, 4096 + misalign), all.subarray(4096 + misalign + size));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.agent.close();
    await this.device.close();
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
