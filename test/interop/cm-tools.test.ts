/** The programs of rdmacm-utils that connect: ucmatose, rdma_client, rdma_xclient and cmtime, as client and as server, against ids of ours. */
import type { RoceError } from '@node-roce/verbs-api';
import { describe, expect, inject, test } from 'vitest';
import {
  type CmCase,
  cmCases,
  equip,
  guestListens,
  type IpVersion,
  initiator,
  listener,
  messageOf,
  placeOf,
  type Side,
} from './harness/cm-side.ts';
import { Guest } from './harness/guest.ts';
import { onRelease } from './harness/release.ts';

const guest = new Guest(inject('guest9000'));
const { address } = guest;

/** A port of its own for each case. */
let port = 7500;

/** Both ends of a case, by IP version. */
interface Place {
  ours: string;
  theirs: string;
  version: IpVersion;
}
type Play = (place: Place) => Promise<void>;

/** The tool has ended as it should. */
async function ended(tool: ReturnType<Guest['exec']>, ...says: string[]): Promise<void> {
  const { code, stdout, stderr } = await tool;
  expect({ code, stdout, stderr }).toMatchObject({ code: 0 });
  for (const text of says) expect(stdout).toContain(text);
}

/** A request that was flushed as the peer disconnected: these tools do so as soon as they have their message. */
const flushed = (error: RoceError) => expect(error.attribute).toBe('WR_FLUSH_ERR');

/** ucmatose in a port space: the server sends first, then the client, then the server disconnects. */
function ucmatose(portSpace: 'TCP' | 'IB'): Record<'client' | 'server', Play> {
  const [count, size] = [5, 300];
  const space = portSpace === 'IB' ? '-P ib' : '';
  return {
    async server(place) {
      const connections = 4;
      await using listening = await listener(place, port, { portSpace });
      const family = place.version === 6 ? '-f ip6' : '';
      const tool = guest.exec(
        `ucmatose ${space} ${family} -s ${place.ours} -p ${port} -C ${count} -S ${size} -c ${connections}`,
      );
      const sides: Side[] = [];
      for (let i = 0; i < connections; i++) {
        const side = await equip(await listening.getRequest(), count, size);
        sides.push(side);
        await side.id.accept();
      }
      await Promise.all(
        sides.map(async (side) => {
          for (let i = 0; i < count; i++) await side.qp.send(messageOf(side));
          for (const arrived of await Promise.all(side.arriving)) expect(arrived.byteLen).toBe(size);
          await side.id.disconnect();
          await side.id.destroy();
        }),
      );
      await ended(tool, 'data transfers complete', 'return status 0');
    },
    async client(place) {
      const bind = place.version === 6 ? `-f ip6 -b ${place.theirs}` : `-b ${place.theirs}`;
      const tool = guest.exec(`ucmatose ${space} ${bind} -p ${port} -C ${count} -S ${size}`);
      await guestListens(guest, port);
      const id = await initiator(place, port, { portSpace });
      const side = await equip(id, count, size);
      await id.connect({ responderResources: 1, initiatorDepth: 1, retryCount: 5 });
      for (const arrived of await Promise.all(side.arriving)) expect(arrived.byteLen).toBe(size);
      for (let i = 0; i < count; i++) await side.qp.send(messageOf(side));
      await id.disconnected;
      await id.destroy();
      await ended(tool, 'return status 0');
    },
  };
}

