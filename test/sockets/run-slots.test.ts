/** Run slots over real sockets: they are used where the link takes them, and programs see no difference. */
import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type Link, openSocketLink, TracerLink } from '@node-roce/link';
import { RX_SLOT_WORDS, Rx } from '@node-roce/transport';
import { type Device, openDevice, type PacketInfo, type SendWr } from '@node-roce/verbs-api';
import { createRandom } from '@node-roce/wire';
import { afterEach, expect, test } from 'vitest';
import { host, ownPort } from '../../packages/link/testing/loopback.ts';

const LENGTH = 1 << 20;
const open: Device[] = [];
afterEach(async () => {
  for (const device of open.splice(0)) await device.close();
});

async function openSide(link: Link) {
  const device = await openDevice({ link });
  open.push(device);
  const pd = await device.allocPd();
  const cq = await device.createCq(1024);
  const memory = new Uint8Array(new ArrayBuffer(2 * LENGTH));
  const mr = await pd.registerMr(memory, { access: { remoteWrite: true, remoteRead: true } });
  const qp = await pd.createQp({ sendCq: cq, cap: { maxSendWr: 512, maxRecvWr: 512 } });
  return { device, link, cq, memory, mr, qp };
}

type Side = Awaited<ReturnType<typeof openSide>>;

/** Posts requests, at most 128 outstanding, and waits for the completions of both sides. */
async function transfer(a: Side, b: Side, requests: SendWr[], receives: number): Promise<void> {
  let received = 0;
  let done = 0;
  for (let posted = 0; done < requests.length || received < receives; ) {
    while (posted < requests.length && posted - done < 128)
      a.qp.postSend({ ...requests[posted++], signaled: true });
    for (const { status } of a.cq.poll()) {
      expect(status).toBe('SUCCESS');
      done++;
    }
    for (const { status } of b.cq.poll()) {
      expect(status).toBe('SUCCESS');
      received++;
    }
    await new Promise(setImmediate);
  }
}

const counts = ({ link }: Side) => link.stats();
const openLink = (address: string, options = {}) =>
  openSocketLink('udp', { address, port: ownPort, runs: true, ...options });

/** The longest run of packets that a link receives from now on. */
function longestRun(link: Link): () => number {
  const receive = link.receive.bind(link);
  let longest = 0;
  link.receive = (batch, time) => {
    const count = receive(batch, time);
    for (let i = 0; i < count; i++) longest = Math.max(longest, batch.slots[i * RX_SLOT_WORDS + Rx.RUN]);
    return count;
  };
  return () => longest;
}

/** SENDs of one packet, and WRITEs, READs and SENDs of many, whose data is compared. */
async function exchange(links: [Link, Link], pathMtu: number): Promise<{ a: Side; b: Side }> {
  const [a, b] = [await openSide(links[0]), await openSide(links[1])];
  await a.qp.connect(b.qp.connectionData(), { pathMtu });
  await b.qp.connect(a.qp.connectionData(), { pathMtu });
  const random = createRandom(pathMtu);
  for (let i = 0; i < LENGTH; i++) a.memory[i] = b.memory[i + LENGTH] = random.next();
  const same = (x: Uint8Array, y: Uint8Array) => expect(Buffer.compare(x, y)).toBe(0);
  const small: SendWr[] = Array.from({ length: 300 }, (_, i) => ({
    opcode: 'SEND',
    sgList: [{ mr: a.mr, offset: i * 70, length: 70 }],
  }));
  for (let i = 0; i < 300; i++) b.qp.postRecv({ sgList: [{ mr: b.mr, offset: i * 70, length: 70 }] });
  await transfer(a, b, small, 300);
  same(b.memory.subarray(0, 300 * 70), a.memory.subarray(0, 300 * 70));
  const sgList = [
    { mr: a.mr, length: LENGTH / 2 + 100 },
    { mr: a.mr, offset: LENGTH / 2 + 100, length: LENGTH / 2 - 107 },
  ];
  b.qp.postRecv({ sgList: [{ mr: b.mr, length: LENGTH }] });
  await transfer(a, b, [{ opcode: 'SEND', sgList }], 1);
  same(b.memory.subarray(0, LENGTH - 7), a.memory.subarray(0, LENGTH - 7));
  b.memory.fill(0, 0, LENGTH);
  await transfer(a, b, [{ opcode: 'RDMA_WRITE', sgList, remote: b.mr.remote() }], 0);
  same(b.memory.subarray(0, LENGTH - 7), a.memory.subarray(0, LENGTH - 7));
  const into = [{ mr: a.mr, offset: LENGTH, length: LENGTH }];
  await transfer(a, b, [{ opcode: 'RDMA_READ', sgList: into, remote: b.mr.remote(LENGTH) }], 0);
  same(a.memory.subarray(LENGTH), b.memory.subarray(LENGTH));
  return { a, b };
}

