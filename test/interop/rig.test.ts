/** The rig itself: guest, exec daemon, counters, captures, and rverbs between two queue pairs of the guest. */
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, inject, test } from 'vitest';
import { VerbsAgent } from './harness/agent.ts';
import { fill, sha256 } from './harness/connect.ts';
import { difference, Guest } from './harness/guest.ts';
import { onRelease, VERSIONS } from './harness/release.ts';

const guest = new Guest(inject('guest9000'));
const ALL = 'LOCAL_WRITE,REMOTE_WRITE,REMOTE_READ,REMOTE_ATOMIC';
const Status = { SUCCESS: 0, WR_FLUSH_ERR: 5, REM_ACCESS_ERR: 10 } as const;

describe('guest', () => {
  test.each([
    { name: 'guest9000' as const, mtu: 4096 },
    { name: 'guest1500' as const, mtu: 1024 },
  ])('$name: rxe0 is active with path MTU $mtu, on the expected addresses', async ({ name, mtu }) => {
    const { address } = new Guest(inject(name));
    const info = await new Guest(address).must('ibv_devinfo -v -d rxe0');
    expect(info).toMatch(/state:\s+PORT_ACTIVE/);
    expect(info).toMatch(new RegExp(`active_mtu:\\s+${mtu} `));
    expect(info).toContain(`::ffff:${address.ip4}, RoCE v2`);
    expect(info).toContain(`${address.ip6}, RoCE v2`);
  });

  test('kernel, rdma-core and perftest are those of its release', async () => {
    const image = join(process.env.ROCE_GUEST_IMAGE!, 'versions.txt');
    const installed = new Map(
      readFileSync(image, 'utf8')
        .trim()
        .split('\n')
        .map((line) => line.split(' ') as [string, string]),
    );
    const { linux, rdmaCore, perftest } = onRelease(VERSIONS);
    const kernel = (await guest.must('uname -r')).trim();
    expect(kernel.startsWith(`${linux}.`)).toBe(true);
    if (kernel.endsWith('-um-rxe')) {
      // Built from Debian's source. Its version is in a file next to the kernel: linux-source-6.1 6.1.192-3.
      const source = readFileSync(join(process.env.ROCE_GUEST_UM!, '../versions.txt'), 'utf8');
      expect(source).toContain(`linux-source-${linux} ${kernel.split('-')[0]}-`);
    } else expect([...installed.keys()]).toContain(`linux-image-${kernel}`);
    for (const name of ['ibverbs-utils', 'rdmacm-utils', 'ibverbs-providers'])
      expect(installed.get(name)).toMatch(new RegExp(`^${rdmaCore}\\.`));
    expect(installed.get('perftest')).toMatch(new RegExp(`^${perftest}[.+]`));
  });

  test('exec: exit status, both streams, stdin, a signal, a time limit', async () => {
    expect(await guest.exec('echo out; echo err >&2; exit 7')).toEqual({
      stdout: 'out\n',
      stderr: 'err\n',
      code: 7,
    });
    const text = 'x'.repeat(300_000);
    expect((await guest.exec('sha256sum', { stdin: text })).stdout).toContain(
      createHash('sha256').update(text).digest('hex'),
    );
    const sleeper = guest.spawn('exec sleep 60');
    sleeper.signal('SIGINT');
    expect((await sleeper.exited).code).toBe(128 + 2);
    expect((await guest.exec('exec sleep 61', { timeout: 200 })).code).toBe(-1);
    // With its connection, the command is gone too.
    await expect.poll(async () => (await guest.exec('ps | grep "[s]leep 61"')).code).toBe(1);
    await expect(guest.must('echo why >&2; false')).rejects.toThrow(/ended with 1\s+why/);
  });

  test('netem: faults on RoCE packets both ways, and none afterwards', async () => {
    await guest.netem('loss 5%', 'duplicate 5%');
    try {
      const qdiscs = await guest.must('tc qdisc');
      expect(qdiscs).toMatch(/netem 40: dev eth0 parent 1:4 limit 10000 loss 5%/);
      expect(qdiscs).toMatch(/netem \w+: dev ifb0 root .*duplicate 5%/);
    } finally {
      await guest.netem('');
    }
    expect(await guest.must('tc qdisc')).not.toContain('netem');
  });
});

