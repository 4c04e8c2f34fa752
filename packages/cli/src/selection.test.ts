/** `--connection`, `--address`, `--from`, `--to` and `--top` of flows and messages; marks of the network in dump and flows. */
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { CaptureParser, LinkType, PcapEncoder } from '@node-roce/pcap';
import { buildPfc } from '@node-roce/wire';
import { describe, expect, test } from 'vitest';
import { ownFolder, removeFolders } from '../testing/folder.ts';
import { runRoce } from '../testing/roce.ts';
import { Greatest } from './selection.ts';

const captures = join(import.meta.dirname, '../../../test/fixtures/captures');
const ucmatose = join(captures, 'cm_ucmatose.pcap');
const opAll = join(captures, 'op_all.pcap');
const folder = ownFolder();
removeFolders();
const roce = (...args: string[]) => runRoce(args);

const json = async (...args: string[]) => JSON.parse((await roce(...args)).out);
const lines = async (...args: string[]) =>
  (await roce(...args)).out
    .trim()
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => JSON.parse(line));

describe('flows', () => {
  test('of one connection, of an address, of the busiest', async () => {
    const all = await json('flows', '--json', ucmatose);
    expect(all.connections.length).toBeGreaterThan(1);
    const one = await json('flows', '--json', '--connection', '2', ucmatose);
    expect(one.connections.map(({ id }: { id: number }) => id)).toEqual([2]);
    expect(one.connections[0]).toEqual(all.connections[1]);
    expect(one.verdict).toEqual(all.connections[1].verdict);
    expect((await json('flows', '--json', '--address', '10.77.0.0/24', ucmatose)).connections).toEqual(
      all.connections,
    );
    const other = await json('flows', '--json', '--address', '10.99.0.1', ucmatose);
    expect([other.connections, other.exchanges, other.findings]).toEqual([[], [], []]);
    expect(other.verdict.text).toBe('No connection of the capture is chosen.');
    const [top] = (await json('flows', '--json', '--top', '1', ucmatose)).connections;
    const packets = ({ aToB, bToA }: typeof top) => aToB.packets + bToA.packets;
    expect(packets(top)).toBe(Math.max(...all.connections.map(packets)));
  });

  test('of a time; an end before the start is an error', async () => {
    const { connections } = await json('flows', '--json', '--from', '3600', opAll);
    expect(connections).toEqual([]);
    for (const command of ['flows', 'messages', 'dump'])
      expect(await roce(command, '--from', '1', '--to', '0.5', opAll)).toMatchObject({
        code: 2,
        err: expect.stringContaining('--from 1 is after --to 0.5'),
      });
    expect(await roce('flows', '--connection', '9', opAll)).toMatchObject({
      code: 2,
      err: expect.stringContaining('--connection 9: expected 1 … 1'),
    });
  });
});

describe('messages', () => {
  test('those with the longest latency, longest first', async () => {
    const all = await lines('messages', '--json', opAll);
    const top = await lines('messages', '--json', '--top', '3', opAll);
    const latencies = all.map(({ latency }) => latency).sort((x, y) => y - x);
    expect(top.map(({ latency }) => latency)).toEqual(latencies.slice(0, 3));
  });

  test('of a time, an address, a connection', async () => {
    const all = await lines('messages', '--json', opAll);
    const late = await lines('messages', '--json', '--from', '0.03', opAll);
    expect(late).toEqual(all.filter(({ end }) => end >= 30e6));
    expect(late.length).toBeGreaterThan(0);
    expect(await lines('messages', '--json', '--address', '10.77.0.2', opAll)).toEqual(all);
    expect(await lines('messages', '--json', '--address', '10.77.0.9', opAll)).toEqual([]);
    expect(await lines('messages', '--json', '--connection', '2', opAll)).toEqual([]);
  });

  test('the greatest of many, in bounded memory', () => {
    const greatest = new Greatest<number>(5, (item) => item);
    for (let i = 0; i < 10_000; i++) greatest.add((i * 7919) % 10_000);
    expect(greatest.sorted()).toEqual([9999, 9998, 9997, 9996, 9995]);
  });
});