const PLAYS: Record<string, Record<string, Play>> = {
  ucmatose: ucmatose('TCP'),
  'ucmatose -P ib': ucmatose('IB'),

  'rdma_client, rdma_server': {
    async server(place) {
      await using listening = await listener(place, port);
      const tool = guest.exec(`rdma_client -s ${place.ours} -p ${port}`);
      const side = await equip(await listening.getRequest(), 1, 16);
      await side.id.accept();
      expect((await side.arriving[0]).byteLen).toBe(16);
      await side.qp.send(messageOf(side)).catch(flushed);
      await side.id.disconnected;
      await side.id.destroy();
      await ended(tool, 'rdma_client: end 0');
    },
    async client(place) {
      const tool = guest.exec(`rdma_server -s ${place.theirs} -p ${port}`);
      await guestListens(guest, port);
      const id = await initiator(place, port);
      const side = await equip(id, 1, 16);
      await id.connect();
      await side.qp.send(messageOf(side));
      expect((await side.arriving[0]).byteLen).toBe(16);
      await id.disconnect().catch(() => {}); // The tool may be quicker.
      await id.destroy();
      await ended(tool, 'rdma_server: end 0');
    },
  },

  // With -c r, RC; XRC is below. Our server takes the message from a shared receive queue.
  rdma_xclient: {
    async server(place) {
      await using listening = await listener(place, port);
      const pd = await listening.device.allocPd();
      const queue = await pd.createSrq({ maxWr: 4, maxSge: 1 });
      const mr = await pd.registerMr(new Uint8Array(64));
      queue.postRecv({ wrId: 7n, sgList: [{ mr }] });
      const tool = guest.exec(`rdma_xclient -s ${place.ours} -p ${port} -c r`);
      const side = await equip(await listening.getRequest(), 0, 16, { pd, queue });
      await side.id.accept();
      await expect.poll(() => side.qp.recvCq.poll(1)).toMatchObject([{ wrId: 7n, byteLen: 16 }]);
      await side.id.disconnected;
      await side.id.destroy();
      await ended(tool, 'rdma_xclient: end 0');
    },
  },

  rdma_xserver: {
    async client(place) {
      const tool = guest.exec(`rdma_xserver -p ${port} -c r`);
      await guestListens(guest, port);
      const id = await initiator(place, port);
      const side = await equip(id, 1, 16);
      await id.connect();
      await side.qp.send(messageOf(side)).catch(flushed);
      await id.disconnected;
      await id.destroy();
      await ended(tool, 'rdma_xserver: end 0');
    },
  },
};

const roles = Object.fromEntries(Object.entries(PLAYS).map(([tool, plays]) => [tool, Object.keys(plays)]));

// It listens at 0.0.0.0, whatever is asked for.
const can = ({ tool, version }: CmCase) => tool !== 'rdma_xserver' || version === 4;

test.each([...cmCases(roles, can)])(
  '$tool: we are the $role, IPv$version',
  async ({ tool, role, version }) => {
    port++;
    await PLAYS[tool][role]({ ...placeOf(address, version), version });
  },
);

test('XRC is refused by rxe itself: rdma_xclient -c x does not get as far as to us', async () => {
  const { code, stdout, stderr } = await guest.exec(`rdma_xclient -s ${address.hostIp4} -p ${++port} -c x`);
  expect({ code, output: stdout + stderr }).toEqual({
    code: 255,
    output: expect.stringMatching(/rdma_(create_ep|getaddrinfo).*\n/),
  });
});

// cmtime of rdma-core 56 meets its own server over TCP first. Not a skip: a suite that skips has failed.
const releases = onRelease({ debian12: ['debian12'], debian13: [] });
describe.each(releases)('cmtime of %s: 100 connections at once', () => {
  const count = 100;

  test('to us, each ended by the tool', async () => {
    port++;
    await using listening = await listener(placeOf(address, 4), port);
    const tool = guest.exec(`cmtime -s ${address.hostIp4} -p ${port} -c ${count}`, { timeout: 60_000 });
    const ends: Promise<void>[] = [];
    let made = 0;
    const serving = (async () => {
      for await (const id of listening) {
        const life = async () => {
          await equip(id, 1, 16);
          await id.accept();
          made++;
          await id.disconnected;
          await id.destroy();
        };
        ends.push(life());
      }
    })();
    const { code, stdout, stderr } = await tool;
    expect({ code, stderr }).toMatchObject({ code: 0 });
    expect(stdout).toMatch(/connect +:/);
    await Promise.all(ends);
    await listening.destroy();
    await serving;
    expect(made).toBe(count);
  });

  test('of ours to the tool, each ended by us', async () => {
    port++;
    const place = placeOf(address, 4);
    // As a server it does not end by itself.
    const tool = guest.spawn(`cmtime -b ${place.theirs} -p ${port} -c ${count}`);
    await guestListens(guest, port);
    const ids = await Promise.all(
      Array.from({ length: count }, async () => {
        const id = await initiator(place, port);
        await equip(id, 1, 16);
        return id;
      }),
    );
    await Promise.all(ids.map((id) => id.connect({ responderResources: 1, initiatorDepth: 1 })));
    await Promise.all(ids.map((id) => id.disconnect()));
    for (const id of ids) await id.destroy();
    expect(tool.output).toBe('');
    tool.signal('SIGKILL');
    await tool.exited.catch(() => {});
  });
});
