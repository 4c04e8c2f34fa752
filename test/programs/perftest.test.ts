/** perftest's programs on two devices: each with each transport that it has, and with the options that change how it works. */
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { threadsHere } from '../tiers/hung.ts';
import { Devices, listening, roce, whyMissing } from './programs.ts';

const missing = whyMissing();
/** All command lines, some five minutes, or a few. */
const WHOLE = process.env.ROCE_PROGRAM_PERFTEST === 'all';

const TRANSPORTS = {
  write: ['RC', 'UC'],
  send: ['RC', 'UC', 'UD'],
  read: ['RC'],
  atomic: ['RC'],
} as const;
const OPTIONS = { bw: ['', '-a', '-q 4', '-b', '-e', '-D 2'], lat: ['', '-a', '-e', '-D 2'] } as const;

/** Options that the program itself refuses: an atomic has 8 bytes, and a WRITE no event at its target. */
function isRefused(verb: string, option: string): boolean {
  return (verb === 'atomic' && option === '-a') || (verb === 'write' && option === '-e');
}

/** As `ib_send_bw -c UD -e -n 50`. */
const all = Object.entries(TRANSPORTS).flatMap(([verb, transports]) =>
  Object.entries(OPTIONS).flatMap(([kind, options]) =>
    transports.flatMap((transport) =>
      options
        .filter((option) => !isRefused(verb, option))
        .map((option) => {
          const iterations = option === '-D 2' ? '' : option === '-a' ? '-n 5' : '-n 50';
          return [`ib_${verb}_${kind} -c ${transport}`, option, iterations].filter(Boolean).join(' ');
        }),
    ),
  ),
);

/** Each program, and each option, at least once. */
const SAMPLE = [
  'ib_write_bw -c UC -n 50',
  'ib_write_lat -c RC -n 50',
  'ib_send_bw -c RC -e -n 50',
  'ib_send_bw -c RC -b -n 50',
  'ib_send_lat -c UD -n 50',
  'ib_read_bw -c RC -q 4 -n 50',
  'ib_read_lat -c RC -e -n 50',
  'ib_atomic_bw -c RC -n 50',
  'ib_atomic_lat -c RC -n 50',
];

/** A port of its own for each run. */
let port = 25_000;

describe.skipIf(missing !== undefined)('perftest', () => {
  let devices: Devices;
  beforeAll(async () => {
    devices = await Devices.open('127.0.0.81', '127.0.0.82');
  });
  afterAll(async () => {
    const { faults } = devices;
    await devices.close();
    expect(faults).toEqual([]);
  });

  async function expectFigures(line: string) {
    const [program, ...options] = line.split(' ');
    const [server, client] = await devices.pair(program, ['-x', '0', '-F', ...options], ++port);
    const what = `server:\n${server.output}\nclient:\n${client.output}`;
    expect([server.code, client.code], what).toEqual([0, 0]);
    const rows = client.output.split('\n').filter((row) => /^ \d+\s+\d+\s+\d/.test(row));
    // From 2 bytes to 8 MiB; of datagrams to the path MTU.
    const sizes = options.includes('-a') ? (options.includes('UD') ? 9 : 23) : 1;
    expect(rows.length, client.output).toBeGreaterThanOrEqual(sizes);
  }

  test('the sample is of the list', () => {
    expect(all).toEqual(expect.arrayContaining(SAMPLE));
    expect(all.length).toBe(64);
  });

  // Nothing is retransmitted for UC and UD: once more where a machine that was busy lost a packet.
  test.each(WHOLE ? all : SAMPLE)(
    '%s gives its figures',
    { retry: WHOLE ? 2 : 0, tags: ['slow'] },
    expectFigures,
  );

  test.skipIf(WHOLE)('ib_write_bw -a -n 5 gives its figures', { tags: ['slow'] }, () =>
    expectFigures('ib_write_bw -a -n 5'),
  );
});

/**
 * Five queue pairs both ways between two devices in processes of their own, next to programs that compute: `ROCE_PROGRAM_BUSY` runs, 20 in
 * the long tier, 1 otherwise. Once, probes that took a slow peer for a loss made one queue pair late, and perftest 4.5 then waits for itself.
 */
