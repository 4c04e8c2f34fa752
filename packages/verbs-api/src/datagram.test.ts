/** UD and GSI queue pairs, address handles and groups, as a program meets them. */
import { MemoryNetwork } from '@node-roce/link';
import { describe, expect, test } from 'vitest';
import { openSide, pattern, type Side } from '../testing/pair.ts';
import { GRH_BYTES, GSI_QKEY, type SendWr } from './index.ts';

const QKEY = 0x1111_1111;

async function openDatagrams(addresses = ['10.0.0.1', '10.0.0.2']) {
  const network = new MemoryNetwork();
  const sides: Side[] = [];
  for (const address of addresses) {
    const side = await openSide(network, address, { type: 'UD' });
    await side.qp.activate();
    sides.push(side);
  }
  return {
    sides,
    async [Symbol.asyncDispose]() {
      for (const { device } of sides) await device.close();
    },
  };
}

const receive = (side: Side, wrId = 0, length = 1024) =>
  side.qp.postRecv({ wrId, sgList: [{ mr: side.mr, offset: wrId * 2048, length }] });

describe('UD', () => {
  test('a datagram arrives behind 40 bytes of GRH, and the way back follows from it', async () => {
    for (const addresses of [
      ['10.0.0.1', '10.0.0.2'],
      ['fd00::1', 'fd00::2'],
    ]) {
      await using pair = await openDatagrams(addresses);
      const [a, b] = pair.sides;
      receive(b, 1);
      a.memory.set(pattern(100));
      const ah = await a.pd.createAh({ gid: addresses[1], trafficClass: 0x68, hopLimit: 3 });
      const ud = { ah, remoteQpn: b.qp.qpNum, remoteQkey: QKEY };
      const sgList = [{ mr: a.mr, length: 100 }];
      a.qp.postSend({ opcode: 'SEND_WITH_IMM', immData: 7, ud, sgList, signaled: true, wrId: 5 });
      expect(await a.cq.next()).toMatchObject({ status: 'SUCCESS', opcode: 'SEND', wrIdNumber: 5 });
      const wc = await b.cq.next();
      expect(wc).toMatchObject({
        status: 'SUCCESS',
        byteLen: GRH_BYTES + 100,
        immData: 7,
        srcQp: a.qp.qpNum,
        hasGrh: true,
      });
      expect(b.memory.subarray(2048 + GRH_BYTES, 2048 + GRH_BYTES + 100)).toEqual(pattern(100));

      const back = await b.pd.createAhFromWc(wc, b.memory.subarray(2048));
      expect(back.attr.grh).toMatchObject({
        dgid: a.device.gids[0].gid,
        sgidIndex: 0,
        trafficClass: 0x68,
      });
      receive(a);
      b.qp.postSend({ opcode: 'SEND', ud: { ah: back, remoteQpn: wc.srcQp, remoteQkey: QKEY } });
      expect(await a.cq.next()).toMatchObject({ byteLen: GRH_BYTES, srcQp: b.qp.qpNum });
      await ah.destroy();
      await ah.destroy();
    }
  });

  test('a datagram with a wrong Q_Key is silently dropped; the next one is received', async () => {
    await using pair = await openDatagrams();
    const [a, b] = pair.sides;
    receive(b);
    const ah = await a.pd.createAh({ gid: '10.0.0.2' });
    const send = (remoteQkey: number) =>
      a.qp.postSend({ opcode: 'SEND', ud: { ah, remoteQpn: b.qp.qpNum, remoteQkey }, signaled: true });
    send(QKEY + 1);
    send(QKEY);
    expect([await a.cq.next(), await a.cq.next()].map((wc) => wc.status)).toEqual(['SUCCESS', 'SUCCESS']);
    expect((await b.cq.next()).byteLen).toBe(GRH_BYTES);
    expect(b.qp.recvPending).toBe(0);
    // The top bit stands for the sender's own Q_Key.
    await a.qp.modify({ qkey: 0x77 });
    await b.qp.modify({ qkey: 0x77 });
    receive(b);
    send(0x8000_0000);
    expect((await b.cq.next()).status).toBe('SUCCESS');
  });

  test('more than the path MTU fails; SQE, and back', async () => {
    await using pair = await openDatagrams();
    const [a, b] = pair.sides;
    const ah = await a.pd.createAh({ gid: '10.0.0.2' });
    const ud = { ah, remoteQpn: b.qp.qpNum, remoteQkey: QKEY };
    a.qp.postSend([
      { opcode: 'SEND', ud, sgList: [{ mr: a.mr, length: 1025 }], wrId: 1 },
      { opcode: 'SEND', ud, wrId: 2 },
    ]);
    expect(await a.cq.next()).toMatchObject({ status: 'LOC_LEN_ERR', wrIdNumber: 1 });
    expect(await a.cq.next()).toMatchObject({ status: 'WR_FLUSH_ERR', wrIdNumber: 2 });
    expect(a.qp.state).toBe('SQE');
    await a.qp.modify({ qpState: 'RTS' });
    receive(b);
    a.qp.postSend({ opcode: 'SEND', ud });
    expect((await b.cq.next()).status).toBe('SUCCESS');
  });

  test.each<[string, Partial<SendWr>, string]>([
    ['no destination', {}, 'ud'],
    ['a QPN of 25 bits', { ud: { ah: {} as never, remoteQpn: 2 ** 24, remoteQkey: 0 } }, 'ud.remoteQpn'],
    ['a Q_Key of 33 bits', { ud: { ah: {} as never, remoteQpn: 1, remoteQkey: 2 ** 32 } }, 'ud.remoteQkey'],
  ])('%s is refused', async (_name, wr, attribute) => {
    await using pair = await openDatagrams(['10.0.0.1']);
    expect(() => pair.sides[0].qp.postSend({ opcode: 'SEND', ...wr } as SendWr)).toThrow(
      expect.objectContaining({ errno: 'EINVAL', attribute }),
    );
  });

  test('handles: no address of the kind; calls of the other service are refused by name', async () => {
    await using pair = await openDatagrams();
    const [a, b] = pair.sides;
    await expect(a.pd.createAh({ gid: 'fd00::1' })).rejects.toMatchObject({ attribute: 'gid' });
    await expect(a.qp.connect(b.qp.connectionData())).rejects.toMatchObject({ attribute: 'type' });
    const connected = await a.pd.createQp({ sendCq: a.cq });
    await expect(connected.activate()).rejects.toMatchObject({ attribute: 'type' });
    await expect(connected.attachMcast('239.1.1.1')).rejects.toMatchObject({ errno: 'EINVAL' });
  });
});

