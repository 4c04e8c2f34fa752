/**
 * Automatic path migration (IBTA vol 1 §17.2.8) under traffic: the path in use is cut, or left by a program, in the middle of messages, back
 * and forth between two paths. Nothing is lost, nothing is delivered twice, and of each packet the oracle
 * (sim/migration-oracle.ts, which lists its assertions) finds right: MigReq, the path, the continuity of PSNs; of each event its cause, once;
 * that a path is given up when its own retries and timeouts are used up, and no sooner.
 *
 * More of it: ROCE_SIM_SEEDS=4 ROCE_SIM_MIGRATIONS=100 npx vitest run test/sim/migration (64 MiB each).
 */
import { bthPsn, opcodeInfo } from '@node-roce/wire';
import { describe, expect, test } from 'vitest';
import { JudgedPair, type MigrationRun, runMigration, TIMEOUTS } from './run-migration.ts';

const SEEDS = Number(process.env.ROCE_SIM_SEEDS ?? 2);
const MIGRATIONS = Number(process.env.ROCE_SIM_MIGRATIONS ?? 6);
const BYTES = Math.floor((64 * 1024 * 1024 * MIGRATIONS) / 100);

describe.each(['retries', 'modify'] as const)('by %s', (cause) => {
  test.each(['left', 'right', 'both'] as const)(
    `${MIGRATIONS} times back and forth, asked for by %s`,
    { timeout: 300_000 + SEEDS * MIGRATIONS * 1000 },
    (who) => {
      for (let seed = 1; seed <= SEEDS; seed++) {
        // Of every second seed the paths in use lose packets as well.
        const loss = seed % 2 === 0 ? 0.005 : 0;
        const { left, right, bytes, middles } = runMigration({
          seed,
          cause,
          who,
          migrations: MIGRATIONS,
          bytes: BYTES,
          loss,
        });
        expect(bytes).toBeGreaterThanOrEqual(BYTES);
        expect(middles).toBe(MIGRATIONS);
        expect([left.migrations, right.migrations]).toEqual([MIGRATIONS, MIGRATIONS]);
        expect([left.errors, right.errors]).toEqual([0, 0]);
        if (who === 'both') continue;
        const [asking, following] = who === 'left' ? [left, right] : [right, left];
        expect(asking.causes[cause]).toBe(MIGRATIONS);
        expect(following.causes.bit).toBe(MIGRATIONS);
      }
    },
  );
});

/** Both sides ARMED, path 0 in use. */
function armed(retryCnt: number) {
  const pair = new JudgedPair({ seed: 1, retryCnt });
  const { left, right, oracles } = pair;
  const beat = () => {
    for (const side of [left, right]) side.post({ opcode: 'RDMA_WRITE', wrId: 1, sge: [] });
    pair.run();
    for (const side of [left, right]) expect(side.poll()).toMatchObject([{ wrId: 1, status: 'SUCCESS' }]);
  };
  beat();
  pair.rearm(left);
  pair.rearm(right);
  beat();
  expect([oracles.left.state, oracles.right.state]).toEqual(['ARMED', 'ARMED']);
  return { pair, beat, ...pair };
}

test.each([0, 1, 3, 7])(
  'with retry count %i, each of two cut paths gets all retries and its own timeout',
  (retryCnt) => {
    const { pair } = armed(retryCnt);
    const { left, oracles } = pair;
    const tries = [0, 0];
    pair.fault = (_packet, _now, sgidIndex) => {
      tries[sgidIndex]++;
      return [];
    };
    left.post({ opcode: 'RDMA_WRITE', wrId: 2, sge: [] });
    pair.until(() => oracles.left.migrations === 1);
    expect(oracles.left.causes.retries).toBe(1);
    expect(oracles.left.primary).toEqual({ index: 1, timeout: TIMEOUTS[1] });
    let done = left.poll();
    pair.until(
      () => done.length > 0,
      () => {
        done = left.poll();
        if (done.length > 0) oracles.left.usedUp(pair.now);
      },
    );
    expect(done).toMatchObject([{ wrId: 2, status: 'RETRY_EXC_ERR' }]);
    expect(Math.min(...tries)).toBeGreaterThan(retryCnt);
    expect(oracles.right.migrations).toBe(0);
  },
);

test('a packet of MigReq 1 by the primary path is dropped, reported once, and retransmitted', () => {
  const { pair, beat } = armed(3);
  const { left, right, oracles } = pair;
  const target = right.register(new ArrayBuffer(8));
  let forged = 2;
  pair.fault = (packet, _now, _path, from) => {
    if (from !== left || forged-- <= 0) return [{ packet, delay: 0 }];
    const other = packet.slice();
    other[1] |= 0x40;
    return [{ packet: other, delay: 0 }];
  };
  const inline = Uint8Array.of(1, 2, 3, 4, 5, 6, 7, 8);
  left.post({ opcode: 'RDMA_WRITE', wrId: 2, inline, remote: target });
  pair.run();
  expect(left.poll()).toMatchObject([{ wrId: 2, status: 'SUCCESS' }]);
  expect(forged).toBeLessThanOrEqual(0);
  expect([oracles.left.errors, oracles.right.errors]).toEqual([0, 1]);
  pair.fault = undefined;
  beat();
  expect([oracles.left.state, oracles.right.state]).toEqual(['ARMED', 'ARMED']);
});

/** Faults that the oracle refuses: packets as an engine with a fault would send or take them. */
describe('the oracle sees', () => {
  const run = (distort: MigrationRun['distort']) =>
    runMigration({ seed: 1, cause: 'modify', who: 'left', migrations: 2, bytes: 1_000_000, distort });
  const changed = (packet: Uint8Array, change: (bytes: Uint8Array) => void) => {
    const bytes = packet.slice();
    change(bytes);
    return bytes;
  };
  let count = 0;
  const nth = (n: number, event: string, is = 'sent') => event === is && ++count === n;

  test.each<[string, RegExp, MigrationRun['distort']]>([
    [
      'a wrong MigReq',
      /MigReq is not 1 in MIGRATED/,
      (event, packet) => (nth(5, event) ? changed(packet, (b) => (b[1] ^= 0x40)) : packet),
    ],
    [
      'a wrong P_Key',
      /P_Key/,
      (event, packet) => (nth(5, event) ? changed(packet, (b) => (b[3] ^= 1)) : packet),
    ],
    [
      'a PSN that is left out',
      /some are missing/,
      (event, packet) => {
        const isLater =
          opcodeInfo(packet[0])!.isRequest && bthPsn(packet, 0) < 0xff_0000 && bthPsn(packet, 0) > 40;
        return event === 'sent' && isLater ? changed(packet, (b) => b[11]++) : packet;
      },
    ],
    [
      'a PATH_MIG_ERR that is missing',
      /PATH_MIG_ERR did not come/,
      (event, packet) => {
        const isLater = event === 'arrived' && count++ > 40;
        return isLater ? changed(packet, (b) => (b[1] |= 0x40)) : packet;
      },
    ],
  ])('%s', (_name, message, distort) => {
    count = 0;
    expect(() => run(distort)).toThrow(message);
  });

  test('a path that is given up too soon', () => {
    const { pair, oracles } = armed(3);
    oracles.left.requests.anew(pair.now);
    expect(() => oracles.left.event('PATH_MIG', pair.now)).toThrow('after 0 tries of 4');
  });

  test('a PATH_MIG of a side that is not ARMED', () => {
    const { oracles, now } = new JudgedPair({ seed: 1 });
    expect(() => oracles.left.event('PATH_MIG', now)).toThrow('PATH_MIG in MIGRATED');
  });
});