/** Two connected queue pairs of the guest; packets to the own host loop inside of rxe. */
async function loop({ type = 'RC', ...attributes }: Record<string, string | number> = {}) {
  const agent = await VerbsAgent.start(guest);
  const pair = [await agent.call<Pair>('qp', { type }), await agent.call<Pair>('qp', { type })];
  const rc = type === 'RC';
  const gid = (await agent.call<{ gid: string }>('query_gid', { index: 1 })).gid;
  for (const [i, { qp }] of pair.entries()) {
    const access = rc ? 'REMOTE_WRITE,REMOTE_READ,REMOTE_ATOMIC' : 'REMOTE_WRITE';
    await agent.call('modify_qp', { qp, state: 'INIT', pkey_index: 0, port: 1, access });
    const path = { path_mtu: 1024, dest_qpn: pair[1 - i].qpn, rq_psn: 100 + i, dgid: gid };
    const responder = rc ? { max_dest_rd_atomic: 4, min_rnr_timer: 1 } : {};
    await agent.call('modify_qp', { qp, state: 'RTR', ...path, ...responder });
    const requester = rc ? { timeout: 14, retry_cnt: 3, rnr_retry: 3, max_rd_atomic: 4 } : {};
    await agent.call('modify_qp', { qp, state: 'RTS', sq_psn: 101 - i, ...requester, ...attributes });
  }
  const memory = [
    await agent.mr({ size: 10_000, access: ALL, seed: 1, misalign: 24 }),
    await agent.mr({ size: 10_000, access: ALL, seed: 2 }),
  ];
  return {
    agent,
    a: { ...pair[0], ...memory[0] },
    b: { ...pair[1], ...memory[1] },
    [Symbol.asyncDispose]: async () => agent.close(),
  };
}
interface Pair {
  qp: number;
  qpn: number;
}

/** Two UD queue pairs: the receiver, made with `keys`, and what a datagram to it is posted with. */
async function datagrams(agent: VerbsAgent, keys: Record<string, number>) {
  const sender = await agent.call<Pair>('qp', { type: 'UD' });
  const { qp, qpn } = await agent.call<Pair>('qp', { type: 'UD', ...keys });
  for (const each of [qp, sender.qp]) {
    await agent.call('modify_qp', { qp: each, state: 'INIT', pkey_index: 0, port: 1, qkey: 0x1111 });
    await agent.call('modify_qp', { qp: each, state: 'RTR' });
    await agent.call('modify_qp', { qp: each, state: 'RTS', sq_psn: 0 });
  }
  const { gid } = await agent.call<{ gid: string }>('query_gid', { index: 1 });
  const { ah } = await agent.call<{ ah: number }>('ah', { dgid: gid });
  const datagram = { qp: sender.qp, opcode: 'SEND', ah, remote_qpn: qpn, remote_qkey: 0x1111 };
  return { qp, sender, datagram };
}

const pattern = (length: number, seed: number) => {
  const bytes = new Uint8Array(length);
  fill(bytes, seed);
  return bytes;
};

