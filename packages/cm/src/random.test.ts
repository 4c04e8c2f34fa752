/** Two ends over a network that loses, copies and reorders; programs that act at random times. */
import { expect, test } from 'vitest';
import { play } from '../testing/program.ts';

const SEEDS = Number(process.env.ROCE_CM_SEEDS ?? 60);

test(`${SEEDS} seeds: every id ends, and no connection is made twice`, () => {
  const total: Record<string, number> = {};
  for (let seed = 1; seed <= SEEDS; seed++) {
    const { pair, lives, complaints, tally } = play(seed, 40, 0.15, 0.15);
    for (const [what, times] of Object.entries(tally)) total[what] = (total[what] ?? 0) + times;
    expect(complaints, `seed ${seed}`).toEqual([]);
    for (const { cm } of pair.ends)
      expect(cm.size, `seed ${seed}`).toEqual({ connections: 0, pending: 0, keys: 0, timers: 0 });
    // Of an initiator's id, one listener's id at most was established.
    const made = new Map<string, number>();
    for (const { side, established, remote } of lives.values()) {
      expect(established, `seed ${seed}`).toBeLessThanOrEqual(1);
      if (remote === undefined || established === 0) continue;
      const name = `${1 - side}/${remote}`;
      made.set(name, (made.get(name) ?? 0) + 1);
    }
    for (const [name, times] of made) {
      expect(times, `seed ${seed}: ${name}`).toBe(1);
      expect(lives.has(name), `seed ${seed}: ${name}`).toBe(true);
    }
  }
  // The seeds went where they were meant to.
  const states = ['REQ_SENT', 'REQ_RCVD', 'REP_SENT', 'REP_RCVD', 'ESTABLISHED', 'DREQ_SENT', 'DREQ_RCVD'];
  for (const state of [...states, 'TIMEWAIT'])
    expect(total[`destroyed in ${state}`], state).toBeGreaterThan(0);
  for (const name of ['REQ', 'REP', 'RTU', 'REJ', 'DREQ', 'DREP', 'MRA'])
    expect(total[`lost ${name}`], name).toBeGreaterThan(0);
  expect(total.established).toBeGreaterThan(SEEDS * 10);
});
