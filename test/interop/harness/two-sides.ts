/** Programs of this machine on two sides: on `roce run` here, and on rxe in the guest, which sees this machine's file system. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DeviceServer } from '@node-roce/device';
import { afterAll, beforeAll, expect } from 'vitest';
import { listening } from '../../programs/programs.ts';
import { PATIENCE } from '../../tiers/patience.mjs';
import { GID_INDEX, type Guest } from './guest.ts';
import { mountHost, unmountHost } from './host-root.ts';
import { type Playing, startHere, startThere } from './programs.ts';

/** Of a quiet machine: commands in the guest get more by `Guest.exec`. */
const MINUTE = 60_000;
export const MINUTES = MINUTE * PATIENCE;

/** Where a program runs. */
export interface Side {
  readonly address: string;
  /** Of the RDMA device. */
  readonly name: string;
  readonly gidIndex: number;
  /** Starts a command line of a shell. */
  start(command: string): Playing;
  /** Resolves once a program listens by TCP. */
  listensTcp(port: number): Promise<unknown>;
  /** Resolves once a program listens by rdma_cm. */
  listensRdma(): Promise<unknown>;
}

/** Both sides for the tests of one file. */
export interface TwoSides {
  /** Both sides see it under this name, and may write to it. */
  readonly folder: string;
  readonly HERE: Side;
  readonly THERE: Side;
  /** Resolves once nothing of a program is left at the device here. */
  gone(): Promise<void>;
  /** Expects at least so many packets of RoCE from each side while `play` runs. */
  carried(packets: number, play: () => Promise<unknown>): Promise<void>;
}

/** Both sides, there from before the first test of the file to after its last one. */
export function twoSides(guest: Guest): TwoSides {
  const { hostIp4, ip4 } = guest.address;
  const folder = mkdtempSync(join(tmpdir(), 'roce-two-sides-'));
  let device: DeviceServer;
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

  const listensThere = (command: string) =>
    guest.must(`until ${command}; do sleep 0.1; done`, { timeout: 2 * MINUTE });
  const sent = async () =>
    [(await device.report()).counters.sentPackets, (await guest.counters()).sent_pkts].map(Number);

  return {
    folder,
    HERE: {
      address: hostIp4,
      name: 'roce0',
      gidIndex: 0,
      start: (command) => startHere(device, 'sh', '-c', `exec ${command}`),
      listensTcp: listening,
      listensRdma: () => expect.poll(() => device.ids.listening, { timeout: 2 * MINUTES }).toBeGreaterThan(0),
    },
    THERE: {
      address: ip4,
      name: 'rxe0',
      gidIndex: GID_INDEX[4],
      start: (command) => startThere(guest, inGuest(command), 10 * MINUTE),
      listensTcp: (port) => listensThere(`ss -ltn | grep -q :${port}`),
      listensRdma: () => listensThere('rdma resource show cm_id | grep -q LISTEN'),
    },
    gone: () =>
      expect
        .poll(() => ({ ...device.ids, ...device.status }), { timeout: 2 * MINUTES })
        .toEqual({ ids: 0, listening: 0, programs: 0, objects: 0 }),
    carried: async (packets, play) => {
      const before = await sent();
      await play();
      const after = await sent();
      for (const [side, count] of after.entries())
        expect(count - before[side], side === 0 ? 'sent here' : 'sent by rxe').toBeGreaterThanOrEqual(
          packets,
        );
    },
  };
}

/** Resolves once a program is ready, or has ended. */
export const ready = ({ ended }: Playing, isReady: Promise<unknown>) => Promise.race([ended, isReady]);

/** Waits for a client, then for its server, which ends with a client that fails. */
export async function bothEndWell(server: Playing, client: Playing, pattern: RegExp): Promise<void> {
  const called = await client.ended;
  if (called.code !== 0) server.kill();
  const served = await server.ended;
  const output = `${called.output}its server: ${served.output}`;
  expect([called.code, served.code], output).toEqual([0, 0]);
  expect(called.output).toMatch(pattern);
}
