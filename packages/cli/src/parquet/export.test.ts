/** `roce export --parquet`, read by DuckDB: the counts of `roce flows --json`; and folders that it must not touch. */
import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { PassThrough } from 'node:stream';
import { DuckDBInstance } from '@duckdb/node-api';
import type { Analysis } from '@node-roce/capture/node';
import { PcapEncoder, PcapngEncoder } from '@node-roce/pcap';
import { openCapture } from '@node-roce/pcap/node';
import { describe, expect, test } from 'vitest';
import { ownFolder, removeFolders } from '../../testing/folder.ts';
import { runRoce } from '../../testing/roce.ts';
import { exportParquet } from './export.ts';
import { connectionTable, findingTable, messageTable, packetTable, type Surroundings } from './tables.ts';

const root = join(import.meta.dirname, '../../../..');
const captures = join(root, 'test/fixtures/captures');
const loss5 = join(captures, 'loss5_both_rc_pingpong.pcap');
const folder = ownFolder();
removeFolders();
const roce = (...args: string[]) => runRoce(args);
let folders = 0;
const newFolder = () => join(folder, `${folders++}`);

async function query(sql: string): Promise<Record<string, unknown>[]> {
  const connection = await (await DuckDBInstance.create()).connect();
  try {
    return (await connection.runAndReadAll(sql)).getRowObjectsJson() as Record<string, unknown>[];
  } finally {
    connection.closeSync();
  }
}

const table = (place: string, name: string) =>
  `read_parquet('${place}/${name}/**/*.parquet', hive_partitioning = true)`;

/** All files below a folder. */
const filesOf = (place: string): string[] =>
  readdirSync(place, { recursive: true, encoding: 'utf8' })
    .filter((path) => statSync(join(place, path)).isFile())
    .toSorted();

interface Counts {
  packets: number;
  messages: number;
  connections: number;
  findings: Record<string, number>;
}

function countsOf({ summary, connections, findings }: Analysis): Counts {
  const kinds: Record<string, number> = {};
  for (const { kind } of findings) kinds[kind] = (kinds[kind] ?? 0) + 1;
  return {
    packets: summary.rocePackets,
    messages: connections.reduce((sum, c) => sum + c.messagesFromA.total + c.messagesFromB.total, 0),
    connections: connections.length,
    findings: kinds,
  };
}

async function countsIn(place: string, capture: string): Promise<Counts> {
  const of = async (name: string) => {
    const [row] = await query(
      `SELECT count(*)::INTEGER AS n FROM ${table(place, name)} WHERE capture = '${capture}'`,
    );
    return row.n as number;
  };
  const kinds = await query(
    `SELECT kind, count(DISTINCT finding)::INTEGER AS n FROM ${table(place, 'findings')} WHERE capture = '${capture}' GROUP BY kind`,
  );
  return {
    packets: await of('packets'),
    messages: await of('messages'),
    connections: await of('connections'),
    findings: Object.fromEntries(kinds.map(({ kind, n }) => [kind, n])),
  };
}

const TEN = [
  'loss5_both_rc_pingpong',
  'loss10_A_write',
  'loss15_cm',
  'loss25_B_acks',
  'corrupt_A',
  'cm_rping_ipv6',
  'cm_mckey',
  'err_rnr_exhausted',
  'op_all',
  'op_uc',
];

describe('ten captures in one folder', () => {
  const place = newFolder();

  test.each(TEN)('%s: DuckDB counts what roce flows does', async (name) => {
    const path = join(captures, `${name}.pcap`);
    const { code, err } = await roce('export', path, '--parquet', place, '--host', 'node7');
    expect([code, err]).toEqual([0, expect.stringMatching(/ written to .*, \d+ files\n$/)]);
    const { out } = await roce('flows', '--json', path);
    const analysis: Analysis = JSON.parse(out);
    expect(await countsIn(place, `${name}.pcap`)).toEqual(countsOf(analysis));
    const rows = await query(
      `SELECT connection, count(*)::INTEGER AS n, count(retransmission)::INTEGER AS again FROM ${table(place, 'packets')}
       WHERE capture = '${name}.pcap' AND connection IS NOT NULL AND NOT repeated_frame GROUP BY connection ORDER BY connection`,
    );
    expect(rows).toEqual(
      analysis.connections.map(({ id, aToB, bToA }) => ({
        connection: id,
        n: aToB.packets + bToA.packets,
        again: aToB.retransmitted + bToA.retransmitted,
      })),
    );
  });

  test('times, addresses and lists are those of the analysis', async () => {
    const place = newFolder();
    await roce('export', loss5, '--parquet', place, '--host', 'node7');
    const analysis: Analysis = JSON.parse((await roce('flows', '--json', loss5)).out);
    const of = `WHERE capture = 'loss5_both_rc_pingpong.pcap'`;
    const [first] = await query(
      `SELECT frame, time::VARCHAR AS time, make_timestamp_ns(time_ns)::VARCHAR AS exact, source, host, hour FROM ${table(place, 'packets')} ${of} ORDER BY frame LIMIT 1`,
    );
    const { startTime } = analysis.summary;
    expect(first).toEqual({
      frame: '1',
      time: startTime!.slice(0, 26).replace('T', ' ').replace(/0+$/, ''),
      exact: startTime!.slice(0, 29).replace('T', ' ').replace(/0+$/, ''),
      source: analysis.connections[0].a.address,
      host: 'node7',
      hour: startTime!.slice(0, 13),
    });
    const findings = await query(
      `SELECT text, frames FROM ${table(place, 'findings')} ${of} ORDER BY finding`,
    );
    expect(findings).toEqual(
      analysis.findings
        .flatMap((finding) => finding.members ?? [finding])
        .map(({ text, frames }) => ({ text, frames: frames.map(String) })),
    );
  });

  test('the same capture again is refused, and nothing changes', async () => {
    const place = newFolder();
    await roce('export', loss5, '--parquet', place, '--host', 'node7');
    const before = filesOf(place);
    const { code, err } = await roce('export', loss5, '--parquet', place, '--host', 'node7');
    expect([code, err]).toEqual([1, expect.stringContaining('was exported before')]);
    expect(filesOf(place)).toEqual(before);
    expect(await roce('export', loss5, '--parquet', place, '--host', 'node8')).toMatchObject({ code: 0 });
  });
});

