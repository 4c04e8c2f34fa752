/** Several programs at one address, with one of them killed at any time: docs/sharing.md. */
// @module-tag slow
import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import { connect } from '@node-roce/rdmacm';
import { openDevice } from '@node-roce/verbs-api';
import { afterEach, describe, expect, test } from 'vitest';
import { busyFlows, Member, type Setting, storm } from './sharing/members.ts';

const PORT = 24_000 + (process.pid % 800);
const host = (n: number) => `127.81.${process.pid & 0xff}.${n}`;
const KILLS = Number(process.env.ROCE_SHARING_KILLS ?? 4);

const address = host(1);
const setting: Setting = { address, udpPort: PORT, servicePorts: [7001, 7002, 7003, 7004], pace: 10 };

const running: Member[] = [];
afterEach(async () => {
  for (const member of running.splice(0)) if (member.child.exitCode === null) member.child.kill('SIGKILL');
});

/** Each program answers at its port, also a device of another address. */
async function expectFound({ address, servicePorts }: Setting, indexes = [...servicePorts.keys()]) {
  await using device = await openDevice({ address: host(2), port: PORT, link: 'udp' });
  for (const index of indexes) {
    const target = `${address}:${servicePorts[index]}`;
    const connection = await connect(target, { source: host(2), device });
    await connection.send(new Uint8Array(Float64Array.of(0, -1).buffer));
    const [, who] = new Float64Array((await connection.receive())!.slice().buffer);
    expect(who).toBe(index);
    await connection.close();
  }
}

/** Connections between the programs of these indexes were used since the last look, and none ended. */
async function expectUndisturbed(members: readonly Member[]) {
  const flows = await busyFlows(members, ({ peer }) => members.some(({ index }) => index === peer));
  for (const { index } of members) expect(flows.map(({ peer }) => peer)).toContain(index);
  expect(flows.filter(({ error }) => error !== undefined)).toEqual([]);
}

async function start(setting: Setting, indexes: readonly number[]): Promise<Member[]> {
  const members = await Promise.all(indexes.map((index) => Member.start(index, setting)));
  running.push(...members);
  return members;
}

describe('four programs at one address', () => {
  test(`${KILLS} are killed, one after the other: the others’ connections do not notice`, async () => {
    const { members, rounds } = await storm({ ...setting, connections: 16, kills: KILLS, period: 1000 });
    running.push(...members);
    for (const { killed, flows } of rounds) {
      expect(
        flows.filter(({ error, rounds }) => error !== undefined || rounds === 0),
        `kill of ${killed}`,
      ).toEqual([]);
      // Of the 16 connections of each to the others, those among the three.
      expect(flows.length).toBeGreaterThan(50);
      const retransmitted = flows.reduce((sum, flow) => sum + flow.retransmitted, 0);
      expect(retransmitted, `kill of ${killed}`).toBeLessThanOrEqual(1);
    }

    await expectFound(setting);
    for (const member of members) await member.close();
    const alone = await openDevice({ address, port: PORT, link: 'udp' });
    await alone.close();
  });

  test('all at the same time, and one killed at any moment of its opening: the others go on', async () => {
    const members = await start(setting, [0, 1, 2]);
    for (const { index } of members.slice(1)) await members[0].call('connectTo', index, 2);
    await members[1].call('connectTo', 2, 2);
    for (let i = 0; i < 8; i++) {
      const { member, opening } = Member.begin(3, setting);
      running.push(member);
      await opening;
      await sleep(i * 6);
      await member.kill();
      await expectUndisturbed(members);
    }
    members.push(...(await start(setting, [3])));
    await expectFound(setting);
    for (const member of members) await member.close();
    await (await openDevice({ address, port: PORT, link: 'udp' })).close();
  });

  test('one that is stopped holds up nobody but those who ask it', async () => {
    const members = await start(setting, [0, 1, 2]);
    await members[0].call('connectTo', 1, 4);
    await members[0].call('connectTo', 2, 4);
    members[2].child.kill('SIGSTOP');
    await expectUndisturbed(members.slice(0, 2));
    members.push(...(await start(setting, [3])));
    await expectFound(setting, [0, 1, 3]);
    await expectUndisturbed(members.slice(0, 2));
    members[2].child.kill('SIGCONT');
    await expectFound(setting);
    await expectUndisturbed(members.slice(0, 2));
    for (const member of members) await member.close();
  });

  test.each(['first', 'second'])(
    'the %s without file descriptors fails with a code of its own, and leaves nothing open',
    async (role) => {
      const program = join(import.meta.dirname, 'sharing/descriptors.mjs');
      const line = `ulimit -n 256 && exec ${process.execPath} ${program} ${address} ${PORT} ${role}`;
      const { stdout } = await promisify(execFile)('bash', ['-c', line]);
      const { codes, leaks, opened } = JSON.parse(stdout);
      expect({ leaks, opened }).toEqual({ leaks: [], opened: true });
      expect(Object.keys(codes)).toEqual(['ERR_ROCE_NO_DESCRIPTORS']);
      expect(codes.ERR_ROCE_NO_DESCRIPTORS).toBeGreaterThan(20);
    },
  );
});