test('GSI: one to a device, with the Q_Key that the specification gives it', async () => {
  const network = new MemoryNetwork();
  const a = await openSide(network, '10.0.0.1', { type: 'GSI' });
  const b = await openSide(network, '10.0.0.2', { type: 'GSI' });
  expect(a.qp.qpNum).toBe(1);
  await expect(a.pd.createQp({ type: 'GSI', sendCq: a.cq })).rejects.toMatchObject({ errno: 'EBUSY' });
  await a.qp.activate();
  await b.qp.activate();
  receive(b);
  const ah = await a.pd.createAh({ gid: '10.0.0.2' });
  a.memory.set(pattern(256));
  const sgList = [{ mr: a.mr, length: 256 }];
  a.qp.postSend({ opcode: 'SEND', ud: { ah, remoteQpn: 1, remoteQkey: GSI_QKEY }, sgList });
  expect(await b.cq.next()).toMatchObject({ byteLen: GRH_BYTES + 256, srcQp: 1, qpNum: 1 });
  expect(b.memory.subarray(GRH_BYTES, GRH_BYTES + 256)).toEqual(pattern(256));
  await a.device.close();
  await b.device.close();
});

test('groups: everyone who attached gets a copy, until he detaches', async () => {
  await using pair = await openDatagrams(['10.0.0.1', '10.0.0.2', '10.0.0.3']);
  const [a, b, c] = pair.sides;
  const group = '239.77.0.5';
  for (const side of [b, c]) {
    await side.qp.attachMcast(group);
    for (let i = 0; i < 2; i++) receive(side, i);
  }
  const ah = await a.pd.createAh({ gid: group });
  const ud = { ah, remoteQpn: 0xff_ffff, remoteQkey: QKEY };
  a.qp.postSend({ opcode: 'SEND', ud });
  for (const side of [b, c]) expect(await side.cq.next()).toMatchObject({ wrIdNumber: 0, srcQp: a.qp.qpNum });
  // The way back goes to the sender, from the device's own address.
  await expect(b.qp.close()).rejects.toMatchObject({ errno: 'EBUSY' });
  await b.qp.detachMcast(group);
  await expect(b.qp.detachMcast(group)).rejects.toMatchObject({ errno: 'EINVAL' });
  a.qp.postSend({ opcode: 'SEND', ud });
  expect(await c.cq.next()).toMatchObject({ wrIdNumber: 1 });
  expect(b.cq.poll()).toEqual([]);
  await b.qp.close();
  await expect(c.qp.attachMcast('10.0.0.9')).rejects.toMatchObject({ attribute: 'gid' });
});
