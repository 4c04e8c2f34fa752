/** perftest's peer (test/perf/perftest-peer) sends the bytes of the real programs: recorded dialogues, byte by byte, in both roles. */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
// @ts-expect-error: plain JavaScript
import { playTest } from './perftest-peer/main.mjs';
// @ts-expect-error: plain JavaScript
import { KEY_BYTES, keyLine, keyOf, membersOf, reportMessages, reportOf } from './perftest-peer/messages.mjs';
// @ts-expect-error: plain JavaScript
import { play } from './perftest-peer/play.mjs';
// @ts-expect-error: plain JavaScript
import { testOf } from './perftest-peer/test.mjs';

type Role = 'server' | 'client';
interface Recording {
  version: string;
  mlx5: boolean;
  server: string;
  client: string;
  turns: [Role, string][];
}

const FOLDER = join(import.meta.dirname, '../fixtures/perftest');
const NAMES = readdirSync(FOLDER).filter((name) => name.endsWith('.json'));
const recordingOf = (name: string): Recording => JSON.parse(readFileSync(join(FOLDER, name), 'utf8'));

/** Bytes of the structure that describe the test; a device's attributes follow them. */
const MEMBERS = 80;

/** The peer's test, from the command of a recording. */
function testOfCommand(command: string, recording: Recording, role: Role) {
  const [program, ...words] = command.split(' ');
  const [, verb, kind] = /^ib_(\w+)_(bw|lat)$/.exec(program)!;
  const value = (option: string) => {
    const at = words.indexOf(option);
    return at < 0 ? undefined : words[at + 1];
  };
  const number = (option: string) => (value(option) === undefined ? undefined : Number(value(option)));
  const given = {
    ...{ version: recording.version, mlx5: recording.mlx5, role, verb, kind, maxRdAtomic: 128 },
    ...{ size: number('-s'), iters: number('-n'), qps: number('-q'), seconds: number('-D') },
    ...{ connection: value('-c'), atomic: value('-A') },
    ...{ all: words.includes('-a'), duplex: words.includes('-b') },
    ...{ immediate: words.includes('--write_with_imm'), gbits: words.includes('--report_gbits') },
  };
  return testOf(Object.fromEntries(Object.entries(given).filter(([, member]) => member !== undefined)));
}

/** Messages of one side, in order. */
function side(recording: Recording, role: Role): Buffer[] {
  return recording.turns.filter(([who]) => who === role).map(([, hex]) => Buffer.from(hex, 'hex'));
}

/** Plays the peer against a recording, and returns its messages and those of the real program. */
async function replay(recording: Recording, role: Role) {
  const other = role === 'server' ? 'client' : 'server';
  // A proxy joins messages that came together: only lengths divide them again.
  const [said, heard] = [Buffer.concat(side(recording, role)), Buffer.concat(side(recording, other))];
  const wanted = testOfCommand(recording[role], recording, role);
  const sent: Buffer[] = [];
  let at = 0;
  let saidAt = 0;
  const exchange = async (message: Buffer, length = message.length) => {
    sent.push(message);
    saidAt += message.length;
    at += length;
    if (at > heard.length) throw new Error('the real program had ended here');
    return heard.subarray(at - length, at);
  };
  const channel = {
    exchange,
    exchangeKey: async (key: object) => keyOf(await exchange(keyLine(key), KEY_BYTES)),
    done: async () => {
      sent.push(Buffer.from('done\0'));
    },
  };
  const endpoint = {
    create: async () => {
      const first = wanted.kind === 'lat' && wanted.verb !== 'send' ? 1 : 0;
      const line = (i: number) => said.subarray(saidAt + i * KEY_BYTES, saidAt + (i + 1) * KEY_BYTES);
      return Array.from({ length: wanted.qps }, (_, i) => keyOf(line(first + i)));
    },
    ...{ connect: async () => {}, prepare: async () => {} },
    run: async (size: number) => ({ size, iters: wanted.iters, messages: 1, seconds: 1 }),
  };
  const result = await play(wanted, channel, endpoint);
  return { result, wanted, sent, said, heard, rest: heard.subarray(at) };
}

