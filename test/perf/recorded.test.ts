/**
 * Both ends of `roce perf` send the messages of perftest's programs: every message of the recorded dialogues, by
 * side and length, and the bytes of those that do not depend on the machine.
 */
import { readdirSync, readFileSync } from 'node:fs';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';
import { join } from 'node:path';
import { MemoryNetwork } from '@node-roce/link';
import { type ClientVersion, callPerf, type PerfOptions, servePerf } from '@node-roce/perf';
import { openDevice } from '@node-roce/verbs-api';
import { expect, test } from 'vitest';

type Role = 'server' | 'client';
type Turn = [Role, string];
interface Recording {
  version: string;
  mlx5: boolean;
  client: string;
  turns: Turn[];
}

const FOLDER = join(import.meta.dirname, '../fixtures/perftest');
const recordings = readdirSync(FOLDER)
  .filter((name) => name.endsWith('.json'))
  .map((name): [string, Recording] => [name, JSON.parse(readFileSync(join(FOLDER, name), 'utf8'))]);

/** `done` and a zero byte, which perftest 4.5 writes at the end and nobody reads. */
const DONE = Buffer.from('done\0').toString('hex');
const withoutDone = (turns: readonly Turn[]): Turn[] =>
  turns
    .map(([role, bytes]): Turn => [role, bytes.endsWith(DONE) ? bytes.slice(0, -DONE.length) : bytes])
    .filter(([, bytes]) => bytes.length > 0);

/** The test of a command, with an announced version where a client of ours can announce it. */
function testOf({ client, version, mlx5 }: Recording): {
  options: PerfOptions;
  version: ClientVersion;
  gigabits: boolean;
} {
  const [program, ...words] = client.split(' ');
  const [, verb, measure] = /^ib_(\w+)_(bw|lat)$/.exec(program)!;
  const number = (letter: string) => {
    const at = words.indexOf(`-${letter}`);
    return at < 0 ? undefined : Number(words[at + 1]);
  };
  const given = {
    ...{
      size: number('s'),
      iters: number('n'),
      qps: number('q'),
      duration: number('D'),
      margin: number('f'),
    },
    mtu: number('m'),
  };
  const options: PerfOptions = {
    ...(Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined)) as object),
    ...{ verb: verb as 'send', measure: measure as 'bw' },
    all: words.includes('-a'),
    bidirectional: words.includes('-b'),
    writeWithImm: words.includes('--write_with_imm'),
    service: words.includes('UD') ? 'UD' : 'RC',
    ...(words.includes('CMP_AND_SWAP') ? { atomic: 'CMP_AND_SWAP' } : {}),
  };
  // 6.28 and 6.29 differ in the number alone.
  const announced = version === '6.28' ? '6.29' : version;
  return {
    options,
    version: (mlx5 ? `${announced}-mlx5` : announced) as ClientVersion,
    gigabits: words.includes('--report_gbits'),
  };
}

/** The MTU of both machines, from the first of the recorded messages. */
const mtuOf = ({ turns }: Recording) => 2 ** (Number(Buffer.from(turns[6][1], 'hex').toString()[0]) + 7);

/** Plays a test of ours through a proxy that records. */
async function play(recording: Recording): Promise<Turn[]> {
  const { options, version, gigabits } = testOf(recording);
  const turns: Turn[] = [];
  const record = (role: Role, from: Socket, to: Socket) => {
    from.on('data', (bytes: Buffer) => {
      turns.push([role, bytes.toString('hex')]);
      to.write(bytes);
    });
    from.on('end', () => to.end());
    from.on('error', () => to.destroy());
  };
  const network = new MemoryNetwork();
  const mtu = mtuOf(recording);
  await using a = await openDevice({ link: network.link('10.0.0.1', mtu) });
  await using b = await openDevice({ link: network.link('10.0.0.2', mtu) });
  const proxy = createServer({ allowHalfOpen: true });
  const serving = servePerf(options, {
    ...{ port: 0, host: '127.0.0.1', device: a, timeout: 120, gigabits },
    onListening: (port) => {
      proxy.on('connection', (socket) => {
        const onward = connect({ port, host: '127.0.0.1', allowHalfOpen: true });
        record('client', socket, onward);
        record('server', onward, socket);
      });
      proxy.listen(0, '127.0.0.1');
    },
  });
  await new Promise((resolve) => proxy.once('listening', resolve));
  const { port } = proxy.address() as AddressInfo;
  const side = { port, host: '127.0.0.1', device: b, timeout: 120, gigabits, version };
  await Promise.all([serving, callPerf(options, side)]);
  proxy.close();
  return turns;
}

const shapeOf = ([role, bytes]: Turn) => `${role} ${bytes.length / 2}`;

const isLong = ([, { client }]: [string, Recording]) => / -[aD]\b/.test(client);
test.each(recordings.filter((each) => !isLong(each)))('%s', testRecording);
test.each(recordings.filter(isLong))('%s', { tags: ['slow', 'gate'] }, testRecording);

async function testRecording(_name: string, recording: Recording): Promise<void> {
  const theirs = withoutDone(recording.turns);
  const ours = await play(recording);
  expect(ours.map(shapeOf)).toEqual(theirs.map(shapeOf));
  for (const [i, [, bytes]] of ours.entries()) {
    const expected = theirs[i][1];
    const { length } = bytes;
    // The version is ours to choose. Page size, cache line and MTU.
    if (i >= 2 && i < 8) expect(bytes).toBe(expected);
    // The description of the test; a device's attributes follow it.
    if (length === 2 * 312 || length === 2 * 320) expect(bytes.slice(0, 160)).toBe(expected.slice(0, 160));
    // Keys: separators where they are.
    if (length === 2 * 108) {
      const form = (hex: string) =>
        Buffer.from(hex, 'hex')
          .toString('latin1')
          .replaceAll(/[0-9a-f]/g, 'x');
      expect(form(bytes)).toBe(form(expected));
    }
  }
}
