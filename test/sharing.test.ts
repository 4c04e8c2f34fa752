/** Several programs at one address, with one of them killed at any time: docs/sharing.md. */
import { connect } from '@node-roce/rdmacm';
import { openDevice } from '@node-roce/verbs-api';
import { afterEach, describe, expect, test } from 'vitest';
import { type Member, storm } from './sharing/members.ts';

const PORT = 24_000 + (process.pid % 800);
const host = (n: number) => `127.81.${process.pid & 0xff}.${n}`;
const KILLS = Number(process.env.ROCE_SHARING_KILLS ?? 4);

const running: Member[] = [];
afterEach(async () => {
  for (const member of running.splice(0)) if (member.child.exitCode === null) member.child.kill('SIGKILL');
});

describe('four programs at one address', { tags: ['slow'] }, () => {
  test(`${KILLS} are killed, one after the other: the others’ connections do not notice`, async () => {
    const address = host(1);
    const servicePorts = [7001, 7002, 7003, 7004];
    const setting = { address, udpPort: PORT, servicePorts, pace: 10 };
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

    // The listeners of all are found, also by a device of another address.
    await using device = await openDevice({ address: host(2), port: PORT, link: 'udp' });
    for (const [index, port] of servicePorts.entries()) {
      const connection = await connect(`${address}:${port}`, { source: host(2), device });
      await connection.send(new Uint8Array(Float64Array.of(0, -1).buffer));
      const [, who] = new Float64Array((await connection.receive())!.slice().buffer);
      expect(who).toBe(index);
      await connection.close();
    }

    for (const member of members) await member.close();
    const alone = await openDevice({ address, port: PORT, link: 'udp' });
    await alone.close();
  }, 120_000);
});
