/**
 * Client and server as rdma-core's Python tests have them: two contexts of one device, with the same GID. Written from
 * what those tests check (rdma-core 56 and later, tests/base.py and tests/utils.py), over the functions of libibverbs.
 */
import * as v from '@node-roce/ibverbs';
import { expect, onTestFinished } from 'vitest';

/** An address and a port that no other test uses. */
const ADDRESS = '127.0.45.1';
const PORT = 25_100 + (process.pid % 800);
export const IB_PORT = 1;
export const MSG_SIZE = 1024;
const QKEY = 0x1111_1111;

/** The value of a verb that returns a pointer. */
export function made<T>(value: T | null): T {
  if (value === null) throw new Error(`${v.strerror(v.errno)}: ${v.lastError()?.message}`);
  return value;
}

/** Fails unless a verb returned 0. */
export async function ok(result: number | Promise<number>): Promise<void> {
  const code = await result;
  if (code !== 0) throw new Error(`${v.strerror(code)}: ${v.lastError()?.message}`);
}

/** The loopback interface as a device. */
export const device = v.ibv_get_device_list().find((each) => each.interface.loopback)!;

/** A context of the device; each call is one more. */
export async function openContext(): Promise<v.ibv_context> {
  const context = made(await v.ibv_open_device(device, { address: ADDRESS, port: PORT }));
  onTestFinished(() => ok(v.ibv_close_device(context)));
  return context;
}

export async function deviceAttr(context: v.ibv_context): Promise<v.ibv_device_attr> {
  const attr = {} as v.ibv_device_attr;
  await ok(v.ibv_query_device(context, attr));
  return attr;
}

export const LOCAL = v.IBV_ACCESS_LOCAL_WRITE;
const ALL = LOCAL | v.IBV_ACCESS_REMOTE_READ | v.IBV_ACCESS_REMOTE_WRITE | v.IBV_ACCESS_REMOTE_ATOMIC;

export interface PlayerOptions {
  type?: number;
  mrAccess?: number;
  qpAccess?: number;
  msgSize?: number;
  messages?: number;
  maxRdAtomic?: number;
  cqDepth?: number;
  withChannel?: boolean;
  withSrq?: boolean;
  qps?: number;
}

/** One side: everything from the context to queue pairs in INIT. */
export class Player {
  readonly options: Required<PlayerOptions>;
  context!: v.ibv_context;
  pd!: v.ibv_pd;
  channel: v.ibv_comp_channel | null = null;
  cq!: v.ibv_cq;
  srq: v.ibv_srq | null = null;
  buffer!: Uint8Array;
  mr!: v.ibv_mr;
  qps: v.ibv_qp[] = [];
  gid = { raw: new Uint8Array(16) };
  ah: v.ibv_ah | null = null;
  /** The peer's memory. */
  raddr = 0n;
  rkey = 0;
  remoteQpns: number[] = [];

  static async create(options: PlayerOptions): Promise<Player> {
    const player = new Player(options);
    await player.#open();
    return player;
  }

  private constructor(options: PlayerOptions) {
    this.options = {
      type: v.IBV_QPT_RC,
      mrAccess: ALL,
      qpAccess: ALL & ~LOCAL,
      msgSize: MSG_SIZE,
      messages: 16,
      maxRdAtomic: 4,
      cqDepth: 64,
      withChannel: false,
      withSrq: false,
      qps: 1,
      ...options,
    };
  }

  get qp(): v.ibv_qp {
    return this.qps[0];
  }

  /** Bytes in front of the data of a datagram. */
  get grh(): number {
    return this.options.type === v.IBV_QPT_UD ? 40 : 0;
  }