describe.each(NAMES)('%s', (name) => {
  const recording = recordingOf(name);

  test.each(['server', 'client'] as const)('as %s', async (role) => {
    const { sent, said, rest } = await replay(recording, role);
    const mine = Buffer.concat(sent);
    expect(mine.length).toBe(said.length);
    let at = 0;
    for (const message of sent) {
      const real = said.subarray(at, at + message.length);
      at += message.length;
      // Measured, or never written by a side that did not measure.
      if (message.length === 8) continue;
      if (message.length === 312 || message.length === 320) {
        expect(message.subarray(0, MEMBERS).toString('hex')).toBe(real.subarray(0, MEMBERS).toString('hex'));
        expect(membersOf(real)).toEqual(membersOf(message));
        // READs and atomics at once, in `struct ibv_device_attr`.
        expect(message.readInt32LE(224)).toBe(real.readInt32LE(224));
      } else expect(message.toString('latin1')).toBe(real.toString('latin1'));
    }
    // Of all bytes that the other side sent, only those that nobody reads are left.
    expect(rest.toString('latin1')).toBe(
      name.startsWith('6.06') && !name.includes('write_lat') ? 'done\0' : '',
    );
  });

  test('its reports are those that the console showed numbers of', async () => {
    const { said, sent } = await replay(recording, 'client');
    let at = 0;
    const eights: Buffer[] = [];
    for (const message of sent) {
      if (message.length === 8) eights.push(said.subarray(at, at + 8));
      at += message.length;
    }
    for (let i = 0; i < eights.length; i += 5) {
      const five = eights.slice(i, i + 5);
      const report = reportOf(five);
      expect(Buffer.concat(reportMessages(report)).equals(Buffer.concat(five))).toBe(true);
      // 0 of a run too short for the program's clock.
      expect(report.rate * report.size * (1e6 / 2 ** 20)).toBeCloseTo(report.average, 2);
    }
  });
});

test('the recordings hold both sizes of the structure', () => {
  const lengths = NAMES.flatMap((name) => recordingOf(name).turns.map(([, hex]) => hex.length / 2));
  expect([312, 320].every((length) => lengths.includes(length))).toBe(true);
});

describe('the peer with itself', () => {
  const base = { iters: 20, size: 100 };
  test.each([
    { verb: 'send', kind: 'bw', qps: 4, duplex: true },
    { verb: 'send', kind: 'lat', connection: 'UD' },
    { verb: 'write', kind: 'bw', mlx5: true },
    { verb: 'write', kind: 'lat', immediate: true },
    { verb: 'write', kind: 'lat', connection: 'UC' },
    { verb: 'read', kind: 'bw', version: '6.06' },
    { verb: 'atomic', kind: 'lat', size: 8 },
    { verb: 'send', kind: 'bw', qps: 2, cm: true },
    { verb: 'read', kind: 'lat', cm: true, version: '6.24' },
  ])('plays $verb $kind ($version, -R: $cm)', async (given) => {
    let listening: (port: number) => void = () => {};
    const port = new Promise<number>((resolve) => {
      listening = resolve;
    });
    const common = { ...base, ...given };
    const server = playTest({
      ...common,
      role: 'server',
      address: '127.0.0.21',
      port: 0,
      onListening: listening,
    });
    const where = { role: 'client', address: '127.0.0.22', host: '127.0.0.21', port: await port };
    const [a, b] = await Promise.all([server, playTest({ ...common, ...where })]);
    expect(b.runs.at(-1).messages).toBe(20 * (given.qps ?? 1));
    expect(a.reports.map(({ theirs }: { theirs: object }) => theirs)).toEqual(
      b.reports.map(({ mine }: { mine: object }) => mine),
    );
  });

  test.each([
    ['size', { size: 101 }],
    ['iters', { iters: 21 }],
    ['qps', { qps: 2 }],
    ['kind', { kind: 'lat' }],
    ['mbytes', { gbits: true }],
  ])('refuses a test that differs in %s', async (what, change) => {
    let listening: (port: number) => void = () => {};
    const port = new Promise<number>((resolve) => {
      listening = resolve;
    });
    const common = { ...base, verb: 'read', kind: 'bw' };
    const server = playTest({
      ...common,
      role: 'server',
      address: '127.0.0.21',
      port: 0,
      onListening: listening,
    });
    const client = { ...common, ...change, role: 'client', address: '127.0.0.22', host: '127.0.0.21' };
    const [a, b] = await Promise.allSettled([server, playTest({ ...client, port: await port })]);
    for (const { status, reason } of [a, b] as PromiseRejectedResult[]) {
      expect(status).toBe('rejected');
      expect(reason.message).toContain(`differs in ${what}`);
    }
  });
});
