/** rping of rdmacm-utils against `roce rping` and `roce ping`, either as client and as server. */
import { openDevice } from '@node-roce/verbs-api';
import { expect, inject, test } from 'vitest';
import { type CmCase, cmCases, guestListens, placeOf } from './harness/cm-side.ts';
import { Guest } from './harness/guest.ts';
import { RoceCommand } from './harness/roce.ts';

const guest = new Guest(inject('guest9000'));

/** The text that the tool prints for ping `n` of 100 bytes. */
function pingData(n: number, size = 100): string {
  const heading = `rdma-ping-${n}: `;
  let text = heading;
  for (let i = heading.length; i < size - 1; i++)
    text += String.fromCharCode(65 + ((n + i - heading.length) % 58));
  return text;
}
const PINGS = [0, 1, 2, 3, 4];

/** A port of its own for each case. */
let port = 7200;

interface Place {
  ours: string;
  theirs: string;
}
type Play = (place: Place) => Promise<void>;

const OPTIONS = ['-C', '5', '-S', '100', '-v', '-V'];
const roceClient = ({ ours, theirs }: Place) =>
  new RoceCommand(['rping', '-c', '-a', theirs, '-I', ours, '-p', `${port}`, ...OPTIONS]);

async function expectPings(client: RoceCommand): Promise<void> {
  const mine = await client.exited;
  expect(mine).toMatchObject({ code: 0, stderr: '' });
  expect(mine.stdout.trim().split('\n')).toEqual(PINGS.map((n) => `ping data: ${pingData(n)}`));
}

async function rpingClient({ ours }: Place): Promise<void> {
  const { code, stdout, stderr } = await guest.exec(`rping -c -a ${ours} -p ${port} ${OPTIONS.join(' ')}`);
  expect({ code, stdout, stderr }).toMatchObject({ code: 0 });
  for (const n of PINGS) expect(stdout).toContain(`ping data: ${pingData(n)}`);
}

const PLAYS: Record<string, Record<string, Play>> = {
  'rping -v -V': {
    async client(place) {
      const command = `rping -s -a ${place.theirs} -p ${port} -C 5 -S 100 -v`;
      const server = guest.exec(command, { timeout: 20_000 });
      await guestListens(guest, port);
      await using client = roceClient(place);
      await expectPings(client);
      const { code, stdout, stderr } = await server;
      expect({ code, stderr }).toMatchObject({ code: 0 });
      for (const n of PINGS) expect(stdout).toContain(`server ping data: ${pingData(n)}`);
    },
    async server(place) {
      const listen = ['-a', place.ours, '-p', `${port}`];
      await using server = new RoceCommand(['rping', '-s', ...listen, '-S', '100', '-v']);
      await server.says('waiting');
      await rpingClient(place);
      const mine = await server.exited;
      expect(mine.code, mine.stderr).toBe(0);
      expect(mine.stdout.trim().split('\n')).toEqual(PINGS.map((n) => `server ping data: ${pingData(n)}`));
    },
  },

  'rping -P': {
    async client(place) {
      const server = guest.spawn(`rping -s -P -a ${place.theirs} -p ${port} -S 100 -v`);
      try {
        await guestListens(guest, port);
        for (let i = 0; i < 3; i++) {
          await using client = roceClient(place);
          await expectPings(client);
        }
      } finally {
        server.kill();
      }
    },
    async server(place) {
      const listen = ['-a', place.ours, '-p', `${port}`];
      await using server = new RoceCommand(['rping', '-s', '-P', ...listen, '-S', '100', '-v']);
      await server.says('waiting');
      await rpingClient(place);
      await Promise.all([rpingClient(place), rpingClient(place)]);
      server.interrupt();
      const mine = await server.exited;
      expect(mine.code, mine.stderr).toBe(0);
      expect(mine.stdout.trim().split('\n')).toHaveLength(3 * PINGS.length);
    },
  },

  'rping, refused': {
    async client({ ours, theirs }) {
      const target = ['-a', theirs, '-I', ours, '-p', `${port}`];
      await using client = new RoceCommand(['rping', '-c', ...target, '-C', '1']);
      const mine = await client.exited;
      expect(mine.code).toBe(1);
      expect(mine.stderr).toContain(`no program listens at port ${port} of ${theirs}`);
    },
    // A device that no program has used for connections: as with Linux, its adapter answers.
    async server({ ours }) {
      await using _device = await openDevice({ address: ours });
      const began = performance.now();
      const refused = await guest.exec(`rping -c -a ${ours} -p ${port} -C 1 -v`);
      expect(refused.code).toBe(255);
      expect(refused.stdout + refused.stderr).toContain('RDMA_CM_EVENT_REJECTED, error 8');
      // Linux asks a second time after 4.6 s (6.1 s on 6.1): the first answer counted.
      expect(performance.now() - began).toBeLessThan(4000);
    },
  },

  'roce ping': {
    async client({ ours, theirs }) {
      const server = guest.exec(`rping -s -a ${theirs} -p ${port} -S 100`, { timeout: 20_000 });
      await guestListens(guest, port);
      const target = ['-c', '3', '-i', '0.05', '-p', `${port}`, '-I', ours, theirs];
      await using client = new RoceCommand(['ping', ...target]);
      const mine = await client.exited;
      expect(mine).toMatchObject({ code: 0, stderr: '' });
      expect(mine.stdout).toMatch(/^3 packets transmitted, 3 received, 0% packet loss, time \d+ms$/m);
      const { code, stdout, stderr } = await server;
      expect({ code, stdout, stderr }).toMatchObject({ code: 0 });
    },
  },
};

const roles = Object.fromEntries(Object.entries(PLAYS).map(([tool, plays]) => [tool, Object.keys(plays)]));

test.each([...cmCases(roles)])(
  '$tool: we are the $role, IPv$version',
  async ({ tool, role, version }: CmCase) => {
    port++;
    await PLAYS[tool][role](placeOf(guest.address, version));
  },
);