test('a capture that is cut: its readable part, as roce flows counts it, and exit code 1', async () => {
  const cut = join(folder, 'cut.pcap');
  writeFileSync(cut, readFileSync(loss5).subarray(0, 30_001));
  const place = newFolder();
  const { code, err } = await roce('export', cut, '--parquet', place);
  expect([code, err]).toEqual([1, expect.stringContaining('roce: ')]);
  const analysis: Analysis = JSON.parse((await roce('flows', '--json', cut)).out);
  expect(analysis.summary.damage).toBeDefined();
  expect(await countsIn(place, 'cut.pcap')).toEqual(countsOf(analysis));
});

test('a file that is no capture: nothing is written, the folder neither', async () => {
  const other = join(folder, 'other.pcap');
  writeFileSync(other, 'This is no capture.');
  const place = newFolder();
  expect(await roce('export', other, '--parquet', place)).toMatchObject({ code: 1 });
  expect(existsSync(place)).toBe(false);
});

test('a capture without packets: tables without rows', async () => {
  const empty = join(folder, 'empty.pcap');
  writeFileSync(empty, readFileSync(loss5).subarray(0, 24));
  const place = newFolder();
  await roce('export', empty, '--parquet', place);
  expect(await countsIn(place, 'empty.pcap')).toMatchObject({ packets: 0, messages: 0, connections: 0 });
});

test('a folder with other files is refused, and stays as it was', async () => {
  const place = newFolder();
  mkdirSync(place);
  writeFileSync(join(place, 'thesis.txt'), 'mine');
  const { code, err } = await roce('export', loss5, '--parquet', place);
  expect([code, err]).toEqual([1, expect.stringContaining('has other files (thesis.txt)')]);
  expect(filesOf(place)).toEqual(['thesis.txt']);
  expect(await roce('export', loss5, '--parquet', join(place, 'thesis.txt'))).toMatchObject({ code: 1 });
});

test.each([
  [['--parquet', 'x', '-o', 'y'], '-o'],
  [['--parquet', 'x', '--nak'], '--nak'],
  [['--parquet', 'x', '--from', '0'], '--from'],
  [['--parquet', 'x', '--host', '../y'], 'Expected letters'],
  [['--host', 'y', '-o', 'x'], '--host needs --parquet'],
  [[], 'expected -o'],
])('%j is a usage error', async (args, text) => {
  const { code, err } = await roce('export', loss5, ...args);
  expect([code, err]).toEqual([2, expect.stringContaining(text)]);
});

test('an interrupt leaves neither files nor folders', async () => {
  const place = newFolder();
  const interrupted = new AbortController();
  const bytes = readFileSync(loss5);
  const source = new PassThrough();
  source.write(bytes.subarray(0, 20_000));
  let seen: string[] = [];
  const options = {
    folder: place,
    host: 'a',
    capture: 'trace',
    signal: interrupted.signal,
    onProgress: () => {
      seen = filesOf(place);
      interrupted.abort(new Error('ended by SIGINT'));
    },
  };
  await expect(exportParquet(source, options)).rejects.toThrow('SIGINT');
  expect(seen.length).toBeGreaterThan(0);
  for (const path of seen) expect(path).toMatch(/^\.roce-export-/);
  expect(existsSync(place)).toBe(false);
});

test('a folder that cannot be made is an error: Node’s recursive mkdir would go round for ever in /proc', async () => {
  const options = { folder: '/proc/tables', host: 'a', capture: 'loss5' };
  await expect(exportParquet([loss5], options)).rejects.toThrow('ENOENT');
});

