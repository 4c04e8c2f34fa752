/** `roce perf` as a process: two of them, one alone with --local, wrong usage. */
import { spawn } from 'node:child_process';
import { mkdtempSync, readFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';

const bin = join(import.meta.dirname, '../../packages/cli/bin/roce.js');
const folder = mkdtempSync(join(tmpdir(), 'roce-perf-'));
/** Ports of our own, so that whatever has 4791 and 18515 on this machine does not matter. */
const UDP_PORT = `${25_900 + (process.pid % 1000)}`;
let port = 27_000 + (process.pid % 4000);

function start(...args: string[]) {
  const child = spawn(process.execPath, [bin, 'perf', ...args], { cwd: folder });
  let out = '';
  let err = '';
  let waits = () => {};
  const listens = new Promise<void>((resolve) => {
    waits = resolve;
  });
  child.stdout.on('data', (data) => {
    out += data;
  });
  child.stderr.on('data', (data) => {
    err += data;
    if (err.includes('waiting')) waits();
  });
  const result = new Promise<{ code: number | null; out: string; err: string }>((resolve) => {
    child.on('close', (code) => {
      waits();
      resolve({ code, out, err });
    });
  });
  return { result, listens, child };
}
const perf = (...args: string[]) => start(...args).result;
const place = (bind: string) => ['--bind', bind, '--udp-port', UDP_PORT, '-p', `${port}`];

/** A server and a client with the same options; both have to succeed. */
async function both(...args: string[]) {
  port++;
  const server = start(...args, ...place('127.0.0.1'));
  await server.listens;
  const client = await perf(...args, ...place('127.0.0.2'), '127.0.0.1');
  // A server waits for its client without limit.
  if (client.code !== 0) server.child.kill();
  const served = await server.result;
  expect({ server: served.code, client: client.code }, served.err + client.err).toEqual({
    server: 0,
    client: 0,
  });
  return { server: served.out, client: client.out };
}

/** The cells of the first row of figures. */
const row = (out: string) =>
  out
    .split('\n')
    .find((line) => /^ \d/.test(line))
    ?.trim()
    .split(/\s+/);

test('--json-stream: a line for each interval, then the result', async () => {
  const options = ['--local', 'write', 'bw', '-D', '1', '-f', '0', '--udp-port', UDP_PORT];
  const { code, out } = await perf(...options, '--interval', '0.1', '--json-stream');
  expect(code).toBe(0);
  const lines = out
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line));
  const [result, ...intervals] = lines.toReversed();
  expect(result).toMatchObject({ event: 'result', unit: 'MiB/s', runs: [{ size: 65_536 }] });
  expect(intervals.length).toBeGreaterThan(0);
  for (const interval of intervals)
    expect(interval).toMatchObject({ event: 'interval', unit: 'MiB/s', size: 65_536 });
  const ends = intervals.map(({ start }) => start);
  expect(ends).toEqual(
    intervals
      .slice(1)
      .map(({ end }) => end)
      .concat(0),
  );
  // The run of 1 s leaves out what was under way at its end.
  const within = intervals.filter(({ end }) => end <= 1).reduce((sum, { messages }) => sum + messages, 0);
  expect(within).toBeLessThanOrEqual(result.runs[0].iterations);
});

test('the server prints the report of the client', { tags: ['slow', 'gate'] }, async () => {
  const { server, client } = await both('write', 'bw', '-n', '50', '-s', '4096');
  expect(row(client)).toHaveLength(5);
  expect(row(client)!.slice(0, 2)).toEqual(['4096', '50']);
  expect(row(server)).toEqual(row(client));
  expect(server).toContain('Measured by the peer');
});

test('over the connection manager, as JSON', { tags: ['slow', 'gate'] }, async () => {
  const { server, client } = await both('send', 'lat', '-n', '50', '-R', '--json');
  for (const out of [server, client]) {
    const [run] = JSON.parse(out).runs;
    expect(run).toMatchObject({ size: 2, iterations: 50 });
    expect(run.percentiles['99']).toBeGreaterThanOrEqual(run.percentiles['50']);
  }
});

