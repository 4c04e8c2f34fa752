/** The datagram programs of rdmacm-utils against ids of ours: udaddy and mckey. */
import { setTimeout as sleep } from 'node:timers/promises';
import { CmId } from '@node-roce/rdmacm';
import { GRH_BYTES } from '@node-roce/verbs-api';
import { describe, expect, inject, test } from 'vitest';
import { cmCases, equip, guestListens, initiator, listener, messageOf, placeOf } from './harness/cm-side.ts';
import { Guest } from './harness/guest.ts';
import { onRelease } from './harness/release.ts';

const guest = new Guest(inject('guest9000'));
const { address } = guest;

/** The port of udaddy, which can't be chosen. */
const UDADDY_PORT = 7174;
let port = 7800;

interface Place {
  ours: string;
  theirs: string;
}
const [COUNT, SIZE] = [5, 200];
const portSpace = 'UDP';

const PLAYS: Record<string, Record<string, (place: Place) => Promise<void>>> = {
  udaddy: {
    async server(place) {
      await using listening = await listener(place, UDADDY_PORT, { portSpace });
      const tool = guest.exec(`udaddy -s ${place.ours} -C ${COUNT} -S ${SIZE}`);
      const side = await equip(await listening.getRequest(), COUNT, SIZE);
      await side.id.accept();
      const arrived = await Promise.all(side.arriving);
      expect(arrived.map(({ byteLen }) => byteLen)).toEqual(Array(COUNT).fill(SIZE + GRH_BYTES));
      // Its first datagram has the address for answers.
      const route = side.id.device.addressFromWc(arrived[0] as never, side.mr.bytes(0, GRH_BYTES));
      const ah = await side.id.createAh(route);
      const ud = { ah, remoteQpn: arrived[0].immData!, remoteQkey: 0x0123_4567 };
      for (let i = 0; i < COUNT; i++) await side.qp.send(messageOf(side), { ud });
      const { code, stdout, stderr } = await tool;
      expect({ code, stdout, stderr }).toMatchObject({ code: 0 });
      expect(stdout).toContain('return status 0');
      await side.id.destroy();
    },
    async client(place) {
      const tool = guest.exec(`udaddy -b ${place.theirs} -C ${COUNT} -S ${SIZE}`);
      await guestListens(guest, UDADDY_PORT);
      const id = await initiator(place, UDADDY_PORT, { portSpace });
      const side = await equip(id, COUNT, SIZE);
      await id.connect();
      for (let i = 0; i < COUNT; i++)
        await side.qp.send(messageOf(side), { ud: id.peer!, immData: side.qp.qpNum });
      const arrived = await Promise.all(side.arriving);
      expect(arrived.map(({ byteLen }) => byteLen)).toEqual(Array(COUNT).fill(SIZE + GRH_BYTES));
      await id.destroy();
      const { code, stdout, stderr } = await tool;
      expect({ code, stdout, stderr }).toMatchObject({ code: 0 });
      expect(stdout).toContain('return status 0');
    },
  },
  'a datagram service that nobody offers': {
    async client(place) {
      const id = await initiator(place, ++port, { portSpace });
      await equip(id, 1, 16);
      await expect(id.connect()).rejects.toMatchObject({ reason: 'UNSUPPORTED' });
      await id.destroy();
    },
  },
};

const roles = Object.fromEntries(Object.entries(PLAYS).map(([tool, plays]) => [tool, Object.keys(plays)]));

test.each([...cmCases(roles)])('$tool: we are the $role, IPv$version', async ({ tool, role, version }) => {
  await PLAYS[tool][role](placeOf(address, version));
});

describe('mckey', () => {
  const group = '239.77.1.10';
  const [count, size] = [5, 100];

  test('receives our datagrams to a group', async () => {
    const tool = guest.exec(`mckey -m ${group} -b ${address.ip4} -C ${count} -S ${size}`, {
      timeout: 40_000,
    });
    await guest.must(
      `for i in $(seq 80); do ip maddr show dev eth0 | grep -q ${group} && exit 0; sleep 0.1; done; exit 1`,
    );
    await using id = new CmId({ portSpace: 'UDP' });
    await id.bindAddr(address.hostIp4);
    const side = await equip(id, 1, size);
    const ud = await id.joinMulticast(group, { sendOnly: true });
    await sleep(3500); // The tool attaches its queue pair after the join, and waits 3 s.
    for (let i = 0; i < count; i++) await side.qp.send(messageOf(side), { ud, immData: side.qp.qpNum });
    const { code, stdout, stderr } = await tool;
    expect({ code, stdout, stderr }).toMatchObject({ code: 0 });
    expect(stdout).toContain('return status 0');
  });

  test('is heard by our member of the group', async () => {
    await using id = new CmId({ portSpace: 'UDP' });
    await id.bindAddr(address.hostIp4);
    const side = await equip(id, count, size);
    await id.joinMulticast(group);
    // On Linux 6.12 mckey sends some of its messages, and now and then none: see multicast.test.ts.
    const expected = side.arriving.slice(0, onRelease({ debian12: count, debian13: 1 }));
    for (const message of side.arriving) message.catch(() => {}); // The others end with the queue pair.
    let heard = false;
    const arrived = Promise.all(expected).finally(() => {
      heard = true;
    });
    for (let i = 0; i < onRelease({ debian12: 1, debian13: 20 }) && !heard; i++)
      await guest.must(`mckey -m ${group} -b ${address.ip4} -C ${count} -S ${size} -s`, { timeout: 40_000 });
    for (const { byteLen } of await arrived) expect(byteLen).toBe(size + GRH_BYTES);
    await id.leaveMulticast(group);
  });
});
