/** Four programs at one address, each connected to rxe and to each other, with one killed at a time: docs/sharing.md. */
import { openDevice } from '@node-roce/verbs-api';
import { afterEach, expect, inject, test } from 'vitest';
import { type Member, type Outside, type Point, storm } from '../links/sharing/members.ts';
import { PATIENCE } from '../tiers/patience.mjs';
import { VerbsAgent } from './harness/agent.ts';
import { Ends, gidHex, type QueuePairs } from './harness/connect.ts';
import { GID_INDEX, Guest } from './harness/guest.ts';

const guest = new Guest(inject('guest9000'));
const KILLS = Number(process.env.ROCE_SHARING_KILLS ?? 6);
const CONNECTIONS = 16;
/** ms, with ROCE_SHARING_STALL set: a figure for a machine that does nothing else. */
const MOST_STALL = 20;

const running: Member[] = [];
afterEach(() => {
  for (const { child } of running.splice(0)) if (child.exitCode === null) child.kill('SIGKILL');
});

/** Queue pairs of rxe, which only answer. */
class RxeSide implements Outside {
  readonly #agent: VerbsAgent;
  readonly #addr: string;
  readonly #rkey: number;
  readonly #qps = new Map<number, number[]>();

  private constructor(agent: VerbsAgent, addr: string, rkey: number) {
    this.#agent = agent;
    this.#addr = addr;
    this.#rkey = rkey;
  }

  static async open(): Promise<RxeSide> {
    const agent = await VerbsAgent.start(guest, { gid: GID_INDEX[4] });
    const { address, rkey } = await agent.mr({ size: 4096, access: 'LOCAL_WRITE,REMOTE_WRITE' });
    return new RxeSide(agent, `${address}`, rkey);
  }

  async accept(index: number, theirs: { qpNum: number; psn: number }[]): Promise<Point[]> {
    const agent = this.#agent;
    const old = this.#qps.get(index) ?? [];
    await Promise.all(old.map((qp) => agent.call('destroy_qp', { qp })));
    const sizes = { type: 'RC', max_send_wr: 1, max_recv_wr: 1 };
    const made = await Promise.all(theirs.map(() => agent.call<{ qp: number; qpn: number }>('qp', sizes)));
    const first = 0x1000;
    const steps = made.flatMap(({ qp }, i) => [
      { qp, state: 'INIT', pkey_index: 0, port: 1, access: 'REMOTE_WRITE' },
      {
        ...{ qp, state: 'RTR', path_mtu: 1024, dest_qpn: theirs[i].qpNum, rq_psn: theirs[i].psn },
        ...{ dgid: gidHex(guest.address.hostIp4), max_dest_rd_atomic: 1, min_rnr_timer: 12 },
      },
      { qp, state: 'RTS', sq_psn: first, timeout: 14, retry_cnt: 6, rnr_retry: 7, max_rd_atomic: 1 },
    ]);
    await Promise.all(steps.map((keys) => agent.call('modify_qp', keys)));
    this.#qps.set(
      index,
      made.map(({ qp }) => qp),
    );
    const point = { psn: first, gid: guest.address.ip4, addr: this.#addr, rkey: this.#rkey, pathMtu: 1024 };
    return made.map(({ qpn }) => ({ qpNum: qpn, ...point }));
  }

  close(): void {
    this.#agent.close();
  }
}

/** WRITEs to the same guest from an address of their own: how long they take is the machine's and the guest's doing. */
class Control {
  /** The longest of each second or so, from one `take` to the next. */
  #worst = 0;
  #stopped = false;

  async run(ends: Ends, { qp }: QueuePairs): Promise<void> {
    const theirs = await ends.agent.mr({ size: 64, access: 'LOCAL_WRITE,REMOTE_WRITE' });
    const { mr } = await ends.memory(8);
    while (!this.#stopped) {
      const start = performance.now();
      const remote = { addr: theirs.address, rkey: theirs.rkey };
      qp.postSend({ opcode: 'RDMA_WRITE', signaled: true, sgList: [{ mr }], remote });
      expect((await ends.cq.next()).status).toBe('SUCCESS');
      this.#worst = Math.max(this.#worst, performance.now() - start);
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
  }

  take(): number {
    const worst = this.#worst;
    this.#worst = 0;
    return worst;
  }

  stop(): void {
    this.#stopped = true;
  }
}

test(`${KILLS} of four programs are killed: rxe and the others do not notice`, {
  timeout: (120_000 + KILLS * 10_000) * PATIENCE,
}, async () => {
  const address = guest.address.hostIp4;
  const servicePorts = [7001, 7002, 7003, 7004];
  const before = await guest.counters();
  const rxe = await RxeSide.open();
  await using ends = await Ends.open(guest, { version: 6, open: { recovery: { probes: false } } });
  const control = new Control();
  const controlling = control.run(ends, await ends.connect({ connect: { timeout: 17 } }));
  const stalls: [ours: number, guests: number, control: number][] = [];
  const { members, rounds } = await storm({
    ...{
      address,
      servicePorts,
      pace: 10,
      connections: CONNECTIONS,
      kills: KILLS,
      period: 1000,
      outside: rxe,
    },
    onRound: ({ flows }) => {
      const worst = (of: typeof flows) => Math.max(...of.map(({ stall }) => stall));
      const [guests, others] = [true, false].map((is) =>
        flows.filter(({ peer }) => (peer === 'guest') === is),
      );
      stalls.push([worst(others), worst(guests), control.take()]);
    },
  });
  running.push(...members);
  control.stop();
  await controlling;
  let retransmitted = 0;
  for (const [i, { killed, flows }] of rounds.entries()) {
    const what = `kill ${i}, of ${killed}`;
    const bad = flows.filter(({ error, rounds }) => error !== undefined || rounds === 0);
    expect(bad, what).toEqual([]);
    expect(flows.filter(({ peer }) => peer === 'guest').length).toBe(3 * CONNECTIONS);
    const again = flows.reduce((sum, flow) => sum + flow.retransmitted, 0);
    expect(again, what).toBeLessThanOrEqual(1);
    retransmitted += again;
  }
  const most = [0, 1, 2].map((i) => Math.max(...stalls.map((row) => row[i])).toFixed(1));
  console.log(
    `${KILLS} kills: ${retransmitted} packets of the others retransmitted; longest rounds, ms: ${most[0]} between programs, ${most[1]} to rxe, ${most[2]} to rxe from an address alone`,
  );
  if (process.env.ROCE_SHARING_STALL) {
    for (const [i, [ours, guests, alone]] of stalls.entries()) {
      expect(ours, `kill ${i}`).toBeLessThanOrEqual(MOST_STALL);
      expect(guests, `kill ${i}`).toBeLessThanOrEqual(MOST_STALL + alone);
    }
  }
  for (const member of members) await member.close();
  rxe.close();
  const after = await guest.counters();
  expect(after.rx_icrc_errors ?? 0).toBe(before.rx_icrc_errors ?? 0);
  const alone = await openDevice({ address, link: 'udp' });
  await alone.close();
});