describe.skipIf(missing !== undefined)('next to two programs that compute', () => {
  const RUNS = Number(process.env.ROCE_PROGRAM_BUSY ?? 1);
  const LINE = 'ib_write_bw -x 0 -F -q 5 -b -s 4099 -n 300 -m 512'.split(' ');
  /** Packets that a queue pair has in flight at most: 128 messages of nine. */
  const FLIGHT = 128 * 9;
  /** ms of a run; on a quiet machine it takes one or two seconds. */
  const LONGEST = 240_000;

  test('ib_write_bw -q 5 -b ends, and hardly a packet is sent twice', {
    timeout: 300_000 * (1 + RUNS),
    tags: ['slow'],
  }, async () => {
    const folder = mkdtempSync(join(tmpdir(), 'roce-busy-'));
    const env = { ...process.env, XDG_RUNTIME_DIR: folder };
    const node = (args: readonly string[]) =>
      spawn(process.execPath, args, { env, stdio: ['ignore', 'pipe', 'pipe'] });
    const addresses = ['127.0.0.83', '127.0.0.84'];
    const devices = addresses.map((address) => node([roce, 'device', '-a', address]));
    const busy = [0, 1].map(() => spawn('nice', ['-n', '12', process.execPath, '-e', 'for (;;);']));
    onTestFinished(async () => {
      for (const child of [...busy, ...devices]) {
        const ended = once(child, 'exit');
        if (child.exitCode === null && child.kill('SIGKILL')) await ended;
      }
      rmSync(folder, { recursive: true });
    });
    // Its first line says that it serves.
    for (const { stderr } of devices) await once(createInterface(stderr!), 'line');

    const devinfo = () =>
      JSON.parse(
        execFileSync(process.execPath, [roce, 'devinfo', '--json'], {
          ...{ env, encoding: 'utf8' },
          ...{ timeout: 120_000, killSignal: 'SIGKILL' },
        }),
      ).served as { address: string; counters: Record<string, number> }[];
    /** Of a run that hangs: who computes, who waits where, and what both devices have sent, repeated and been acknowledged. */
    const evidence = async () => {
      const counts = devinfo().map(({ address, counters }) => {
        const moved = Object.entries(counters).filter(([, count]) => typeof count === 'number' && count > 0);
        return `device ${address}: ${moved.map(([name, count]) => `${name} ${count}`).join(', ')}`;
      });
      return ['what was going on in a run that did not end:', ...(await threadsHere()), ...counts].join('\n');
    };
    const play = async (address: string, more: readonly string[]) => {
      const child = node([roce, 'run', '-a', address, ...LINE, ...more]);
      let output = '';
      const limit = setTimeout(async () => {
        console.log(await evidence().catch(String));
        // `roce run` passes it on to the program, which would outlive it otherwise.
        child.kill('SIGTERM');
      }, LONGEST);
      for (const stream of [child.stdout!, child.stderr!])
        stream.on('data', (data) => {
          output += data;
        });
      const [code] = await once(child, 'close');
      clearTimeout(limit);
      return { code, output };
    };
    for (let run = 0; run < RUNS; run++) {
      const place = ['-p', `${++port}`];
      const server = play(addresses[0], place);
      await listening(port);
      const ends = await Promise.all([server, play(addresses[1], [...place, '127.0.0.1'])]);
      expect(
        ends.map(({ code }) => code),
        ends.map(({ output }) => output).join('\n'),
      ).toEqual([0, 0]);
    }
    let served: ReturnType<typeof devinfo> = [];
    // A busy device may answer too late for it.
    await expect
      .poll(() => {
        served = devinfo();
        return served.length;
      })
      .toBe(2);
    const sum = (name: string) => served.reduce((all, { counters }) => all + counters[name], 0);
    const [sent, twice, timeouts] = ['sentPackets', 'duplicateRequest', 'timeouts'].map(sum);
    console.log(`${RUNS} runs: ${sent} packets, ${twice} of them twice, ${timeouts} timeouts`);
    expect(sent).toBeGreaterThan(RUNS * 2 * 5 * 300 * 9);
    // A timeout shows that the machine stood still.
    expect(twice).toBeLessThanOrEqual(sent / 1000 + FLIGHT * timeouts);
  });
});
