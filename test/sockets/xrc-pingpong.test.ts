/** The traffic of `ibv_xsrq_pingpong` between two processes: 4 clients, and one XRC SRQ that serves them all. */
import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';

const CLIENTS = 4;
const ROUNDS = Number(process.env.ROCE_XRC_ROUNDS ?? 200);
const BYTES = 4096;

function start(role: string, address: string): ChildProcess {
  const numbers = [CLIENTS, ROUNDS, BYTES].map(String);
  const child = fork(join(import.meta.dirname, 'xrc/side.mjs'), [role, address, ...numbers], {
    execArgv: [],
  });
  onTestFinished(() => void child.kill('SIGKILL'));
  return child;
}

/** The next message of a side; rejects where it ends first. */
async function next(child: ChildProcess) {
  const end = once(child, 'exit').then(([code]) => Promise.reject(new Error(`a side ended with ${code}`)));
  end.catch(() => {});
  return (await Promise.race([once(child, 'message'), end]))[0];
}

test('four clients and one XRC SRQ, in two processes: each message once, in order, with its bytes', async () => {
  const sides = [start('server', '127.91.3.1'), start('clients', '127.91.3.2')];
  const offers = await Promise.all(sides.map(next));
  sides[0].send(offers[1]);
  sides[1].send(offers[0]);
  expect(await Promise.all(sides.map(next))).toEqual(['ready', 'ready']);
  const results = Promise.all(sides.map(next));
  for (const side of sides) side.send('go');
  for (const result of await results) {
    expect(result).toHaveLength(CLIENTS);
    for (const { received, wrong } of result)
      expect({ received, wrong }).toEqual({ received: ROUNDS, wrong: 0 });
  }
  const ends = Promise.all(sides.map((side) => once(side, 'exit')));
  for (const side of sides) side.send('end');
  expect((await ends).map(([code]) => code)).toEqual([0, 0]);
  // One SRQ on the server, one a client.
  expect(new Set(offers[0].map(({ srqn }: { srqn: number }) => srqn)).size).toBe(1);
  expect(new Set(offers[1].map(({ srqn }: { srqn: number }) => srqn)).size).toBe(CLIENTS);
});