test('VLAN, priority, DSCP, ECN and TTL of packets and flows', async () => {
  const parser = new CaptureParser();
  parser.push(readFileSync(opAll));
  parser.end();
  const encoder = new PcapEncoder({ linkType: LinkType.ETHERNET });
  for (const { data, seconds, nanoseconds } of parser) {
    const frame = Buffer.concat([data.subarray(0, 12), Buffer.of(0x81, 0, 0x60, 10), data.subarray(12)]);
    frame[19] = 106;
    frame[26] = 62;
    encoder.packet({ data: frame, seconds, nanoseconds });
  }
  encoder.packet({ data: buildPfc(Uint8Array.of(2, 0, 0, 0, 0, 1), { 3: 9 }), seconds: 0, nanoseconds: 0 });
  const file = join(folder, 'vlan.pcap');
  writeFileSync(file, encoder.take());
  const [first] = await lines('dump', '--json', '-c', '1', file);
  expect(first).toMatchObject({ vlan: 10, pcp: 3, dscp: 26, ecn: 2, ttl: 62, dstPort: 4791 });
  const dump = (await roce('dump', file)).out;
  expect(dump.split('\n')[0]).toMatch(/icrc ok DSCP 26 ECT\(0\) VLAN 10 PCP 3$/);
  expect(dump).toMatch(/\n {3}43 .* 02:00:00:00:00:01 PFC priority 3 9 quanta\n$/);
  expect((await roce('dump', '--qp', '0x5f', file)).out).not.toContain('PFC');
  const { connections } = await json('flows', '--json', file);
  expect(connections[0].paths.aToB).toEqual({
    vlan: 10,
    tunnel: 'none',
    vni: -1,
    network: 1,
    classes: [{ dscp: 26, pcp: 3, ttl: 62, packets: 23 }],
    ecn: { notEct: 0, ect1: 0, ect0: 23, ce: 0 },
  });
  expect((await roce('flows', file)).out).toMatch(
    /network +PCP +DSCP +TTL +CE\n.* vlan 10 +3 +26 +62 +0 \/ 0\n/,
  );
});

test.each([
  ['vxlan-fragments.pcap', '3 not checked (they are in several IP fragments)'],
  ['erspan2-trunc.pcap', '4 not checked (their ends are not in the frames)'],
])('%s: why ICRCs were not checked', async (name, text) => {
  expect((await roce('flows', join(captures, '../encapsulations', name))).out).toContain(text);
});

test('the messages of the connection manager by name, in a line, as fields and as JSON', async () => {
  const file = join(captures, 'cm_rping_refused.pcap');
  const { out } = await roce('dump', file);
  expect(out).toMatch(/CM ConnectRequest ID=0x\w+ TCP port 7999 QP=0x55 .* icrc ok\n/);
  expect(out).toMatch(/CM ConnectReject ID=0x0 to 0x\w+ invalid service ID \(8\) icrc ok\n/);
  expect((await roce('dump', '-x', file)).out).toMatch(/cm\.reason +invalid service ID \(8\)\n/);
  const [request, reject] = await lines('dump', '--json', file);
  expect(request.cm).toMatchObject({ name: 'REQ', title: 'ConnectRequest', localQpn: 0x55, retryCount: 7 });
  expect(reject.cm).toMatchObject({ name: 'REJ', reason: 8 });
  expect((await roce('flows', file)).out).toMatch(/ rejected: invalid service ID \(8\) /);
});

describe('for scripts', () => {
  const exhausted = join(captures, 'err_rnr_exhausted.pcap');

  test('--fail-on: exit code 1 for a finding that is as severe, after the usual output', async () => {
    const { out } = await roce('flows', exhausted);
    expect(await roce('flows', '--fail-on', 'error', exhausted)).toMatchObject({ code: 1, out });
    expect(await roce('flows', '--fail-on', 'note', opAll)).toMatchObject({ code: 0 });
    expect(await roce('flows', '--fail-on', 'oops', exhausted)).toMatchObject({ code: 2 });
  });

  test('--kind selects findings, and so what --fail-on asks about', async () => {
    const { out, code } = await roce('flows', '--json', '--kind', 'rnr', '--fail-on', 'error', exhausted);
    const kinds = JSON.parse(out).findings.map(({ kind }: { kind: string }) => kind);
    expect(new Set(kinds)).toEqual(new Set(['rnr']));
    expect(code).toBe(0);
    expect((await roce('flows', '--kind', 'rnr', '--fail-on', 'warning', exhausted)).code).toBe(1);
    const wrong = await roce('flows', '--kind', 'nothing', exhausted);
    expect(wrong).toMatchObject({ code: 2, err: expect.stringContaining('no such kind of finding') });
  });

  test('a report of one connection', async () => {
    const output = join(folder, 'one.html');
    expect((await roce('report', ucmatose, '--connection', '1', '-o', output)).code).toBe(0);
    const html = readFileSync(output, 'utf8');
    const [, json = ''] = /<script type="application\/json" id="data">(.*?)<\/script>/s.exec(html) ?? [];
    expect(JSON.parse(json).connections).toHaveLength(1);
    expect((await roce('report', ucmatose, '--connection', '99', '-o', output)).code).toBe(2);
  });

  test('dump --time utc and absolute', async () => {
    const { out } = await roce('dump', '--time', 'utc', '-c', '1', opAll);
    expect(out).toMatch(/^ {4}1 2026-11-\d\d \d\d:\d\d:57\.281450Z {2}10\.77/);
    const local = await roce('dump', '--time', 'absolute', '-c', '1', opAll);
    expect(local.out).toMatch(/^ {4}1 2026-11-\d\d \d\d:\d\d:57\.281450 {2}10\.77/);
  });
});