  async #open(): Promise<void> {
    const { type, mrAccess, msgSize, messages, cqDepth, withChannel, withSrq, qps } = this.options;
    this.context = await openContext();
    this.pd = made(await v.ibv_alloc_pd(this.context));
    if (withChannel) this.channel = made(await v.ibv_create_comp_channel(this.context));
    this.cq = made(await v.ibv_create_cq(this.context, cqDepth, null, this.channel, 0));
    if (withChannel) v.ibv_req_notify_cq(this.cq, 0);
    if (withSrq) {
      const attr = { max_wr: messages * 2, max_sge: 1 };
      this.srq = made(await v.ibv_create_srq(this.pd, { attr }));
    }
    this.buffer = new Uint8Array(msgSize + this.grh);
    this.mr = made(await v.ibv_reg_mr(this.pd, this.buffer, this.buffer.length, mrAccess));
    await ok(v.ibv_query_gid(this.context, IB_PORT, 0, this.gid));
    const cap = { max_send_wr: messages, max_recv_wr: messages, max_send_sge: 1, max_recv_sge: 1 };
    const init = { send_cq: this.cq, recv_cq: this.cq, srq: this.srq, qp_type: type };
    for (let i = 0; i < qps; i++)
      this.qps.push(made(await v.ibv_create_qp(this.pd, { ...init, cap: { ...cap } })));
  }

  attr(remoteQpn: number): v.ibv_qp_attr {
    const { qpAccess, maxRdAtomic } = this.options;
    return {
      port_num: IB_PORT,
      pkey_index: 0,
      qkey: QKEY,
      qp_access_flags: qpAccess,
      path_mtu: v.IBV_MTU_1024,
      dest_qp_num: remoteQpn,
      rq_psn: 0,
      sq_psn: 0,
      max_dest_rd_atomic: maxRdAtomic,
      max_rd_atomic: maxRdAtomic,
      min_rnr_timer: 12,
      timeout: 14,
      retry_cnt: 7,
      rnr_retry: 7,
      ah_attr: { is_global: 1, port_num: IB_PORT, grh: { dgid: this.gid, sgid_index: 0, hop_limit: 64 } },
    };
  }

  /** RESET to RTS. */
  async toRts(qp: v.ibv_qp, attr: v.ibv_qp_attr): Promise<void> {
    await toInit(qp, attr);
    await toRtr(qp, attr);
    await toRts(qp, attr);
  }

  async connect(peer: Player): Promise<void> {
    this.remoteQpns = peer.qps.map(({ qp_num }) => qp_num);
    this.raddr = peer.mr.addr;
    this.rkey = peer.mr.rkey;
    for (const [i, qp] of this.qps.entries()) await this.toRts(qp, this.attr(this.remoteQpns[i]));
    if (this.grh > 0) {
      const attr = { is_global: 1, port_num: IB_PORT, grh: { dgid: peer.gid, hop_limit: 64 } };
      this.ah = made(await v.ibv_create_ah(this.pd, attr));
    }
  }

  recvWr(): v.ibv_recv_wr {
    const { buffer, mr } = this;
    return { wr_id: 1n, sg_list: [{ addr: buffer, length: buffer.length, lkey: mr.lkey }] };
  }

  async postRecv(index = 0): Promise<void> {
    await ok(
      this.srq
        ? v.ibv_post_srq_recv(this.srq, this.recvWr())
        : v.ibv_post_recv(this.qps[index], this.recvWr()),
    );
  }

  /** Posts a signaled request; `more` has the members that the opcode needs. */
  async post(opcode: number, more: Partial<v.ibv_send_wr> = {}, index = 0): Promise<void> {
    const { buffer, mr, grh, ah } = this;
    const sge = { addr: buffer.subarray(grh), length: buffer.length - grh, lkey: mr.lkey };
    const ud = ah ? { ud: { ah, remote_qpn: this.remoteQpns[index], remote_qkey: QKEY } } : {};
    const wr = { ...more.wr, ...ud };
    const send = { wr_id: 2n, opcode, send_flags: v.IBV_SEND_SIGNALED, sg_list: [sge], ...more, wr };
    await ok(v.ibv_post_send(this.qps[index], send));
  }

  /** Posts a WRITE or READ of the whole message. */
  postRdma(opcode: number, more: Partial<v.ibv_send_wr> = {}): Promise<void> {
    return this.post(opcode, { wr: { rdma: { remote_addr: this.raddr, rkey: this.rkey } }, ...more });
  }

  /** The next completions. */
  async poll(count = 1): Promise<v.ibv_wc[]> {
    const all: v.ibv_wc[] = [];
    const deadline = performance.now() + 120_000;
    while (all.length < count) {
      if (this.channel) {
        const cq: v.ibv_cq[] = [];
        await ok(v.ibv_get_cq_event(this.channel, cq));
        v.ibv_ack_cq_events(cq[0], 1);
        v.ibv_req_notify_cq(this.cq, 0);
      }
      const wc: v.ibv_wc[] = [];
      const found = v.ibv_poll_cq(this.cq, count - all.length, wc);
      if (found < 0) throw v.lastError();
      all.push(...wc.slice(0, found));
      if (performance.now() > deadline) throw new Error(`${all.length} completions of ${count}`);
      await new Promise((resolve) => setImmediate(resolve));
    }
    return all;
  }

  /** The next completion, which has to be a success. */
  async success(): Promise<v.ibv_wc> {
    const [wc] = await this.poll(1);
    expect(v.ibv_wc_status_str(wc!.status)).toBe(v.ibv_wc_status_str(v.IBV_WC_SUCCESS));
    return wc!;
  }
}

