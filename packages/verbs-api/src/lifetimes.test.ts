/**
 * Packets that wait for room in the socket while the objects that they name are destroyed: after deregister or destroy returned nothing reads that
 * memory (IBTA vol 1 §10.6.4, ibv_dereg_mr(3)), and a packet goes to the host that it was made for, or nowhere.
 */
import { MemoryNetwork } from '@node-roce/link';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { pass, stopClock } from '../testing/clock.ts';
import { openValvedSide } from '../testing/valve.ts';
import type { Device } from './index.ts';

const open = new Set<Device>();
beforeEach(stopClock);
afterEach(async () => {
  for (const device of open) await device.close();
  open.clear();
});

const A = 0x41;
const SECRET = 0x53;

/** Sides with valves; the first two are connected. */
async function sides(count: number) {
  const network = new MemoryNetwork();
  const all = [];
  for (let i = 1; i <= count; i++) {
    const side = await openValvedSide(network, `10.0.0.${i}`, {
      cap: { maxSendWr: 16, maxRecvWr: 16, maxSendSge: 2, maxRecvSge: 2, maxInlineData: 128 },
    });
    open.add(side.device);
    all.push(side);
  }
  const [a, b] = all;
  await a.qp.connect(b.qp.connectionData(), { timeout: 10 });
  await b.qp.connect(a.qp.connectionData(), { timeout: 10 });
  await pass(5);
  return all;
}

// C4. Today: SUCCESS, with the bytes of a region that no peer may read.
test('a READ response that waits does not leave once its region is deregistered', async () => {
  const [a, b] = await sides(2);
  const region = await b.pd.registerMr(new Uint8Array(4096).fill(A), { access: { remoteRead: true } });
  b.valve.shut();
  const sgList = [{ mr: a.mr, length: 1024 }];
  a.qp.postSend({ wrId: 1, opcode: 'RDMA_READ', sgList, remote: region.remote(), signaled: true });
  await pass(5);
  await region.deregister();
  await b.pd.registerMr(new Uint8Array(4096).fill(SECRET), { access: {} });
  b.valve.open();
  const [{ status }] = await Promise.all([a.cq.next(), pass(50)]);
  expect(status).toBe('REM_ACCESS_ERR');
  expect(a.memory.subarray(0, 1024).every((byte) => byte === 0)).toBe(true);
  const bytes = a.valve.arrived.flatMap((packet) => [...packet.subarray(12)]);
  expect(bytes.filter((byte) => byte === SECRET)).toEqual([]);
});

// C4. Today: SUCCESS at the receiver, with 64 bytes of a region that was registered later.
test('an inline SEND that waits does not leave with the bytes of another region once its queue pair is closed', async () => {
  const [a, b] = await sides(2);
  b.qp.postRecv({ wrId: 1, sgList: [{ mr: b.mr, length: 1024 }] });
  a.valve.shut();
  a.qp.postSend({ opcode: 'SEND', inline: true, sgList: [new Uint8Array(64).fill(A)], signaled: true });
  await pass(5);
  await a.qp.close();
  await a.pd.registerMr(new Uint8Array(65_536).fill(SECRET), { access: {} });
  const again = await a.pd.createQp({ sendCq: a.cq });
  const peer = await b.pd.createQp({ sendCq: b.cq });
  await again.connect(peer.connectionData());
  a.valve.open();
  await pass(50);
  // It may have left as it was posted; nothing else may.
  const bytes = b.valve.arrived.flatMap((packet) => [...packet.subarray(12)]);
  expect(bytes.filter((byte) => byte === SECRET)).toEqual([]);
  expect([...b.memory.subarray(0, 64)].filter((byte) => byte !== A && byte !== 0)).toEqual([]);
});

// C4. Today: the packet for B's queue pair arrives at C.
test('a SEND that waits goes to no other host once its queue pair is closed and another is connected', async () => {
  const [a, b, c] = await sides(3);
  a.memory.fill(A);
  const before = c.valve.arrived.length;
  a.valve.shut();
  a.qp.postSend({ wrId: 1, opcode: 'SEND', sgList: [{ mr: a.mr, length: 64 }], signaled: true });
  await pass(5);
  await a.qp.close();
  const other = await a.pd.createQp({ sendCq: a.cq });
  await other.connect(c.qp.connectionData());
  a.valve.open();
  await pass(50);
  expect(c.valve.arrived.length).toBe(before);
  expect(b.valve.arrived.every((packet) => packet.length < 1024)).toBe(true);
});

// C4, the same for an address handle of a datagram.
test('a datagram that waits goes to no other host once its address handle is destroyed and another is created', async () => {
  const network = new MemoryNetwork();
  const [a, b, c] = await Promise.all(
    [1, 2, 3].map((i) => openValvedSide(network, `10.0.1.${i}`, { type: 'UD' })),
  );
  for (const { device, qp } of [a, b, c]) {
    open.add(device);
    await qp.activate();
  }
  const handle = await a.pd.createAh({ gid: b.device.gids[0].address });
  await pass(5);
  a.valve.shut();
  const sgList = [{ mr: a.mr, length: 64 }];
  a.qp.postSend({
    opcode: 'SEND',
    sgList,
    ud: { ah: handle, remoteQpn: b.qp.qpNum, remoteQkey: 0x1111_1111 },
  });
  await pass(5);
  await handle.destroy();
  await a.pd.createAh({ gid: c.device.gids[0].address });
  a.valve.open();
  await pass(50);
  expect(c.valve.arrived).toEqual([]);
});

test('a region that a waiting SEND names is deregistered: the SEND fails, and nothing of another region leaves', async () => {
  const [a, b] = await sides(2);
  b.qp.postRecv({ wrId: 1, sgList: [{ mr: b.mr, length: 1024 }] });
  const region = await a.pd.registerMr(new Uint8Array(4096).fill(A), { access: {} });
  a.valve.shut();
  a.qp.postSend({ wrId: 1, opcode: 'SEND', sgList: [{ mr: region, length: 64 }], signaled: true });
  await pass(5);
  await region.deregister();
  a.valve.open();
  await a.cq.next();
  expect([...b.memory.subarray(0, 64)].filter((byte) => byte !== A && byte !== 0)).toEqual([]);
});
