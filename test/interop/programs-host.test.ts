/** Programs that the guest's image does not have: this machine's, on rxe in the guest, and on `roce run` here. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DeviceServer } from '@node-roce/device';
import { afterAll, beforeAll, expect, inject, test } from 'vitest';
import { listening } from '../programs/programs.ts';
import { GID_INDEX, Guest } from './harness/guest.ts';
import { mountHost, unmountHost } from './harness/host-root.ts';
import { PATIENCE } from './harness/patience.ts';
import { type Playing, startHere, startThere } from './harness/programs.ts';

const MINUTES = 60_000 * PATIENCE;
const guest = new Guest(inject('guest9000'));
const { hostIp4, ip4 } = guest.address;
/** The guest sees it under the same name. */
const folder = mkdtempSync(join(tmpdir(), 'roce-programs-host-'));

let device: DeviceServer;
/** A command line in the guest, with the programs of this machine. */
let inGuest: (command: string) => string;

beforeAll(async () => {
  device = await DeviceServer.listen({ address: hostIp4, path: join(folder, 'device.sock') });
  inGuest = await mountHost(guest, folder);
});
afterAll(async () => {
  await unmountHost(guest);
  await device.close();
  rmSync(folder, { recursive: true });
});

/** Where a program runs: on `roce run` here, or on rxe. */
interface Side {
  readonly address: string;
  readonly gidIndex: number;
  start(command: string): Playing;
  /** Resolves once a program listens by TCP. */
  listensTcp(port: number): Promise<unknown>;
}

const HERE: Side = {
  address: hostIp4,
  gidIndex: 0,
  start: (command) => startHere(device, 'sh', '-c', `exec ${command}`),
  listensTcp: listening,
};
const THERE: Side = {
  address: ip4,
  gidIndex: GID_INDEX[4],
  start: (command) => startThere(guest, inGuest(command), 10 * MINUTES),
  listensTcp: (port) =>
    guest.must(`until ss -ltn | grep -q :${port}; do sleep 0.1; done`, { timeout: 2 * MINUTES }),
};

/** Waits for a client, then for its server, which ends with a client that fails. */
async function bothEndWell(server: Playing, client: Playing, pattern: RegExp): Promise<void> {
  const called = await client.ended;
  if (called.code !== 0) server.kill();
  const served = await server.ended;
  const output = `${called.output}its server: ${served.output}`;
  expect([called.code, served.code], output).toEqual([0, 0]);
  expect(called.output).toMatch(pattern);
}

/** Resolves once a program is ready, or has ended. */
const ready = ({ ended }: Playing, isReady: Promise<unknown>) => Promise.race([ended, isReady]);

/** Resolves once nothing of a program is left at the device here. */
const gone = () => expect.poll(() => device.ids, { timeout: 2 * MINUTES }).toEqual({ ids: 0, listening: 0 });

test.each([
  ['-p verbs -e msg', 'here', HERE, THERE],
  ['-p verbs -e msg', 'in the guest', THERE, HERE],
  ["-p 'verbs;ofi_rxm' -e rdm", 'here', HERE, THERE],
  ["-p 'verbs;ofi_rxd' -e rdm", 'here', HERE, THERE],
])('fi_pingpong %s, its server %s', { timeout: 10 * MINUTES }, async (kind, _, server, client) => {
  // By default, ofi_rxm creates a completion queue for 256 peers, which is too large for rxe. The index of a GID is for datagrams.
  const line = ({ gidIndex }: Side) =>
    `env FI_UNIVERSE_SIZE=2 FI_VERBS_GID_IDX=${gidIndex} fi_pingpong ${kind} -I 10 -S 4096 -c`;
  const serving = server.start(line(server));
  // The port of its control connection.
  await ready(serving, server.listensTcp(47_592));
  await bothEndWell(serving, client.start(`${line(client)} ${server.address}`), /^4k +10 /m);
  await gone();
});