test.each([256, 1024, 4096])('data in run slots arrives as it was sent: path MTU %i', async (mtu) => {
  const links: [Link, Link] = [await openLink(host(1)), await openLink(host(2))];
  const longest = links.map(longestRun);
  const { a, b } = await exchange(links, mtu);
  // Requests of the one, and READ responses of the other.
  expect(counts(a).runSlots).toBeGreaterThan(10);
  expect(counts(b).runSlots).toBeGreaterThan(0);
  for (const run of longest) expect(run()).toBeGreaterThan(1);
});

test('where runs are switched off, packets that arrive in one datagram are in none', async () => {
  const links: [Link, Link] = [await openLink(host(1)), await openLink(host(2), { runs: false })];
  const longest = longestRun(links[1]);
  const { a, b } = await exchange(links, 1024);
  expect(counts(a).runSlots).toBeGreaterThan(10);
  expect([longest(), counts(b).runSlots]).toEqual([1, 0]);
  expect(counts(b).groRuns).toBeGreaterThan(0);
});

test.each([
  ['that are switched off', { runs: false }],
  ['without GSO', { offload: false }],
  ['with checksum 0', { zeroChecksum: true }],
])('links %s get a slot for each packet', async (_, options) => {
  const { a, b } = await exchange([await openLink(host(1), options), await openLink(host(2), options)], 1024);
  expect([counts(a).runSlots, counts(b).runSlots]).toEqual([0, 0]);
});

test('a tracer gets a slot for each packet, and writes each', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'run-slots-'));
  try {
    const traced = await TracerLink.open(await openLink(host(1)), join(folder, 'a.pcapng'));
    const { a, b } = await exchange([traced, await openLink(host(2))], 1024);
    const { runSlots, traceDrops, tracedPackets, txPackets, rxPackets } = counts(a);
    expect({ runSlots, traceDrops }).toEqual({ runSlots: 0, traceDrops: 0 });
    expect(tracedPackets).toBe(txPackets + rxPackets);
    expect(counts(b).runSlots).toBeGreaterThan(0);
  } finally {
    for (const device of open.splice(0)) await device.close();
    await rm(folder, { recursive: true });
  }
});

test('listeners of the packet channel hear of each packet of a run', async () => {
  const heard = new Map<Device, { in: string[]; out: string[] }>();
  const listener = (message: unknown) => {
    const { device, direction, psn, opcode, payloadLength } = message as PacketInfo & { device: Device };
    if (!heard.has(device)) heard.set(device, { in: [], out: [] });
    heard.get(device)?.[direction].push(`${opcode} ${psn} ${payloadLength}`);
  };
  subscribe('node-roce:packet', listener);
  try {
    const { a, b } = await exchange([await openLink(host(1)), await openLink(host(2))], 256);
    expect(counts(a).runSlots).toBeGreaterThan(10);
    await new Promise(setImmediate);
    const [here, there] = [heard.get(a.device), heard.get(b.device)];
    expect(here?.out.length).toBeGreaterThan(5000);
    // The last ACKs may not be here yet.
    expect(there?.in).toEqual(here?.out.slice(0, there?.in.length));
    expect(there?.in.length).toBeGreaterThan(5000);
    expect(here?.in).toEqual(there?.out.slice(0, here?.in.length));
  } finally {
    unsubscribe('node-roce:packet', listener);
  }
});
