/**
 * Small captures of one exchange under everything that networks and capture tools put around it (test/fixtures/encapsulations): what the
 * analysis makes of each, and that tshark sees the same packets.
 */
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { analyzeCapture, readPackets } from '@node-roce/capture/node';
import { openCapture } from '@node-roce/pcap/node';
import { afterAll, expect, test } from 'vitest';

const folder = join(import.meta.dirname, '../fixtures/encapsulations');
const place = mkdtempSync(join(tmpdir(), 'roce-encapsulations-'));
afterAll(() => rmSync(place, { recursive: true }));

/** Files that are no pcap or pcapng: the message names the tool. */
const NOT_READ: Readonly<Record<string, RegExp>> = {
  'kuznetzov.pcap': /"modified" pcap file .* editcap/,
  'plain4.modpcap': /"modified" pcap file .* editcap/,
  'plain4.cap': /Microsoft Network Monitor: convert it with editcap/,
  'plain4.erf': /neither pcap nor pcapng; editcap/,
  'plain4.snoop': /snoop capture: convert it with editcap/,
  'plain4.pcap.bz2': /compressed by bzip2: decompress it with bzip2 -dc/,
  'plain4.pcap.xz': /compressed by xz: decompress it with xz -dc/,
};

/** Verdicts other than that all messages are complete. */
const OTHERS: Readonly<Record<string, RegExp>> = {
  // Native InfiniBand, whose ICRC its sender left out.
  'ib247.pcap': /No ICRC from LID 1 is right: its ICRC is 0/,
  'ib247-grh.pcap': /No ICRC from 2001:db8::1 or 2001:db8::2 is right/,
  'ip-fragments.pcap': /3 RoCE packets could not be read \(fragment\)/,
  'selective.pcap': /between 192\.0\.2\.1 and the capture point lost requests; this explains 1 recovery/,
  'sflow.pcap': /samples only \(8 of RoCE\)/,
  // Cut before the BTH.
  'snap42.pcap': /No RoCE packet was decoded/,
  'snap128-erspan3-vlan-in6.pcap': /No RoCE packet was decoded/,
  'snap128-vxlan6-in6.pcap': /No RoCE packet was decoded/,
  // No port of VXLAN.
  'vxlan-odd-port.pcap': /No RoCE packet was decoded in 8 frames, mostly UDP port 48879/,
};

/** Why tshark is not asked about them. */
const NOT_COMPARED: Readonly<Record<string, string>> = {
  'ib247.pcap': 'mergecap does not write this link type; kinds.test.ts asks tshark',
  'ib247-grh.pcap': 'mergecap does not write this link type; kinds.test.ts asks tshark',
  'mpls-pw-cw.pcap': 'tshark takes the control word for a MAC address',
  'ng-unknown-blocks.pcapng': 'mergecap makes records of unknown blocks',
  'ip-fragments.pcap': 'tshark puts fragments together',
  'plain4.pcap.gz': 'mergecap appends what is not compressed',
  'plain4.pcap.zst': 'mergecap appends what is not compressed',
};

const names = readdirSync(folder).filter((name) => name !== 'README.md');
const path = (name: string): string => join(folder, name);

test.each(Object.entries(NOT_READ))('%s is not read: the message names the tool', async (name, message) => {
  expect((await analyzeCapture(path(name))).summary.damage).toMatch(message);
});

test.each(names.filter((name) => !(name in NOT_READ)))('%s', async (name) => {
  const { verdict } = await analyzeCapture(path(name));
  expect(verdict.text).toMatch(OTHERS[name] ?? /^Nothing stands out: \d+ messages, all complete/);
});

/** `opcode psn qp` of each packet. */
async function packetsOf(name: string): Promise<string[]> {
  const seen: string[] = [];
  await readPackets(path(name), {
    onPacket: ({ opcode, psn, destQp }) => {
      seen.push(`${opcode} ${psn} ${destQp}`);
    },
  });
  return seen;
}

async function framesOf(name: string): Promise<number> {
  let count = 0;
  for await (const records of openCapture(path(name))) count += records.length;
  return count;
}

const hasTshark = spawnSync('tshark', ['--version']).status === 0;
if (!hasTshark) console.warn('tshark is not installed: the encapsulations are not compared with it');

test.runIf(hasTshark)('tshark sees the same packets', async () => {
  const compared = names.filter((name) => !(name in NOT_READ) && !(name in NOT_COMPARED));
  // tshark takes half a second to start: all files are one.
  const file = join(place, 'all.pcapng');
  const merged = spawnSync('mergecap', ['-a', '-w', file, ...compared.map(path)]);
  expect(merged.stderr.toString()).toBe('');
  const fields = ['frame.number', 'infiniband.bth.opcode', 'infiniband.bth.psn', 'infiniband.bth.destqp'];
  const { stdout } = spawnSync('tshark', [
    ...['-r', file, '-Y', 'infiniband.bth', '-T', 'fields'],
    ...fields.flatMap((field) => ['-e', field]),
  ]);
  const theirs = new Map<number, string[]>();
  for (const line of stdout.toString().trim().split('\n')) {
    const [[frame = 0] = [], opcodes = [], psns = [], qps = []] = line
      .split('\t')
      .map((column) => column.split(',').map(Number));
    theirs.set(
      frame,
      opcodes.map((opcode, i) => `${opcode} ${psns[i]} ${qps[i]}`),
    );
  }
  let frame = 0;
  for (const name of compared) {
    const count = await framesOf(name);
    const seen = Array.from({ length: count }, (_, i) => theirs.get(frame + i + 1) ?? []).flat();
    frame += count;
    expect.soft(await packetsOf(name), name).toEqual(seen);
  }
});