describe('rverbs', () => {
  test('fills, reads, writes and digests as we do, guards included', async () => {
    await using link = await loop();
    const { agent, a } = link;
    expect(await agent.sha256(a.mr)).toBe(sha256(pattern(10_000, 1)));
    expect(await agent.sha256(a.mr, 17, 0)).toBe(sha256(new Uint8Array(0)));
    expect(Number(a.address & 4095n)).toBe(24);
    await agent.call('write', { mr: a.mr, offset: 9_999, hex: 'abcd' });
    expect(await agent.call('read', { mr: a.mr, offset: 9_998, length: 3 })).toEqual({
      hex: `${Buffer.from(pattern(9_999, 1).subarray(9_998)).toString('hex')}abcd`,
    });
    await expect(agent.call('read', { mr: a.mr, offset: -4097, length: 1 })).rejects.toThrow('leaves region');
  });

  test('SEND with lists and immediate, WRITE, READ', async () => {
    await using link = await loop();
    const { agent, a, b } = link;
    await agent.call('post_recv', { qp: b.qp, wr_id: 1, sge: `${b.mr}:0:1000,${b.mr}:5000:5000` });
    const send = { qp: a.qp, opcode: 'SEND_WITH_IMM', imm: 0xdead_beef, sge: `${a.mr}:8:3,${a.mr}:11:2997` };
    await agent.call('post_send', { ...send, wr_id: 2, flags: 'SIGNALED,SOLICITED' });
    const completions = await agent.poll(2);
    expect(completions.find((wc) => wc.wrId === 1)).toMatchObject({
      opcode: 'RECV',
      byteLen: 3000,
      imm: 0xdead_beef,
      qpn: b.qpn,
    });
    expect(completions.find((wc) => wc.wrId === 2)).toMatchObject({ opcode: 'SEND', qpn: a.qpn });
    const sent = pattern(10_000, 1);
    expect(await agent.sha256(b.mr, 0, 1000)).toBe(sha256(sent.subarray(8, 1008)));
    expect(await agent.sha256(b.mr, 5000, 2000)).toBe(sha256(sent.subarray(1008, 3008)));

    const remote = { remote_addr: b.address, rkey: b.rkey, sge: `${a.mr}:0:10000` };
    await agent.call('post_send', { qp: a.qp, opcode: 'RDMA_WRITE', ...remote });
    expect(await agent.poll()).toMatchObject([{ opcode: 'RDMA_WRITE', status: Status.SUCCESS }]);
    expect(await agent.sha256(b.mr)).toBe(sha256(sent));
    await agent.call('fill', { mr: b.mr, seed: 9 });
    await agent.call('post_send', { qp: a.qp, opcode: 'RDMA_READ', ...remote });
    expect(await agent.poll()).toMatchObject([{ opcode: 'RDMA_READ', status: Status.SUCCESS }]);
    expect(await agent.sha256(a.mr)).toBe(sha256(pattern(10_000, 9)));
  });

  test('atomics', async () => {
    await using link = await loop();
    const { agent, a, b } = link;
    await agent.call('write', { mr: b.mr, hex: '0500000000000000' });
    const to = { qp: a.qp, sge: `${a.mr}:0:8`, remote_addr: b.address, rkey: b.rkey };
    await agent.call('post_send', { ...to, opcode: 'ATOMIC_FETCH_AND_ADD', add: '0xffffffffffffffff' });
    expect(await agent.poll()).toMatchObject([{ opcode: 'FETCH_ADD', status: Status.SUCCESS }]);
    expect(await agent.call('read', { mr: a.mr, length: 8 })).toEqual({ hex: '0500000000000000' });
    await agent.call('post_send', { ...to, opcode: 'ATOMIC_CMP_AND_SWP', compare: 4, swap: 0x1234 });
    expect(await agent.poll()).toMatchObject([{ opcode: 'COMP_SWAP', status: Status.SUCCESS }]);
    expect(await agent.call('read', { mr: b.mr, length: 8 })).toEqual({ hex: '3412000000000000' });
  });

  test('errors: bad key, flush, state, event', async () => {
    await using link = await loop();
    const { agent, a, b } = link;
    await agent.call('post_recv', { qp: a.qp, wr_id: 7 });
    const remote = { remote_addr: b.address, rkey: b.rkey ^ 0xff00, sge: `${a.mr}:0:8` };
    await agent.call('post_send', { qp: a.qp, opcode: 'RDMA_WRITE', wr_id: 1, ...remote });
    await agent.call('post_send', { qp: a.qp, opcode: 'SEND', wr_id: 2, flags: '', sge: `${a.mr}:0:8` });
    const statuses = Object.fromEntries((await agent.poll(3)).map((wc) => [wc.wrId, wc.status]));
    expect(statuses).toEqual({ 1: Status.REM_ACCESS_ERR, 2: Status.WR_FLUSH_ERR, 7: Status.WR_FLUSH_ERR });
    expect(await agent.call('query_qp', { qp: a.qp })).toMatchObject({ state: 'ERR' });
    await expect(agent.call('nonsense')).rejects.toThrow('unknown command nonsense');
    await expect(agent.call('query_qp', { qp: a.qp, qq: 1 })).rejects.toThrow('key qq');
    await expect(agent.call('modify_qp', { qp: b.qp, state: 'INIT' })).rejects.toMatchObject({ errno: 22 });
  });

  test.each([1, 2])('memory windows of type %i', async (type) => {
    await using link = await loop();
    const { agent, a, b } = link;
    const bindable = await agent.mr({ size: 4096, access: 'LOCAL_WRITE,MW_BIND', seed: 3 });
    const { mw } = await agent.call<{ mw: number }>('mw', { type });
    const bind = { mw, qp: b.qp, mr: bindable.mr, offset: 1000, length: 500, access: 'REMOTE_WRITE' };
    const { rkey } = await agent.call<{ rkey: number }>('bind', bind);
    expect(await agent.poll()).toMatchObject([{ opcode: 'BIND_MW', status: Status.SUCCESS }]);
    const write = { qp: a.qp, opcode: 'RDMA_WRITE', rkey };
    const start = bindable.address + 1000n;
    await agent.call('post_send', { ...write, remote_addr: start, sge: `${a.mr}:0:500` });
    expect(await agent.poll()).toMatchObject([{ status: Status.SUCCESS }]);
    expect(await agent.sha256(bindable.mr, 1000, 500)).toBe(sha256(pattern(500, 1)));
    // rxe holds a window's access rights, but of its bounds only those of the region below (docs/quirks.md).
    const read = { qp: a.qp, opcode: 'RDMA_READ', rkey, remote_addr: start, sge: `${a.mr}:0:4` };
    await agent.call('post_send', read);
    expect(await agent.poll()).toMatchObject([{ status: Status.REM_ACCESS_ERR }]);
  });

  test('completion events, and the solicited ones alone', async () => {
    await using link = await loop();
    const { agent, a, b } = link;
    const { channel } = await agent.call<{ channel: number }>('channel');
    const { cq } = await agent.call<{ cq: number }>('cq', { channel });
    expect(await agent.call('wait_event', { channel, timeout: 50 })).toEqual({});
    const { qp, sender, datagram } = await datagrams(agent, { recv_cq: cq });
    for (const i of [1, 2]) await agent.call('post_recv', { qp, wr_id: i, sge: `${b.mr}:0:1040` });
    await agent.call('arm', { cq, solicited: 1 });
    await agent.call('post_send', { ...datagram, sge: `${a.mr}:0:1000` });
    expect(await agent.call('wait_event', { channel, timeout: 200 })).toEqual({});
    await agent.call('post_send', { ...datagram, sge: `${a.mr}:0:4`, flags: 'SIGNALED,SOLICITED' });
    expect(await agent.call('wait_event', { channel, timeout: 5000 })).toEqual({ cq });
    const { completions } = await agent.call<{ completions: object[] }>('poll', { cq, count: 2 });
    expect(completions).toMatchObject([
      { wrId: 1, byteLen: 1040, srcQp: sender.qpn, flags: ['GRH'] },
      { wrId: 2, byteLen: 44 },
    ]);
  });

  test('shared receive queue: the event when it falls below its limit', async () => {
    await using link = await loop();
    const { agent, a, b } = link;
    const { srq } = await agent.call<{ srq: number }>('srq', { max_wr: 8 });
    const { qp, datagram } = await datagrams(agent, { srq });
    for (const i of [1, 2]) await agent.call('post_recv', { srq, wr_id: i, sge: `${b.mr}:0:1040` });
    await agent.call('modify_srq', { srq, limit: 2 });
    expect(await agent.call('query_srq', { srq })).toMatchObject({ limit: 2 });
    expect(await agent.call('async_event')).toEqual({});
    await agent.call('post_send', { ...datagram, sge: `${a.mr}:0:4` });
    expect((await agent.poll(2)).map((wc) => wc.status)).toEqual([0, 0]);
    expect(await agent.call('async_event', { timeout: 5000 })).toEqual({ event: 'SRQ_LIMIT_REACHED', srq });
    await agent.call('destroy_qp', { qp });
    await agent.call('destroy_srq', { srq });
  });

  test('repeat: many in flight, each counted by the device', async () => {
    await using link = await loop();
    const { agent, a, b } = link;
    const remote = { remote_addr: b.address, rkey: b.rkey, sge: `${a.mr}:0:64` };
    const before = await guest.counters();
    const done = await agent.call('repeat', {
      qp: a.qp,
      opcode: 'RDMA_WRITE',
      count: 200,
      depth: 8,
      ...remote,
    });
    expect(done).toMatchObject({ completed: 200, status: Status.SUCCESS });
    expect(difference(before, await guest.counters()).sent_pkts).toBeGreaterThanOrEqual(200);
  });
});