test('latencies by powers of two, and the last run in a file', { tags: ['slow'] }, async () => {
  const { client } = await both('read', 'lat', '-n', '50', '--histogram', '--out_json_file', 'last.json');
  expect(client).toMatch(/messages by latency\[usec\]:\n.*#/);
  const { test_info, results } = JSON.parse(readFileSync(join(folder, 'last.json'), 'utf8'));
  expect(test_info.test).toBe('RDMA_Read_Latency_Test');
  expect(results).toBeTypeOf('object');
});

test('both ends at one address: the client has the reason', { tags: ['slow'] }, async () => {
  port++;
  const server = start('write', 'bw', ...place('127.0.0.1'));
  await server.listens;
  const { code, err } = await perf('write', 'bw', ...place('127.0.0.1'), '127.0.0.1');
  expect({ code, err }).toEqual({ code: 1, err: expect.stringContaining('each side needs its own') });
  expect((await server.result).err).toContain('at 127.0.0.1 is in use');
});

test('both ends on this machine', async () => {
  const { code, out, err } = await perf(
    '--local',
    'write',
    'bw',
    '-n',
    '50',
    '--udp-port',
    UDP_PORT,
    '--json',
  );
  expect({ code, err }).toEqual({ code: 0, err: '' });
  expect(JSON.parse(out)).toMatchObject({ measuredBy: 'this side', runs: [{ iterations: 50 }] });
});

test('both ends on this machine, of both tests: one JSON document', { tags: ['slow'] }, async () => {
  const { code, out, err } = await perf('--local', '-n', '20', '--udp-port', UDP_PORT, '--json');
  expect({ code, err }).toEqual({ code: 0, err: '' });
  expect(JSON.parse(out)).toMatchObject([
    { plan: { verb: 'write', measure: 'bw' }, runs: [{ iterations: 20 }] },
    { plan: { verb: 'send', measure: 'lat' }, runs: [{ iterations: 20 }] },
  ]);
});

test('a file that can not be written does not take the result along', { tags: ['slow'] }, async () => {
  const file = join(folder, 'none/x.json');
  const { code, out, err } = await perf(
    ...['--local', 'read', 'lat', '-n', '20', '--udp-port', UDP_PORT, '--out_json_file', file],
  );
  expect({ code, err }).toEqual({ code: 1, err: `roce: ${file}: no such file or directory\n` });
  expect(row(out)!.slice(0, 2)).toEqual(['2', '20']);
});

describe('wrong usage is exit code 2, and names the error', () => {
  test.each([
    [['write'], /expected a verb .* and a measure/],
    [['push', 'bw'], /expected a verb/],
    [['write', 'bw', '--use-srq'], /--use-srq of perftest is not supported: each queue pair/],
    [['send', 'bw', '-g'], /--mcg of perftest is not supported/],
    [['write', 'bw', '--rate_limit', '5'], /--rate_limit of perftest is not supported/],
    [['read', 'bw', '-c', 'UC'], /UC has no read/],
    [['write', 'lat', '-b'], /^roce: -b: for bandwidth only/],
    [['atomic', 'bw', '-s', '16'], /an atomic has 8 bytes/],
    [['write', 'bw', '-n', '4'], /5 …/],
    [['write', 'bw', '-R'], /a server with -R/],
    [['send', 'bw', '-R', '-c', 'UC', '--bind', '127.0.0.1'], /has no UC/],
    [['--local', 'write', 'bw', '127.0.0.1'], /leave out the host/],
    [['--local', '--json', '--json-stream'], /name one of both/],
    [['--local', 'send', 'lat', '-q', '2'], /^roce: -q: send lat has one queue pair/],
    [['write', 'bw', '--nonsense'], /unknown option '--nonsense'/],
  ])('%j', async (args, message) => {
    const { code, out, err } = await perf(...args);
    expect({ code, out }).toEqual({ code: 2, out: '' });
    expect(err).toMatch(message);
  });
});

describe('a peer of another kind is exit code 1, with one line', { tags: ['slow'] }, () => {
  test('nobody listens', async () => {
    const { code, err } = await perf('write', 'bw', ...place('127.0.0.2'), '127.0.0.1');
    expect({ code, err }).toMatchObject({
      code: 1,
      err: expect.stringMatching(/^roce: no server listens at TCP port/),
    });
  });

  test('an HTTP server', async () => {
    const server = createServer((socket) => {
      socket.on('error', () => {});
      socket.end('HTTP/1.1 400 Bad Request\r\n\r\n');
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    const { port: at } = server.address() as { port: number };
    const { code, err } = await perf(
      'write',
      'bw',
      ...place('127.0.0.2').slice(0, 4),
      '-p',
      `${at}`,
      '127.0.0.1',
    );
    server.close();
    expect({ code, err }).toMatchObject({ code: 1, err: expect.stringMatching(/in place of its version/) });
  });

  test('a client that sends nothing', async () => {
    port++;
    const server = start('write', 'bw', ...place('127.0.0.1'), '--timeout', '0.5');
    await server.listens;
    const { connect } = await import('node:net');
    const socket = connect(port, '127.0.0.1');
    socket.on('error', () => {});
    const { code, err } = await server.result;
    socket.destroy();
    expect({ code, err }).toMatchObject({
      code: 1,
      err: expect.stringMatching(/the peer was silent for 0\.5 s/),
    });
  });
});