export async function toInit(qp: v.ibv_qp, attr: v.ibv_qp_attr): Promise<void> {
  const mask = v.IBV_QP_STATE | v.IBV_QP_PKEY_INDEX | v.IBV_QP_PORT;
  const own = qp.qp_type === v.IBV_QPT_UD ? v.IBV_QP_QKEY : v.IBV_QP_ACCESS_FLAGS;
  await ok(v.ibv_modify_qp(qp, { ...attr, qp_state: v.IBV_QPS_INIT }, mask | own));
}

export async function toRtr(qp: v.ibv_qp, attr: v.ibv_qp_attr): Promise<void> {
  const path = v.IBV_QP_AV | v.IBV_QP_PATH_MTU | v.IBV_QP_DEST_QPN | v.IBV_QP_RQ_PSN;
  const reliable = v.IBV_QP_MAX_DEST_RD_ATOMIC | v.IBV_QP_MIN_RNR_TIMER;
  const mask =
    v.IBV_QP_STATE | (qp.qp_type === v.IBV_QPT_UD ? 0 : path) | (qp.qp_type === v.IBV_QPT_RC ? reliable : 0);
  await ok(v.ibv_modify_qp(qp, { ...attr, qp_state: v.IBV_QPS_RTR }, mask));
}

export async function toRts(qp: v.ibv_qp, attr: v.ibv_qp_attr): Promise<void> {
  const reliable = v.IBV_QP_TIMEOUT | v.IBV_QP_RETRY_CNT | v.IBV_QP_RNR_RETRY | v.IBV_QP_MAX_QP_RD_ATOMIC;
  const mask = v.IBV_QP_STATE | v.IBV_QP_SQ_PSN | (qp.qp_type === v.IBV_QPT_RC ? reliable : 0);
  await ok(v.ibv_modify_qp(qp, { ...attr, qp_state: v.IBV_QPS_RTS }, mask));
}

/** A client and a server that are connected. */
export async function createPlayers(
  options: PlayerOptions = {},
): Promise<{ client: Player; server: Player }> {
  const client = await Player.create(options);
  const server = await Player.create(options);
  await client.connect(server);
  await server.connect(client);
  return { client, server };
}

/** Messages both ways in turns, checked byte by byte. */
export async function traffic(
  client: Player,
  server: Player,
  iterations: number,
  send = v.IBV_WR_SEND,
): Promise<void> {
  const withImm = send === v.IBV_WR_SEND_WITH_IMM;
  for (let i = 0; i < iterations; i++) {
    for (let index = 0; index < client.qps.length; index++) {
      for (const [from, to, mark] of [
        [client, server, 0x63],
        [server, client, 0x73],
      ] as const) {
        await to.postRecv(index);
        to.buffer.fill(0);
        from.buffer.fill(mark);
        await from.post(send, withImm ? { imm_data: 0xdead_beef } : {}, index);
        const wc = await to.success();
        await from.success();
        expect(wc.byte_len).toBe(to.buffer.length);
        expect(wc.opcode).toBe(v.IBV_WC_RECV);
        if (withImm)
          expect([wc.imm_data, wc.wc_flags & v.IBV_WC_WITH_IMM]).toEqual([0xdead_beef, v.IBV_WC_WITH_IMM]);
        expect(to.buffer.subarray(to.grh).every((byte) => byte === mark)).toBe(true);
      }
    }
  }
}

/** One-sided operations of both sides in turns, checked in the memory that they change. */
export async function rdmaTraffic(
  client: Player,
  server: Player,
  iterations: number,
  opcode: number,
): Promise<void> {
  const isRead = opcode === v.IBV_WR_RDMA_READ;
  const withImm = opcode === v.IBV_WR_RDMA_WRITE_WITH_IMM;
  for (let i = 0; i < iterations; i++) {
    for (const [from, to, mark] of [
      [client, server, 0x63],
      [server, client, 0x73],
    ] as const) {
      const [source, target] = isRead ? [to, from] : [from, to];
      target.buffer.fill(0);
      source.buffer.fill(mark);
      if (withImm) await to.postRecv();
      await from.postRdma(opcode, withImm ? { imm_data: 0xdead_beef } : {});
      await from.success();
      if (withImm) expect((await to.success()).opcode).toBe(v.IBV_WC_RECV_RDMA_WITH_IMM);
      expect(target.buffer.every((byte) => byte === mark)).toBe(true);
    }
  }
}

/** The status of the first completion that is no success, of an operation that has to fail. */
export async function failedStatus(player: Player): Promise<string> {
  const [wc] = await player.poll(1);
  return v.ibv_wc_status_str(wc!.status);
}
