/** A QEMU that listens for commands (QMP). */
import { once } from 'node:events';
import { connect, type NetConnectOpts, type Socket } from 'node:net';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';

/** Runs a command of QMP; returns QEMU's answer. @throws if QEMU refuses it, or has ended */
export type Ask = (execute: string, args?: object) => Promise<Record<string, unknown>>;

/** Connects once QEMU listens, which may be later than the file of its socket is there. */
async function dial(place: NetConnectOpts): Promise<Socket> {
  for (;;) {
    const socket = connect(place);
    try {
      await once(socket, 'connect');
      return socket;
    } catch {
      await sleep(20);
    }
  }
}

/** Sends commands to a QEMU that listens at this place, one after the other. */
export async function machineAt(place: NetConnectOpts): Promise<Ask> {
  const socket = await dial(place);
  const answers = createInterface({ input: socket })[Symbol.asyncIterator]();
  const ask: Ask = async (execute, args = {}) => {
    socket.write(`${JSON.stringify({ execute, arguments: args })}\n`);
    for (;;) {
      const { value, done } = await answers.next();
      if (done) throw new Error(`${execute}: QEMU has ended`);
      const answer = JSON.parse(value);
      if (answer.error) throw new Error(`${execute}: ${answer.error.desc}`);
      if (answer.return) return answer.return;
    }
  };
  await ask('qmp_capabilities');
  return ask;
}

/** Migrates a machine to where another QEMU expects it, until only the other one runs it. */
export async function migrate(from: Ask, to: Ask, uri: string): Promise<void> {
  // QEMU takes what an iteration sent for the bandwidth: of an idle machine so little that it never dares to stop it.
  await from('migrate-set-parameters', { 'downtime-limit': 600_000 });
  await from('migrate', { uri });
  const state = async (ask: Ask, question: string) => (await ask(question)).status;
  let status = await state(from, 'query-migrate');
  while (status === undefined || ['setup', 'active', 'device'].includes(`${status}`)) {
    await sleep(50);
    status = await state(from, 'query-migrate');
  }
  if (status !== 'completed') throw new Error(`the migration is ${status}`);
  while ((await state(to, 'query-status')) === 'inmigrate') await sleep(50);
  const states = [await state(from, 'query-status'), await state(to, 'query-status')];
  if (`${states}` !== 'postmigrate,running') throw new Error(`after the migration: ${states}`);
}