test('a full disk: one line names the folder, and nothing of the capture is left', () => {
  const place = newFolder();
  mkdirSync(place);
  const script = `mount -t tmpfs -o size=16k none ${place} || exit 77
    ${process.execPath} ${join(root, 'packages/cli/bin/roce.js')} export ${loss5} --parquet ${place}/tables; code=$?
    ls -A ${place}; exit $code`;
  const { status, stdout, stderr } = spawnSync('unshare', ['-rm', 'sh', '-c', script], { encoding: 'utf8' });
  expect({ status, stdout, stderr }).toEqual({
    status: 1,
    stdout: '',
    stderr: `roce: ${place}/tables: no space left on device. Nothing of this capture was left there\n`,
  });
});

describe('hours', () => {
  /** The first packets of a capture, each in the hour of `hourOf`. */
  async function withHours(name: string, hourOf: (i: number) => number): Promise<string> {
    const encoder = new PcapEncoder({ linkType: 1 });
    let i = 0;
    await using capture = openCapture(loss5);
    for await (const batch of capture) {
      for (const { data } of batch) {
        if (i === 60) break;
        encoder.packet({ data, seconds: 1_767_225_600 + 3600 * hourOf(i), nanoseconds: i++ });
      }
    }
    const path = join(folder, name);
    writeFileSync(path, encoder.take());
    return path;
  }

  test.each([
    ['a capture over five hours: a file each', 'five.pcap', (i: number) => Math.floor(i / 12), 5],
    [
      'times that jump between five hours: parts, as few files are open',
      'jump.pcap',
      (i: number) => i % 5,
      60,
    ],
  ])('%s', async (_, name, hourOf, files) => {
    const place = newFolder();
    const path = await withHours(name, hourOf);
    await roce('export', path, '--parquet', place);
    expect(filesOf(join(place, 'packets'))).toHaveLength(files);
    const rows = await query(
      `SELECT hour, count(*)::INTEGER AS n FROM ${table(place, 'packets')} GROUP BY hour ORDER BY hour`,
    );
    expect(rows).toEqual([0, 1, 2, 3, 4].map((hour) => ({ hour: `2026-01-01T0${hour}`, n: 12 })));
    const wrong = await query(
      `SELECT * FROM ${table(place, 'packets')} WHERE strftime(time, '%Y-%m-%dT%H') <> hour`,
    );
    expect(wrong).toEqual([]);
  });

  test('a capture without times: null', async () => {
    const encoder = new PcapngEncoder({});
    encoder.interface({ linkType: 1 });
    const bytes: Uint8Array[] = [encoder.take()];
    await using capture = openCapture(loss5);
    for await (const batch of capture) for (const { data } of batch) bytes.push(simplePacket(data));
    const path = join(folder, 'timeless.pcapng');
    writeFileSync(path, Buffer.concat(bytes));
    const place = newFolder();
    await roce('export', path, '--parquet', place);
    const rows = await query(
      `SELECT hour, count(*)::INTEGER AS n, count(time)::INTEGER AS times FROM ${table(place, 'packets')} GROUP BY hour`,
    );
    expect(rows).toEqual([{ hour: null, n: 364, times: 0 }]);
  });
});

/** A simple packet block of pcapng: a frame without a time. */
function simplePacket(data: Uint8Array): Uint8Array {
  const length = 16 + Math.ceil(data.length / 4) * 4;
  const block = Buffer.alloc(length);
  block.writeUInt32LE(3, 0);
  block.writeUInt32LE(length, 4);
  block.writeUInt32LE(data.length, 8);
  block.set(data, 12);
  block.writeUInt32LE(length, length - 4);
  return block;
}

test('docs/capture-export.md describes every column, in order', () => {
  const page = readFileSync(join(root, 'docs/capture-export.md'), 'utf8');
  const section = page.slice(page.indexOf('### The columns'));
  const given = {} as Surroundings;
  for (const { name, columns } of [
    packetTable(given),
    messageTable(given),
    connectionTable(given),
    findingTable(given),
  ]) {
    const part = section.slice(section.indexOf(`**\`${name}\`**`));
    const rows = part.slice(part.indexOf('|---'), part.indexOf('\n\n', part.indexOf('|---')));
    const documented = [...rows.matchAll(/^\| `(.*?)` \| (.*?) \|/gm)].flatMap(([, names, type]) =>
      names.split('`, `').map((each) => [each, type]),
    );
    const TYPES: Record<string, string> = { 'INT64[]': 'LIST of INT64' };
    expect(documented).toEqual(columns.map((column) => [column.name, TYPES[column.type] ?? column.type]));
  }
});

test('the queries of docs/capture-export.md run, and each finds something', async () => {
  const place = newFolder();
  await roce('export', loss5, '--parquet', place);
  const [, text] = /```sql\n([\s\S]*?)```/.exec(readFileSync(join(root, 'docs/capture-export.md'), 'utf8'))!;
  const queries = text.split(';').filter((each) => each.trim() !== '');
  expect(queries).toHaveLength(3);
  for (const each of queries) expect(await query(each.replaceAll("'tables/", `'${place}/`))).not.toEqual([]);
});