describe('several files', () => {
  const bytes = readFileSync(opAll);
  /** The capture in two files, packets in turn. */
  const parts = (() => {
    const parser = new CaptureParser();
    parser.push(bytes);
    parser.end();
    const encoders = [new PcapEncoder({ linkType: 1 }), new PcapEncoder({ linkType: 1 })];
    [...parser].forEach((record, i) => {
      const { data, seconds, nanoseconds } = record;
      encoders[i % 2].packet({ data, seconds, nanoseconds });
    });
    mkdirSync(join(folder, 'parts'), { recursive: true });
    return encoders.map((encoder, i) => {
      const path = join(folder, 'parts', `part-${i}.pcap`);
      writeFileSync(path, encoder.take());
      return path;
    });
  })();

  test('are one capture, in any order, and so is their directory', async () => {
    const whole = await roce('dump', opAll);
    expect(await roce('dump', ...parts)).toEqual(whole);
    expect(await roce('dump', ...parts.toReversed())).toEqual(whole);
    expect(await roce('dump', join(folder, 'parts'))).toEqual(whole);
    const flows = (await roce('flows', opAll)).out;
    expect((await roce('flows', ...parts)).out).toBe(flows);
  });

  test('an empty directory and standard input among files are refused', async () => {
    mkdirSync(join(folder, 'none'), { recursive: true });
    expect(await roce('flows', join(folder, 'none'))).toMatchObject({
      code: 1,
      err: expect.stringContaining('has no capture files'),
    });
    expect(await roce('flows', '-', opAll)).toMatchObject({ code: 2 });
  });
});

describe('--filter', () => {
  const frames = (out: string) =>
    out
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line).frame);

  test('packets of dump and export', async () => {
    const filter = ['--filter', 'opcode contains write and frame <= 15'];
    expect(frames((await roce('dump', '--json', ...filter, opAll)).out)).toEqual([13, 14, 15]);
    const output = join(folder, 'filtered.pcapng');
    expect((await roce('export', opAll, ...filter, '-o', output)).code).toBe(0);
    expect(frames((await roce('dump', '--json', output)).out)).toEqual([1, 2, 3]);
  });

  test('connections of flows and report, with their findings', async () => {
    const ids = async (filter: string) =>
      JSON.parse((await roce('flows', '--json', '--filter', filter, ucmatose)).out).connections.map(
        ({ id }: { id: number }) => id,
      );
    expect(await ids('id >= 2 and id != 3')).not.toContain(3);
    expect(await ids('id < 1')).toEqual([]);
  });

  test('a filter that cannot be understood is an error of usage, with the place', async () => {
    for (const command of ['dump', 'flows'])
      expect(await roce(command, '--filter', 'id ==', opAll)).toMatchObject({ code: 2, out: '' });
    const { err } = await roce('dump', '--filter', 'psn == x', opAll);
    expect(err).toContain('--filter: expected a number to compare psn with; found "x" (at character 7)');
  });
});

test('dump prints ICMP errors about RoCE packets', async () => {
  const parser = new CaptureParser();
  parser.push(readFileSync(opAll));
  parser.end();
  const { data } = [...parser][0];
  // Destination unreachable, fragmentation needed, MTU 1500 (RFC 1191), by 10.0.0.1.
  const header = Uint8Array.from([
    ...[0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 1, 0, 0, 10, 0, 0, 1, 10, 77, 0, 2],
    ...[3, 4, 0, 0, 0, 0, 0x05, 0xdc],
  ]);
  const encoder = new PcapEncoder({ linkType: LinkType.RAW });
  encoder.packet({ data: Uint8Array.from([...header, ...data.subarray(14)]), seconds: 1, nanoseconds: 0 });
  const file = join(folder, 'icmp.pcap');
  writeFileSync(file, encoder.take());
  const { out } = await roce('dump', file);
  expect(out).toMatch(
    /^ {4}1 +0\.000000 {2}10\.0\.0\.1 → 10\.77\.0\.2 ICMP too-big, MTU 1500, about 10\.77\.0\.\d → 10\.77\.0\.\d/,
  );
  const json = JSON.parse((await roce('dump', '--json', file)).out);
  expect(json).toMatchObject({ frame: 1, type: 'ICMP', meaning: 'too-big', mtu: 1500, src: '10.0.0.1' });
});
