/** perftest's programs on two devices: each with each transport that it has, and with the options that change how it works. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { Devices, whyMissing } from './programs.ts';

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
