/** The `roce` command as a process: pipes, signals, two of them talking to each other. */
import { type ChildProcessWithoutNullStreams, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, openSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { createServer, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, onTestFinished, test } from 'vitest';
import { runRoce } from '../../packages/cli/testing/roce.ts';

const root = join(import.meta.dirname, '../..');
const bin = join(root, 'packages/cli/bin/roce.js');
const opAll = join(root, 'test/fixtures/captures/op_all.pcap');
const folder = mkdtempSync(join(tmpdir(), 'roce-cli-'));

/** Ports of our own, so that whatever has 4791 on this machine does not matter. */
const UDP_PORT = 24_800 + (process.pid % 1000);
let tcpPort = 20_000 + (process.pid % 4000);

interface Result {
  code: number | null;
  out: string;
  err: string;
}

class Roce {
  readonly child: ChildProcessWithoutNullStreams;
  readonly result: Promise<Result>;
  #out = '';
  #err = '';

  constructor(args: readonly string[], env: Record<string, string> = {}) {
    this.child = spawn(process.execPath, [bin, ...args], {
      cwd: folder,
      env: { PATH: process.env.PATH, ...env },
    });
    this.child.stdout.on('data', (data) => {
      this.#out += data;
    });
    this.child.stderr.on('data', (data) => {
      this.#err += data;
    });
    this.result = new Promise((resolve) => {
      this.child.on('close', (code) => resolve({ code, out: this.#out, err: this.#err }));
    });
  }

  /** Resolves when stderr has that text. */
  async said(text: string): Promise<void> {
    while (!this.#err.includes(text)) {
      if (this.child.exitCode !== null) throw new Error(`ended without printing '${text}': ${this.#err}`);
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
  }
}

const roce = (...args: string[]) => new Roce(args).result;
/** As on a machine without a compiler. */
const roceWithoutAddon = (...args: string[]) => new Roce(args, { ROCE_ADDON_FOLDER: '/nonexistent' }).result;

describe('pipes', () => {
  test('a reader that goes away ends it with 0, silently', async () => {
    const dump = new Roce(['dump', '-x', join(root, 'test/fixtures/captures/pp_rc_m1024_s9000.pcap')]);
    dump.child.stdout.once('data', () => dump.child.stdout.destroy());
    expect(await dump.result).toMatchObject({ code: 0, err: '' });
  });

  test('messages that nobody reads change nothing: all of the output, and the exit code', async () => {
    const capture = readFileSync(opAll);
    // Its second frame is refused: the UDP length is wrong.
    const second = 24 + 16 + capture.readUInt32LE(24 + 8) + 16;
    capture.writeUInt16BE(9, second + 14 + 20 + 4);
    const dump = (stderr: 'heard' | 'unheard') => {
      const { child, result } = new Roce(['dump', '-']);
      if (stderr === 'unheard') child.stderr.destroy();
      const rest = () => child.stdin.end(capture.subarray(10_000, -1));
      // After the line of the first frame and the message about the second.
      child.stdout.once('data', rest);
      child.stdin.write(capture.subarray(0, 10_000));
      return result;
    };
    const { code, out, err } = await dump('heard');
    expect(err).toContain('frame 2 is not shown: malformed');
    expect(code).toBe(1);
    expect(await dump('unheard')).toEqual({ code, out, err: '' });
  });

  test.each([
    ['a text, written at the end', ['devinfo']],
    ['a document, written in parts', ['flows', '--json', opAll]],
  ])('reports standard output that cannot be written: %s', async (_what, args) => {
    const child = spawn(process.execPath, [bin, ...args], {
      stdio: ['ignore', openSync('/dev/full', 'w'), 'pipe'],
    });
    let err = '';
    child.stderr?.on('data', (data) => {
      err += data;
    });
    const [code] = await once(child, 'close');
    expect({ code, err }).toEqual({
      code: 1,
      err: 'roce: standard output cannot be written: ENOSPC: no space left on device, write\n',
    });
  });

  test('standard input from a pipe and from a file', async () => {
    const expected = await roce('dump', opAll);
    expect(expected.code).toBe(0);
    const piped = new Roce(['dump', '-']);
    piped.child.stdin.end(readFileSync(opAll));
    expect(await piped.result).toEqual(expected);
    const child = spawn(process.execPath, [bin, 'dump', '-'], {
      stdio: [openSync(opAll, 'r'), 'pipe', 'inherit'],
    });
    let out = '';
    child.stdout?.on('data', (data) => {
      out += data;
    });
    await new Promise((resolve) => child.on('close', resolve));
    expect(out).toBe(expected.out);
  });
});

test('ping: nobody there: after --timeout, an error that names the command to start', async () => {
  const { code, out, err } = await roce('ping', '--timeout', '0.2005', '--bind', '127.0.8.2', '127.0.8.3');
  expect({ code, out }).toEqual({ code: 1, out: '' });
  expect(err).toContain(
    "no answer from port 7174 of 127.0.8.3 within 0.2005 s: start 'rping -s' or 'roce rping -s'",
  );
});

describe('pingpong', () => {
  const ours = (...args: string[]) => [
    'pingpong',
    '--udp-port',
    `${UDP_PORT}`,
    '--port',
    `${tcpPort}`,
    ...args,
  ];

  interface Exchange {
    what: string;
    args: string[];
  }
  const EXCHANGES: Exchange[] = [{ what: 'the defaults', args: ['--iters', '200'] }];
  const ALSO: Exchange[] = [
    { what: 'UD', args: ['--type', 'ud', '-n', '50'] },
    { what: 'an SRQ, 3 QPs', args: ['--srq', '-q', '3', '-r', '3', '-e'] },
  ];
  const MORE: Exchange[] = [
    { what: 'events', args: ['--iters', '100', '--events'] },
    { what: 'large messages', args: ['--iters', '5', '--size', '1M', '--mtu', '4096'] },
    { what: 'one byte', args: ['--iters', '50', '--size', '1'] },
    { what: 'receives one by one', args: ['-n', '50', '-r', '1'] },
    { what: 'UC', args: ['--type', 'uc', '-s', '10000', '-n', '50'] },
    { what: 'UD, a full packet', args: ['-t', 'ud', '-s', '4096', '-e'] },
    { what: 'an SRQ', args: ['--srq', '-n', '500', '-s', '5000'] },
  ];
  const title = '$what: two of them, data checked on both sides';
  test.each(EXCHANGES)(title, testExchange);
  test.each(ALSO)(title, { tags: ['slow', 'gate'] }, testExchange);
  test.each(MORE)(title, { tags: ['slow'] }, testExchange);

  async function testExchange({ args }: Exchange) {
    const [at, from] = ['127.0.8.1', '127.0.8.2'];
    tcpPort++;
    const server = new Roce(ours('--bind', at, '--json', '--check', ...args));
    await server.said('waiting for a client');
    const client = await roce(...ours('--bind', from, '--json', '--check', ...args, at));
    const served = await server.result;
    expect(client.err + served.err.replace(/waiting .*\n/, '')).toBe('');
    expect([client.code, served.code]).toEqual([0, 0]);
    const [a, b] = [JSON.parse(client.out), JSON.parse(served.out)];
    expect(a).toMatchObject({ wrongPages: [], icrcErrors: 0, bytes: 2 * a.size * a.iters });
    expect(b).toMatchObject({ wrongPages: [], icrcErrors: 0, bytes: a.bytes });
    expect([a.local, a.remote]).toEqual([b.remote, b.local]);
  }

  test('text in the words of ibv_rc_pingpong; the addresses are chosen from the way to the peer', async () => {
    tcpPort++;
    // Both ends at 127.0.0.1 would need the same UDP port twice, so only the client chooses here.
    const server = new Roce(ours('--bind', '127.0.8.1', '--iters', '20'));
    await server.said('waiting for a client');
    const client = await roce(...ours('--iters', '20', '127.0.8.1'));
    expect(client.code, client.err).toBe(0);
    const address = (name: string, ip: string) =>
      `  ${name} LID 0x0000, QPN 0x[0-9a-f]{6}, PSN 0x[0-9a-f]{6}, GID ::ffff:${ip}\\n`;
    expect(client.out).toMatch(
      new RegExp(
        `^${address('local address: ', '127.0.0.1')}${address('remote address:', '127.0.8.1')}` +
          '163840 bytes in \\d+\\.\\d\\d seconds = \\d+\\.\\d\\d Mbit/sec\\n' +
          '20 iters in \\d+\\.\\d\\d seconds = \\d+\\.\\d\\d usec/iter\\n$',
      ),
    );
    expect((await server.result).code).toBe(0);
  });

  test.each([
    [['--srq', '--type', 'ud'], '--srq needs --type rc'],
    [['--num-qp', '4'], '--num-qp needs --srq'],
    [['--srq', '--rx-depth', '10'], '--rx-depth 10: expected at least 16'],
  ])('%s: exit code 2', async (args, message) => {
    const { code, err } = await roce(...ours(...args));
    expect(code).toBe(2);
    expect(err).toContain(message);
  });

  test('a datagram that does not fit', async () => {
    const { code, err } = await roce(...ours('--bind', '127.0.8.1', '--type', 'ud', '--size', '4097'));
    expect(code).toBe(1);
    expect(err).toContain('a datagram of 4097 bytes does not fit');
  });

  test('a peer that speaks something else: an error, exit code 1', { tags: ['slow'] }, async () => {
    const port = ++tcpPort;
    const http = createServer((socket) => {
      socket.on('error', () => {});
      socket.end('HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n');
    }).listen(port, '127.0.8.1');
    const { code, out, err } = await roce(...ours('--bind', '127.0.8.2', '127.0.8.1'));
    http.close();
    expect({ code, out }).toEqual({ code: 1, out: '' });
    expect(err).toMatch(/the peer sent "HTTP.*" *, which is not an address as ibv_rc_pingpong sends it/);
  });

  test('nobody there: an error that names the command to start', async () => {
    tcpPort++;
    const { code, err } = await roce(...ours('127.0.8.1'));
    expect(code).toBe(1);
    expect(err).toContain(`no server listens at TCP port ${tcpPort} of 127.0.8.1: start 'roce pingpong'`);
  });

  test('a host without an address is named', async () => {
    const { code, err } = await roce(...ours('nowhere.invalid'));
    expect({ code, err }).toEqual({
      code: 1,
      err: 'roce: nowhere.invalid: cannot find the address of this host\n',
    });
  });

  test('-d, -g and -i choose the local GID, as in ibv_rc_pingpong', { tags: ['slow'] }, async () => {
    tcpPort++;
    const server = new Roce(ours('--bind', '127.0.8.1', '-n', '20'));
    await server.said('waiting for a client');
    const client = await roce(...ours('-n', '20', '-d', 'lo', '-g', '0', '-i', '1', '127.0.8.1'));
    expect(client.code, client.err).toBe(0);
    expect(client.out).toMatch(/local address: .* GID ::ffff:127\.0\.0\.1\n/);
    expect((await server.result).code).toBe(0);
    const beyond = await roce(...ours('-d', 'lo', '-g', '99'));
    expect(beyond.code).toBe(2);
    expect(beyond.err).toMatch(/^roce: -g 99: lo has no such GID .*0 \(127\.0\.0\.1\)/);
    const unknown = await roce(...ours('-d', 'rxe0', '-g', '1'));
    expect(unknown).toMatchObject({ code: 1, err: expect.stringMatching(/no interface rxe0.*\blo\b/) });
  });

  test.each([
    ['larger', '4096', '8192', 'the peer sends larger messages; --size must be equal on both sides'],
    ['smaller', '8192', '4096', 'the peer expects smaller messages; --size must be equal on both sides'],
  ])('a peer with a %s --size: the error names both sizes', async (_what, size, other, message) => {
    tcpPort++;
    // The side with the smaller buffers receives too much; the side with the larger messages is refused.
    const server = new Roce(ours('--bind', '127.0.8.1', '-n', '20', '--size', size));
    await server.said('waiting for a client');
    const args = ['-n', '20', '--size', other];
    const client = await roce(...ours('--bind', '127.0.8.2', ...args, '127.0.8.1'));
    const served = await server.result;
    expect([client.code, served.code]).toEqual([1, 1]);
    expect(served.err).toContain(message);
  });

  test.each(['dump', 'flows'])('SIGINT ends roce %s that waits for more of its input', async (command) => {
    const reader = new Roce([command, '-']);
    // More than a pipe holds: once all of it is written, the command reads. The last packet is cut.
    const capture = readFileSync(opAll);
    const packets = capture.subarray(24);
    const input = Buffer.concat([capture, ...Array(100).fill(packets), packets.subarray(0, 3000)]);
    await new Promise((resolve) => reader.child.stdin.write(input, resolve));
    reader.child.kill('SIGINT');
    const { code, err } = await reader.result;
    expect({ code, err }).toEqual({ code: 130, err: expect.stringContaining('interrupted') });
  });

  test.each(['SIGINT', 'SIGTERM'] as const)('%s ends a waiting server', async (signal) => {
    tcpPort++;
    const server = new Roce(ours('--bind', '127.0.8.1'));
    await server.said('waiting for a client');
    server.child.kill(signal);
    const { code, out, err } = await server.result;
    expect({ code, out }).toEqual({ code: 130, out: '' });
    expect(err).toMatch(/interrupted\n$/);
  });

  test('SIGINT ends a running exchange; the peer notices', async () => {
    tcpPort++;
    const args = ['--iters', '10M', '--timeout', '10'];
    const server = new Roce(ours('--bind', '127.0.8.1', ...args));
    await server.said('waiting for a client');
    const client = new Roce(ours('--bind', '127.0.8.2', ...args, '127.0.8.1'));
    await new Promise((resolve) => client.child.stdout.once('data', resolve));
    client.child.kill('SIGINT');
    expect((await client.result).code).toBe(130);
    const { code, err } = await server.result;
    expect(code).toBe(1);
    expect(err).toMatch(/silent for 10 s|the peer no longer answers/);
  });
});

test('an interrupted export leaves no file', async () => {
  const output = join(folder, 'partial.pcapng');
  const reader = new Roce(['export', '-', '-o', output]);
  reader.child.stdin.write(readFileSync(opAll).subarray(0, 3000));
  while (!existsSync(output)) await new Promise((resolve) => setTimeout(resolve, 10));
  reader.child.kill('SIGINT');
  expect(await reader.result).toEqual({ code: 130, out: '', err: 'interrupted\n' });
  expect(existsSync(output)).toBe(false);
});

describe('demo', () => {
  const places = ['--a', '127.0.9.1', '--b', '127.0.9.2', '--udp-port', `${UDP_PORT}`];

  test('the first SIGINT ends it', { tags: ['slow', 'gate'] }, async () => {
    const received = () => Number(/lo: *(\d+)/.exec(readFileSync('/proc/net/dev', 'utf8'))![1]);
    const before = received();
    const demo = new Roce(['demo', ...places, '--size', '1G', '--loss', '0']);
    await expect.poll(received).toBeGreaterThan(before + 2 ** 24);
    demo.child.kill('SIGINT');
    expect(await demo.result).toEqual({ code: 130, out: '', err: 'interrupted\n' });
  });

  test('everything arrives as it was sent', async () => {
    const { code, out, err } = await roce('demo', ...places, '--size', '2M', '--json');
    expect(code, err).toBe(0);
    const report = JSON.parse(out);
    expect(report).toMatchObject({ ok: true, pathMtu: 4096 });
    expect(report.operations.map((row: { what: string; equal: boolean }) => [row.what, row.equal])).toEqual([
      ['SEND', true],
      ['RDMA WRITE', true],
      ['RDMA READ', true],
    ]);
    expect(report.roundTripMicroseconds).toMatchObject({ bytes: 64, p50: expect.any(Number) });
    expect(report.roundTripMicroseconds.p50).toBeGreaterThan(0);
  });

  // `npm run demo` has roce in its PATH; the shell of a clone has not.
  test.each([
    ['npm run demo', { npm_lifecycle_event: 'demo' }, 'node packages/cli/bin/roce.js'],
    ['roce demo', {}, 'roce'],
  ])('%s names a command that its user can type', async (_title, env, command) => {
    const trace = join(folder, 'demo.pcapng');
    const small = ['--size', '4K', '--loss', '0', '--trace', trace];
    const { out } = await runRoce(['demo', ...places, ...small], { isTTY: true, columns: 1000, env });
    expect(out).toContain(`Look at the packets: ${command} dump ${trace} | head,`);
  });

  test('the same over loss: losses and retransmissions are printed, and depend on the seed', {
    tags: ['slow'],
  }, async () => {
    const again = ['--size', '4M', '--loss', '2', '--seed', '9', '--json'];
    const runs = [await roce('demo', ...places, ...again), await roce('demo', ...places, ...again)];
    for (const { code, out, err } of runs) {
      expect(code, err).toBe(0);
      const { underLoss } = JSON.parse(out);
      expect(underLoss).toMatchObject({ loss: 0.02, seed: 9 });
      const { operations } = underLoss as { operations: Record<string, number>[] };
      expect(operations.map(({ what, equal }) => [what, equal])).toEqual([
        ['SEND', true],
        ['RDMA WRITE', true],
        ['RDMA READ', true],
      ]);
      for (const { lost, retransmitted } of operations) {
        expect(lost).toBeGreaterThan(0);
        expect(retransmitted).toBeGreaterThan(0);
      }
    }
    const { out, code } = await roce('demo', ...places, '--size', '64K', '--loss', '0', '--json');
    expect([code, JSON.parse(out).underLoss.operations]).toEqual([0, []]);
  });

  test('without the addon: over dgram, with a warning', { tags: ['slow', 'gate'] }, async () => {
    const { code, out, err } = await roceWithoutAddon('demo', ...places, '--size', '1M');
    expect(code, err).toBe(0);
    expect(out).toMatch(/^Link: dgram .*reaches node-roce programs only/m);
    expect(out).toMatch(/awaited$/m);
    expect(out).toContain('All data arrived as it was sent.');
    expect(err).not.toContain('Warning');
    const native = await roce('demo', ...places, '--size', '64K', '--loss', '0', '--json');
    expect(JSON.parse(native.out)).toMatchObject({ link: 'udp' });
  });

  test('a table, and a capture of the packets', { tags: ['slow', 'gate'] }, async () => {
    const { code, out } = await roce(
      'demo',
      ...places.slice(0, 4),
      '--size',
      '64K',
      '--trace',
      'shown.pcapng',
    );
    expect(code).toBe(0);
    expect(out).toMatch(/^RDMA WRITE +1 +65536 +\d+ +0 +\d+\.\d\d +[0-9a-f]{12}… equal/m);
    const { out: dumped, err } = await roce('dump', '--json', 'shown.pcapng');
    expect(err).toBe('');
    const packets = dumped
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line));
    expect(new Set(packets.map((packet) => packet.icrc))).toEqual(new Set(['ok']));
    const names = packets.map((packet) => packet.opcode);
    for (const name of ['RC SEND First', 'RC RDMA WRITE First', 'RC RDMA READ Request', 'RC Acknowledge']) {
      expect(names).toContain(name);
    }
    expect(packets[0]).toMatchObject({ src: '127.0.9.1', dst: '127.0.9.2' });
  });

  test('a port that is taken: its owner, and remedies', async () => {
    const { code, out, err } = await roce(
      'demo',
      '--a',
      '127.0.9.3',
      '--b',
      '127.0.9.3',
      '--udp-port',
      `${UDP_PORT}`,
    );
    expect({ code, out }).toEqual({ code: 1, out: '' });
    expect(err).toContain(`UDP port ${UDP_PORT} at 127.0.9.3 is in use`);
    expect(err).toContain('roce demo --udp-port');
  });

  test('a port that another command has: the remedy is an option of the command line', async () => {
    const device = new Roce(['device', '-a', '127.0.9.8', '--socket', join(folder, 'taken.sock')]);
    await device.said('127.0.9.8');
    const { code, err } = await roce('device', '-a', '127.0.9.8', '--socket', join(folder, 'second.sock'));
    device.child.kill('SIGTERM');
    await device.result;
    expect(code).toBe(1);
    expect(err).toMatch(
      /UDP port 4791 at 127\.0\.9\.8 is in use: process \d+ \(node\) has it: end that, or use another address \(--bind\)/,
    );
    expect(err).not.toContain('shared: true');
  });
});

describe('doctor', () => {
  test('every check has a verdict and a sentence', async () => {
    const { code, out } = await roce('doctor', '--json', '--bind', '127.0.9.4');
    const { ok, checks } = JSON.parse(out);
    expect(code).toBe(ok ? 0 : 1);
    expect(checks.map((check: { check: string }) => check.check)).toEqual([
      'addon',
      'port',
      'receive buffer',
      'link',
      'xdp',
      'loopback',
    ]);
    expect(checks.find((check: { check: string }) => check.check === 'xdp').text).toMatch(
      /^(this process may open )?link: 'xdp'/,
    );
    expect(checks.find((check: { check: string }) => check.check === 'loopback').verdict).toBe('ok');
  });

  test('without the addon: a warning with the remedy and the features that work without it', async () => {
    const { code, out } = await roceWithoutAddon('doctor', '--json', '--bind', '127.0.9.4');
    const { checks } = JSON.parse(out) as { checks: { check: string; verdict: string; text: string }[] };
    expect(code).toBe(0);
    const of = (name: string) => checks.find(({ check }) => check === name);
    expect(of('addon')).toMatchObject({ verdict: 'warn', text: expect.stringContaining('build:native') });
    expect(of('link')).toMatchObject({ verdict: 'warn', text: expect.stringMatching(/^dgram\..*node-roce/) });
    expect(of('loopback')).toMatchObject({ verdict: 'ok' });
  });

  test('a peer where nobody listens is a failure', async () => {
    const { code, out } = await roce('doctor', '127.0.9.5');
    expect(code).toBe(1);
    expect(out).toMatch(/^ok {4}route: packets to 127\.0\.9\.5 leave from 127\.0\.0\.1 on lo$/m);
    expect(out).toMatch(/^fail {2}peer: no program has UDP port 4791 at 127\.0\.9\.5/m);
  });
});

test('devinfo prints the link that a device would have', async () => {
  expect(JSON.parse((await roce('devinfo', '--json')).out).link).toBe('udp');
  expect(JSON.parse((await roceWithoutAddon('devinfo', '--json')).out).link).toBe('dgram');
  expect((await roceWithoutAddon('devinfo')).out).toMatch(/^\tlink:\t\tdgram \(no native addon/m);
});

test('devinfo shows a device that serves programs, by its socket', async () => {
  const address = `127.91.${process.pid & 0xff}.2`;
  const socket = join(folder, 'devinfo.sock');
  const device = new Roce(['device', '--bind', address, '--socket', socket]);
  await device.said('device at');
  const { code, out } = await roce('devinfo', '--socket', socket, '-v');
  expect(code).toBe(0);
  expect(out).toContain(`roce device:\t${address}\n\tsocket:\t\t${socket}\n`);
  expect(out).toContain('\tsent_packets:\t0\n');
  device.child.kill('SIGINT');
  await device.result;
  expect(await roce('devinfo', '--socket', socket)).toMatchObject({
    code: 1,
    err: expect.stringContaining('no device answers there'),
  });
});

describe('run, with the socket of a program that accepts and does not answer,', () => {
  const silent = async (name: string) => {
    const socket = join(folder, name);
    const accepted: Socket[] = [];
    const server = createServer((each) => accepted.push(each.on('error', () => {})));
    onTestFinished(() => void server.close());
    await new Promise<void>((resolve) => server.listen(socket, resolve));
    const command = new Roce(['run', '--socket', socket, 'true']);
    await command.said(`roce run: waiting for an answer at ${socket}: `);
    return { socket, accepted, command };
  };

  test('says what it waits for; that the program goes away is an error with the name of the socket', {
    tags: ['slow', 'gate'],
  }, async () => {
    const { socket, accepted, command } = await silent('silent.sock');
    for (const each of accepted) each.destroy();
    expect(await command.result).toMatchObject({
      code: 1,
      err: expect.stringContaining(`roce: ${socket}: no device answers there`),
    });
  });

  test('ends at the first Ctrl-C', { tags: ['slow'] }, async () => {
    const { accepted, command } = await silent('silent-2.sock');
    command.child.kill('SIGINT');
    expect(await command.result).toMatchObject({ code: 130, err: expect.stringContaining('interrupted') });
    for (const each of accepted) each.destroy();
  });

  test('gives up in the end, and names the socket', { tags: ['slow'] }, async () => {
    const { socket, accepted, command } = await silent('silent-3.sock');
    expect(await command.result).toMatchObject({
      code: 1,
      err: expect.stringContaining(`roce: ${socket}: no device answered within 120 s`),
    });
    for (const each of accepted) each.destroy();
  });
});

test.each([
  ['flows', opAll],
  ['dump', '-c', '1', opAll],
  ['flows', '--help'],
])('roce %s starts without the engine and without links', async (...args) => {
  const scripts = mkdtempSync(join(folder, 'coverage-'));
  const { result } = new Roce(args, { NODE_V8_COVERAGE: scripts });
  expect(await result).toMatchObject({ code: 0, err: '' });
  const [report] = readdirSync(scripts);
  const { result: loaded } = JSON.parse(readFileSync(join(scripts, report), 'utf8')) as {
    result: { url: string }[];
  };
  const packages = loaded.flatMap(({ url }) => /\/packages\/([\w-]+)\/dist\//.exec(url)?.[1] ?? []);
  expect(packages).toContain('cli');
  expect(packages).not.toContain('transport');
  // The list of links, for the option --link of other commands.
  expect(packages.filter((name) => name === 'link')).toHaveLength(1);
});

test('a damaged file from a pipe: the readable part, then the position of the damage', async () => {
  const cut = join(folder, 'cut.pcap');
  writeFileSync(cut, readFileSync(opAll).subarray(0, 3000));
  const { code, out, err } = await roce('dump', cut);
  expect(code).toBe(1);
  expect(out.split('\n').length).toBeGreaterThan(2);
  expect(err).toContain('cut off at byte 3000');
});

describe('--metrics', () => {
  const serve = (port: number) =>
    new Roce([
      'device',
      '--bind',
      `127.91.${process.pid & 0xff}.1`,
      '--socket',
      join(folder, 'metrics.sock'),
      '--metrics',
      String(port),
    ]);

  test('serves counts of the devices to this machine, and nothing else', async () => {
    const port = tcpPort++;
    const device = serve(port);
    await device.said('device at');
    const at = (path: string, init: RequestInit = {}) => fetch(`http://127.0.0.1:${port}${path}`, init);
    const answer = await at('/metrics');
    expect(answer.headers.get('content-type')).toBe(
      'application/openmetrics-text; version=1.0.0; charset=utf-8',
    );
    const text = await answer.text();
    expect(text).toContain(`roce_device_info{device="0",address="127.91.${process.pid & 0xff}.1",`);
    expect(text).toContain('\nroce_sent_packets_total{device="0"} 0\n');
    expect(text).toMatch(/\n# EOF\n$/);
    expect(await (await at('/metrics', { method: 'HEAD' })).text()).toBe('');
    expect((await at('/')).status).toBe(404);
    expect((await at('/metrics', { method: 'POST' })).status).toBe(405);
    device.child.kill('SIGINT');
    expect(await device.result).toMatchObject({
      code: 0,
      err: expect.stringContaining(`metrics at http://127.0.0.1:${port}/metrics\n`),
    });
  });

  test('a port that is taken ends the command', async () => {
    const port = tcpPort++;
    const taken = createServer().listen(port, '127.0.0.1');
    await once(taken, 'listening');
    const { code, err } = await serve(port).result;
    taken.close();
    expect({ code, err }).toEqual({
      code: 1,
      err: expect.stringMatching(new RegExp(`^roce: .*EADDRINUSE.*${port}\n$`)),
    });
  });
});
