import { spawnSync } from 'node:child_process';
import { copyFileSync, linkSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { analyzeCapture } from '@node-roce/capture/node';
import { openCapture } from '@node-roce/pcap/node';
import { describe, expect, test } from 'vitest';
import { ownFolder, removeFolders } from '../testing/folder.ts';
import { runRoce as roce } from '../testing/roce.ts';
import { commands, nameOf } from './commands.ts';
import { version } from './version.ts';

const captures = join(import.meta.dirname, '../../../test/fixtures/captures');
const opAll = join(captures, 'op_all.pcap');
removeFolders();

/** The comments of each packet in a capture. */
async function commentsOf(path: string): Promise<(readonly string[])[]> {
  const comments: (readonly string[])[] = [];
  await using capture = openCapture(path);
  for await (const batch of capture) comments.push(...batch.map((record) => record.comments));
  return comments;
}

const jsonLines = (text: string) =>
  text
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line));

describe('usage', () => {
  test.each([
    ['an unknown command, with the likely one', ['dmup'], "unknown command 'dmup'; did you mean dump?"],
    [
      'an unknown option, with the likely one',
      ['dump', '--jsno', 'x'],
      "unknown option '--jsno'; did you mean --json?",
    ],
    ['an unknown short option', ['dump', '-q', 'x'], "unknown option '-q'"],
    ['help of a word that is no command', ['help', 'bogus'], "unknown command 'bogus'"],
    ['a missing argument', ['dump'], "missing required argument 'files'"],
    [
      'an argument too many',
      ['compare', 'a', 'b', 'c'],
      "too many arguments for 'compare'. Expected 2 arguments but got 3.",
    ],
    [
      'no number',
      ['dump', '--qp', 'many', 'x'],
      "option '--qp <number>' argument 'many' is invalid. Expected a whole number of 0 … 16777215.",
    ],
    [
      'a number out of range',
      ['pingpong', '--port', '65536'],
      "argument '65536' is invalid. Expected a whole number of 1 … 65535.",
    ],
    [
      'a value not of the list',
      ['pingpong', '--mtu', '1500'],
      "argument '1500' is invalid. Expected one of 256, 512",
    ],
    ['a fraction', ['pingpong', '--iters', '1.5'], "argument '1.5' is invalid. Expected a whole number"],
    ['a negative number', ['pingpong', '--iters=-5'], "argument '-5' is invalid. Expected a whole number"],
    ['no value', ['pingpong', '--port'], "option '-p, --port <port>' argument missing"],
    [
      'an option twice',
      ['pingpong', '--port', '1', '--port', '2'],
      "'2' is invalid. The option is given more than once.",
    ],
    [
      'a timeout of 0',
      ['pingpong', '--timeout', '0'],
      "'0' is invalid. Expected a number of seconds above 0, 2147483 at most.",
    ],
    ['a timeout longer than a timer', ['perf', '--timeout', '3000000'], '2147483 at most'],
    ['an empty string', ['pingpong', '--bind', ''], 'Expected a non-empty string.'],
    ['an interface as an address', ['pingpong', '--bind', 'eth0'], 'to use an interface: -d eth0'],
    [
      'an address and a GID index',
      ['pingpong', '--bind', '::1', '-g', '1'],
      '-d and -g would choose another',
    ],
    ['a port that no device has', ['pingpong', '-i', '2'], 'Expected a whole number of 1 … 1.'],
  ])('%s: exit code 2, one line and a hint, nothing on stdout', async (_what, args, message) => {
    const { code, out, err } = await roce(args);
    expect(err).toContain(message);
    expect(err.trim().split('\n')).toHaveLength(2);
    expect(err).toMatch(/Try 'roce .*--help'\./);
    expect({ code, out }).toEqual({ code: 2, out: '' });
  });

  test('-V and --version print the version', async () => {
    for (const option of ['-V', '--version'])
      expect(await roce([option])).toEqual({ code: 0, out: `${version()}\n`, err: '' });
  });

  test.each([
    ['ping', ['--source', '192.0.2.1', '127.0.0.1']],
    ['rping', ['--source', '192.0.2.1', '-c', '-a', '127.0.0.1']],
  ])('the old name of an option of %s works, with a warning', async (name, args) => {
    const { code, err } = await roce([name, ...args]);
    expect(err).toMatch(/^warning: --source is the old name of --bind\n.*192\.0\.2\.1/);
    expect(code).toBe(1);
  });

  test('the old and the new name of an option together are refused', async () => {
    const { code, err } = await roce(['device', '--address', '127.0.0.1', '-a', '127.0.0.1']);
    expect({ code, err }).toMatchObject({ code: 2, err: expect.stringContaining('give only one') });
  });

  test('a local address is --bind in every command, and -a nothing else than an address, a server or all sizes', () => {
    const long = commands.flatMap(({ options }) => options.map(({ flags }) => flags));
    expect(long.filter((flags) => /--(source|local-address)\b/.test(flags))).toEqual([]);
    const ofLetter = commands.flatMap((spec) =>
      spec.options
        .filter(({ flags, hidden }) => flags.startsWith('-a,') && !hidden)
        .map(({ flags }) => `${nameOf(spec)} ${flags}`),
    );
    expect(ofLetter).toEqual([
      'rping -a, --address <address>', // rdma-core's.
      'perf -a, --all', // perftest's.
      'run -a, --bind <address>',
      'device -a, --bind <address>',
    ]);
  });

  test('nothing at all: the help on stderr, exit code 2', async () => {
    const { code, out, err } = await roce([]);
    expect({ code, out }).toEqual({ code: 2, out: '' });
    expect(err).toContain('Usage');
  });
});

describe('help', () => {
  test.each(['--help', '-h', 'help'])('roce %s lists the commands', async (arg) => {
    const { code, out, err } = await roce([arg]);
    expect({ code, err }).toEqual({ code: 0, err: '' });
    for (const command of commands) expect(out).toMatch(new RegExp(`^  ${nameOf(command)} .*\\S`, 'm'));
  });

  test.each(commands.map(nameOf))('roce %s --help has options and examples', async (name) => {
    const { code, out } = await roce([name, '--help']);
    expect(code).toBe(0);
    const command = commands.find((c) => nameOf(c) === name)!;
    for (const { flags, hidden } of command.options) expect(out.includes(flags)).toBe(!hidden);
    for (const [line] of command.examples) expect(out).toContain(`roce ${line}`);
    expect((await roce(['help', name])).out).toBe(out);
  });

  test('--version', async () => {
    const { version } = JSON.parse(readFileSync(join(import.meta.dirname, '../package.json'), 'utf8'));
    expect(await roce(['--version'])).toEqual({ code: 0, out: `${version}\n`, err: '' });
  });
});

describe('width of the terminal', () => {
  const env = { NO_COLOR: '1' };
  const noPermission = join(captures, 'err_noperm_write.pcap');
  const loss = join(captures, 'loss5_both_rc_pingpong.pcap');
  // One cannot be compared with itself.
  const copyOfLoss = join(ownFolder(), 'copy.pcap');
  copyFileSync(loss, copyOfLoss);

  test.each([
    [['--help']],
    [['pingpong', '--help']],
    [['flows', noPermission]],
    [['flows', join(captures, 'cm_rping_refused.pcap')]],
    [['messages', opAll]],
    [['dump', opAll]],
    [['dump', '--retransmissions', loss]],
    [['compare', loss, copyOfLoss]],
    [['doctor']],
  ])('%j: words and numbers break into lines that fit', async (args) => {
    for (const columns of [60, 100]) {
      const { out } = await roce(args, { isTTY: true, columns, env });
      const long = out
        .split('\n')
        .filter((line) => line.length > columns && !/^ {4}roce |https?:/.test(line));
      expect(long).toEqual([]);
    }
    const wide = await roce(args, { isTTY: true, columns: 1000, env });
    expect(wide.out.split(/\s+/).length).toBeGreaterThan(10);
  });

  test('a pipe gets one line per row, whatever its length', async () => {
    const { out } = await roce(['flows', join(captures, 'loss5_both_rc_pingpong.pcap')]);
    expect(out.split('\n').some((line) => line.length > 120)).toBe(true);
  });
});

describe('colours', () => {
  const bad = join(captures, 'corrupt_A.pcap');
  // biome-ignore lint/suspicious/noControlCharactersInRegex: this is what a colour is.
  const ESC = /\u001b\[/;

  test.each([
    ['on a terminal', { isTTY: true }, true],
    ['not in a pipe', { isTTY: false }, false],
    ['not with NO_COLOR', { isTTY: true, env: { NO_COLOR: '1' } }, false],
    ['not on a dumb terminal', { isTTY: true, env: { TERM: 'dumb' } }, false],
    ['in a pipe with FORCE_COLOR', { isTTY: false, env: { FORCE_COLOR: '1' } }, true],
    ['never with both', { isTTY: true, env: { FORCE_COLOR: '1', NO_COLOR: '1' } }, false],
  ])('%s', async (_what, options, colored) => {
    expect(ESC.test((await roce(['dump', bad], options)).out)).toBe(colored);
  });
});

describe('dump', () => {
  test('one line a packet', async () => {
    const { code, out, err } = await roce(['dump', opAll]);
    expect({ code, err }).toEqual({ code: 0, err: '' });
    const lines = out.trimEnd().split('\n');
    expect(lines[0]).toBe(
      '    1    0.000000  10.77.0.2 → 10.77.0.3 RRoCE 74 RC Send Only QP=0x00005f PSN=1193046 (0x123456) AckReq 13 bytes icrc ok',
    );
    expect(lines[12]).toContain(
      'RC RDMA Write First QP=0x00005f PSN=1193054 (0x12345e) VA=0x7fac431f0000 RKey=0x46f7 DMALen=3001 1024 bytes icrc ok',
    );
  });

  test('--json: one object a packet', async () => {
    const packets = jsonLines((await roce(['dump', '--json', opAll])).out);
    expect(packets[12]).toMatchObject({
      frame: 13,
      src: '10.77.0.2',
      dst: '10.77.0.3',
      srcPort: 58272,
      opcode: 'RC RDMA WRITE First',
      destQp: 0x5f,
      psn: 1193054,
      payloadLength: 1024,
      icrc: 'ok',
      reth: { va: '0x00007fac431f0000', rkey: 0x46f7, length: 3001 },
    });
    expect(packets[12].time).toMatch(/^\d{10}\.\d{9}$/);
    expect(packets[0].relativeTime).toBe('0.000000000');
  });

  test('the twenty bad ICRCs of the corrupted capture', async () => {
    const packets = jsonLines((await roce(['dump', '--json', join(captures, 'corrupt_A.pcap')])).out);
    const bad = packets.filter((packet) => packet.icrc === 'bad');
    expect(bad).toHaveLength(20);
  });

  test('--fields: offsets and bytes', async () => {
    const { out } = await roce(['dump', '-x', '-c', '1', opAll]);
    expect(out).toMatch(/^Frame 1 at \d+\.\d{9}\n/);
    expect(out).toMatch(/^ {2}002a {2}04 +bth\.opcode +0x04 \(RC Send Only\)$/m);
    expect(out).toMatch(/^ {2}0046 {2}af 3e 4b dc +icrc\.value +0xaf3e4bdc \(ok\)$/m);
  });

  test('--qp, --opcode and --count choose packets', async () => {
    const packets = jsonLines(
      (await roce(['dump', '--json', '--qp', '0x60', '--opcode', 'atomic', '-c', '2', opAll])).out,
    );
    expect(packets.map((packet) => [packet.destQp, packet.opcode])).toEqual([
      [0x60, 'RC ATOMIC Acknowledge'],
      [0x60, 'RC ATOMIC Acknowledge'],
    ]);
  });

  test('--retransmissions: prints retransmitted packets with the cause that the analysis found', async () => {
    const lossy = join(captures, 'loss5_both_rc_pingpong.pcap');
    const { connections } = await analyzeCapture(lossy);
    const packets = jsonLines((await roce(['dump', '--json', '--retransmissions', lossy])).out);
    const wanted = connections.flatMap(({ aToB, bToA }) => [aToB, bToA]);
    expect(packets.length).toBe(wanted.reduce((sum, { retransmitted }) => sum + retransmitted, 0));
    expect(packets.length).toBeGreaterThan(10);
    for (const cause of ['timeout', 'sequence-nak', 'unknown'] as const) {
      const count = packets.filter(({ retransmission }) => retransmission === cause).length;
      expect(count).toBe(wanted.reduce((sum, { retransmitCauses }) => sum + retransmitCauses[cause], 0));
    }
    const { out } = await roce(['dump', '--retransmissions', lossy]);
    expect(out.trimEnd().split('\n')).toHaveLength(packets.length);
    expect(out).toContain(' retransmission: timeout');
  });

  test('standard input, and gzip', async () => {
    const plain = await roce(['dump', opAll]);
    const bytes = readFileSync(opAll);
    expect(await roce(['dump', '-'], { input: bytes })).toEqual(plain);
    expect(await roce(['dump', '-'], { input: gzipSync(bytes) })).toEqual(plain);
  });

  test('counts frames that are not RoCE on stderr', async () => {
    const { code, err } = await roce(['dump', join(captures, 'cm_mckey.pcap')]);
    expect(code).toBe(0);
    expect(err).toMatch(/^\d+ frames? (is|are) not RoCE and not shown\n$/);
  });

  test('reports a frame to RoCE’s port that makes no sense, and prints the others', async () => {
    const bytes = readFileSync(opAll);
    bytes[24 + 16 + 42] = 0x1f; // The opcode of the first packet.
    const { code, out, err } = await roce(['dump', '-'], { input: bytes });
    expect(code).toBe(0);
    expect(err).toBe('standard input: frame 1 is not shown: unknown-opcode, opcode 0x1f (byte 42)\n');
    expect(out.startsWith('    2 ')).toBe(true);
  });

  test('packets that the capture cut have no verdict', async () => {
    const whole = readFileSync(opAll);
    // The first packet with 60 of its 74 bytes.
    const header = whole.subarray(0, 24 + 16);
    header.writeUInt32LE(60, 24 + 8);
    const [packet] = jsonLines(
      (await roce(['dump', '--json', '-'], { input: Buffer.concat([header, whole.subarray(40, 100)]) })).out,
    );
    expect(packet).toMatchObject({ opcode: 'RC SEND Only', payloadLength: 13, icrc: 'none' });
  });

  test('a file that is cut: the readable part, the position of the damage, exit code 1', async () => {
    const bytes = readFileSync(opAll);
    const whole = (await roce(['dump', opAll])).out.split('\n');
    const cut = join(ownFolder(), 'cut.pcap');
    writeFileSync(cut, bytes.subarray(0, 5000));
    const { code, out, err } = await roce(['dump', cut]);
    expect(code).toBe(1);
    expect(out.trimEnd().split('\n')).toEqual(whole.slice(0, 6));
    expect(err).toContain(`${cut}: the input is cut off at byte 5000`);
  });

  test.each([
    ['no such file', ['dump', '/nonexistent.pcap'], '/nonexistent.pcap: no such file or directory'],
    ['no capture', ['dump', join(captures, 'README.md')], 'the magic number of neither pcap nor pcapng'],
    ['no capture', ['flows', join(captures, 'README.md')], 'the magic number of neither pcap nor pcapng'],
    [
      'a directory',
      ['dump', import.meta.dirname],
      `${import.meta.dirname}: the directory has no capture files`,
    ],
    [
      'a directory',
      ['ladder', import.meta.dirname, '-o', 'x'],
      `${import.meta.dirname}: the directory has no capture files`,
    ],
  ])('%s: exit code 1', async (_what, args, message) => {
    const { code, out, err } = await roce(args);
    expect({ code, out }).toEqual({ code: 1, out: '' });
    expect(err).toContain(message);
  });
});

describe('export', () => {
  const scratch = ownFolder();

  test('a slice by queue pair and time', async () => {
    const output = join(scratch, 'slice.pcapng');
    const { code, out, err } = await roce(['export', opAll, '--qp', '0x60', '--to', '0.5', '-o', output]);
    expect({ code, out }).toEqual({ code: 0, out: '' });
    const all = jsonLines((await roce(['dump', '--json', '--qp', '0x60', '--to', '0.5', opAll])).out);
    const sliced = jsonLines((await roce(['dump', '--json', output])).out);
    expect(err).toBe(`${all.length} of 42 RoCE packets of ${opAll} written to ${output}\n`);
    expect(all.length).toBeGreaterThan(0);
    expect(sliced.map(({ psn, time }) => [psn, time])).toEqual(all.map(({ psn, time }) => [psn, time]));
  });

  test('--connection: both directions of one, and no other', async () => {
    const output = join(scratch, 'connection.pcapng');
    const mixed = join(captures, 'op_all.pcap');
    const { connections } = await analyzeCapture(mixed);
    let sum = 0;
    for (const { id, a, b } of connections) {
      expect((await roce(['export', mixed, '--connection', `${id}`, '-o', output])).code).toBe(0);
      const packets = jsonLines((await roce(['dump', '--json', output])).out);
      sum += packets.length;
      for (const { dst, destQp } of packets) {
        expect([`${a.address} ${a.qpn}`, `${b.address} ${b.qpn}`]).toContain(`${dst} ${destQp}`);
      }
    }
    expect(sum).toBe(42);
    const none = await roce(['export', mixed, '--connection', '99', '-o', output]);
    expect(none.code).toBe(2);
    expect(none.err).toContain(`--connection 99: expected 1 … ${connections.length}`);
  });

  test('--comments: findings and causes at their packets', async () => {
    const lossy = join(captures, 'loss5_both_rc_pingpong.pcap');
    const { findings } = await analyzeCapture(lossy);
    for (const hidden of [[], ['--anonymize']]) {
      const output = join(scratch, 'comments.pcapng');
      expect((await roce(['export', lossy, '--comments', ...hidden, '-o', output])).code).toBe(0);
      const comments = await commentsOf(output);
      for (const { statement, frames } of findings) {
        for (const frame of frames) expect(comments[frame - 1].join('\n')).toContain(statement);
      }
      const again = comments.filter((list) => list.some((text) => text.startsWith('retransmission: ')));
      expect(again.length).toBeGreaterThan(10);
    }
  });

  test('--comments --anonymize: the comments name hosts as the packets do', async () => {
    const refused = join(captures, 'cm_rping_refused.pcap');
    const output = join(scratch, 'refused.pcapng');
    const args = ['--comments', '--anonymize', '--key', 'ours'];
    expect((await roce(['export', refused, ...args, '-o', output])).code).toBe(0);
    const [{ dst }] = jsonLines((await roce(['dump', '--json', output])).out);
    const text = (await commentsOf(output)).join('\n');
    expect(text).toContain(`${dst} rejected the connection`);
    expect(text).toContain(`TCP port 7999 at ${dst}: start the server`);
    expect(readFileSync(output, 'latin1')).not.toContain('10.77.0.');
  });

  test('--anonymize with a key: the same addresses in two runs, others without', async () => {
    const addresses = async (...args: string[]) => {
      const output = join(scratch, 'anonymous.pcapng');
      expect((await roce(['export', opAll, '--anonymize', ...args, '-o', output])).code).toBe(0);
      return new Set(jsonLines((await roce(['dump', '--json', output])).out).map(({ src }) => src));
    };
    const first = await addresses('--key', 'ours');
    expect(first.size).toBe(2);
    expect(await addresses('--key', 'ours')).toEqual(first);
    expect(await addresses()).not.toEqual(first);
    expect(first.has('10.77.0.2')).toBe(false);
  });

  test('pipes are refused where the capture is read twice', async () => {
    const pipe = join(scratch, 'pipe');
    spawnSync('mkfifo', [pipe]);
    for (const args of [
      ['compare', opAll, pipe],
      ['export', pipe, '--comments', '-o', join(scratch, 'x')],
    ]) {
      const { code, out, err } = await roce(args);
      expect({ code, out }).toEqual({ code: 2, out: '' });
      expect(err).toContain('twice');
    }
  });

  test('export and ladder: several files are one capture', async () => {
    const two = [join(captures, 'cm_rping.pcap'), join(captures, 'err_rnr_then_ok.pcap')];
    const count = async (...files: string[]) =>
      JSON.parse((await roce(['flows', '--json', ...files])).out).summary.rocePackets;
    const output = join(ownFolder(), 'merged.pcapng');
    expect(await roce(['export', ...two, '-o', output])).toMatchObject({
      code: 0,
      err: expect.stringContaining('of 2 files written'),
    });
    expect(await count(output)).toBe((await count(two[0])) + (await count(two[1])));
    const svg = join(ownFolder(), 'merged.svg');
    expect((await roce(['ladder', ...two, '--qp', '0x70', '-o', svg])).code).toBe(0);
    const alone = join(ownFolder(), 'alone.svg');
    await roce(['ladder', two[1], '--qp', '0x70', '-o', alone]);
    const rows = (path: string) => readFileSync(path, 'utf8').match(/class="row /g)!.length;
    expect(rows(svg)).toBe(rows(alone));
    // An input among several is no output.
    expect((await roce(['export', ...two, '-o', two[1]])).code).toBe(2);
    expect((await roce(['ladder', captures, '-o', two[1]])).code).toBe(2);
    expect((await roce(['export', '-', two[0], '-o', output])).code).toBe(2);
  });

  test('messages and flows: dates instead of seconds', async () => {
    const file = join(captures, 'loss15_cm.pcap');
    const first = (await roce(['dump', '--time', 'utc', '-c', '1', file])).out;
    const date = /\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{6}Z/.exec(first)![0];
    const flows = (await roce(['flows', '--time', 'utc', file])).out;
    expect(flows).toContain(`from ${date}; ICRC`);
    expect(flows).toMatch(/^CM: from .* outcome +start +took/m);
    expect(flows).toMatch(/\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{6}Z, frame \d/);
    const [heading, row] = (await roce(['messages', '--time', 'utc', file])).out.split('\n');
    expect(heading).toMatch(/ start +latency/);
    const start = /(\S+ \S+Z) /.exec(row!)![1];
    const all = JSON.parse((await roce(['messages', '--json', file])).out.split('\n')[0] ?? '');
    const expected = new Date(Date.parse(date.replace(' ', 'T')) + all.start / 1e6).toISOString();
    expect(start!.slice(0, 19)).toBe(expected.replace('T', ' ').slice(0, 19));
    expect((await roce(['messages', '--time', 'gmt', file])).code).toBe(2);
  });

  test('messages and flows: a connection that there is not', async () => {
    for (const command of ['messages', 'flows']) {
      const { code, out, err } = await roce([command, '--connection', '99', opAll]);
      expect({ code, out }).toEqual({ code: 2, out: '' });
      expect(err).toContain('--connection 99: expected 1 … 1');
    }
  });

  test.each(['export', 'report', 'ladder'])('%s: another link to the input is the input', async (command) => {
    const folder = ownFolder();
    const [input, link] = [join(folder, 'a.pcap'), join(folder, 'b.pcap')];
    copyFileSync(opAll, input);
    linkSync(input, link);
    const { code, err } = await roce([command, input, '-o', link]);
    expect(err).toContain('input and output are the same file');
    expect(code).toBe(2);
    expect(readFileSync(input)).toEqual(readFileSync(opAll));
  });

  test.each([
    [['export', opAll], 'expected -o <file> for a capture, or --parquet <folder>'],
    [['export', opAll, '-o', opAll], 'input and output are the same file'],
    [['export', opAll, '-o', 'x', '--key', 'k'], '--key needs --anonymize'],
    [['export', opAll, '-o', '-', '--json'], '-o - writes to standard output, and so does --json'],
    [['export', '-', '-o', 'x', '--comments'], 'read the capture twice: give the name of a file'],
    [['export', opAll, '-o', 'x', '--from=-1'], "argument '-1' is invalid. Expected a number of seconds."],
  ])('%j: exit code 2', async (args, message) => {
    const { code, out, err } = await roce(args);
    expect({ code, out }).toEqual({ code: 2, out: '' });
    expect(err).toContain(message);
  });
});

describe('devinfo', () => {
  test('the loopback interface is a device', async () => {
    const { code, out } = await roce(['devinfo', '--json']);
    expect(code).toBe(0);
    const { devices, limits } = JSON.parse(out);
    const lo = devices.find((device: { gids: { address: string }[] }) =>
      device.gids.some((gid) => gid.address === '127.0.0.1'),
    );
    expect(lo).toMatchObject({ state: 'PORT_ACTIVE', activeMtu: 4096 });
    expect(lo.gids[0]).toMatchObject({ gid: '::ffff:127.0.0.1', type: 'RoCE v2' });
    expect(limits.maxQp).toBeGreaterThan(0);
  });

  test('-d selects a device, as in ibv_devinfo', async () => {
    const { devices } = JSON.parse((await roce(['devinfo', '-d', 'lo', '-i', '1', '--json'])).out);
    expect(devices.map(({ name }: { name: string }) => name)).toEqual(['lo']);
    const { code, err } = await roce(['devinfo', '-d', 'rxe0']);
    expect(code).toBe(1);
    expect(err).toMatch(/^roce: no interface rxe0 with an address.*\blo\b/);
  });

  test('in the format of ibv_devinfo', async () => {
    const { out } = await roce(['devinfo', '--verbose']);
    expect(out).toContain('\tactive_mtu:\t4096\n');
    expect(out).toContain('::ffff:127.0.0.1, RoCE v2\n');
    expect(out).toContain('\tmax_qp:\t');
  });
});

describe('flows and messages', () => {
  const noPermission = join(captures, 'err_noperm_write.pcap');

  test('the verdict first, with the chain that proves it; a finding that it covers is not shown below', async () => {
    const { code, out, err } = await roce(['flows', noPermission]);
    expect({ code, err }).toEqual({ code: 0, err: '' });
    expect(out.split('\n').slice(0, 6)).toEqual([
      'verdict  10.77.0.2 has no right to the memory at 10.77.0.3 (a WRITE: remote access error); the connection ended. (certain)',
      '         frame 3  10.77.0.2 sends a WRITE (PSN 1193047 = 0x123457)',
      '         frame 4  10.77.0.3 refuses it: NAK remote access error',
      expect.stringMatching(/^ {9}Check the R_Key/),
      '         10.77.0.3 ended the connection (NAK) in frame 4',
      '',
    ]);
    expect(out).toMatch(/\n4 RoCE packets in 4 frames, .*ICRC 4 ok\n/);
    expect(out).toMatch(/\n1 {2}RC {4}10\.77\.0\.2 0x6a {2}10\.77\.0\.3 0x69 {2}certain .* 2 \/ 0 /);
    expect(out).toMatch(
      /\nIn the verdicts above: Remote access error\. --json has them with all their frames\.\n$/,
    );
  });

  test('findings that no verdict covers, with a title in words and their frames', async () => {
    const { out } = await roce(['flows', join(captures, 'loss15_cm.pcap')]);
    expect(out).toMatch(/^verdict {2}.*was silent for 2\.24 s/);
    expect(out).toMatch(/\nnote {5}Management datagrams missing: .*\[frame \d/);
  });

  test('nothing stands there twice: the verdict again in the line of a connection, and the note that it explains', async () => {
    const verdicts = join(import.meta.dirname, '../../../test/fixtures/verdicts');
    const two = (await roce(['flows', join(verdicts, 'gid-v1-v2.pcap')])).out;
    expect(two).toMatch(/\n#1 {7}the verdict at the top\n#2 {7}Both ends use different GID types: /);
    expect(two).not.toContain('Mirror both directions');
    expect(two).toMatch(/\nIn the verdicts above: .*One direction only\./);
    const one = (await roce(['flows', join(verdicts, 'connectx-ack-cnp.pcap')])).out;
    expect(one.split('Mirror both directions').length).toBe(2);
  });

  test('nothing wrong, and nothing at all', async () => {
    expect((await roce(['flows', opAll])).out).toMatch(/\nNo findings\.\n$/);
    const short = join(import.meta.dirname, '../../../test/capture/real/captures/k612-clean-send-b.pcap.gz');
    expect((await roce(['flows', short])).out).toMatch(/\nToo short to stand out: Stalls\. --json has them /);
    const nothing = join(captures, 'cm_mckey_ipv6.pcap');
    const text = 'No RoCE packet was decoded in 2 frames (link type ETHERNET): 2 × IGMP';
    const { code, out, err } = await roce(['flows', nothing]);
    expect({ code, err }).toEqual({ code: 1, err: '' });
    expect(out).toContain(`\nerror    Nothing decoded: ${text}\n`);
    for (const command of ['dump', 'messages', 'flows --json'])
      expect(await roce([...command.split(' '), nothing])).toMatchObject({
        code: 1,
        err: expect.stringContaining(`roce: ${nothing}: ${text}. Is it the right interface?`),
      });
  });

  test('for programs: JSON and CSV', async () => {
    const { out } = await roce(['flows', '--json', noPermission]);
    expect(jsonLines(out)).toMatchObject([
      {
        connections: [{ a: { qpn: 0x6a }, messagesFromA: { completed: 1, failed: 1 } }],
        findings: [{ kind: 'nak-remote-access-error', frames: [4] }],
      },
    ]);
    const csv = await roce(['flows', '--csv', noPermission]);
    expect(csv.out.split('\n').map((line) => line.split(',')[1])).toEqual([
      'kind',
      'nak-remote-access-error',
      undefined,
    ]);
    const rows = (await roce(['messages', '--csv', opAll])).out.trim().split('\n');
    expect(rows.length).toBe(16);
    expect(rows[2]).toMatch(/^1,2,a,SEND_WITH_IMM,5000,/);
  });

  test('messages, and those that are wanted', async () => {
    const lines = (text: string) => text.trim().split('\n').slice(1);
    expect(lines((await roce(['messages', opAll])).out).length).toBe(15);
    const wanted = ['--operation', 'write_with', '--outcome', 'completed', '--qp', '0x60'];
    const { out } = await roce(['messages', ...wanted, '--json', opAll]);
    expect(jsonLines(out)).toMatchObject([
      { operation: 'RDMA_WRITE_WITH_IMM', bytes: 0, qps: { requester: 0x60, responder: 0x5f } },
      { operation: 'RDMA_WRITE_WITH_IMM', bytes: 2500 },
    ]);
    const failed = await roce(['messages', '--outcome', 'failed', noPermission]);
    expect(lines(failed.out)).toEqual([expect.stringMatching(/RDMA_WRITE .* failed: remote-access-error$/)]);
    const loss = join(captures, 'loss5_both_rc_pingpong.pcap');
    expect(lines((await roce(['messages', '--retransmitted', loss])).out).length).toBeGreaterThan(5);
  });

  test.each(['flows', 'messages'])('%s: --json and --csv at once', async (command) => {
    const { code, err } = await roce([command, '--json', '--csv', opAll]);
    expect({ code, err }).toMatchObject({ code: 2, err: expect.stringContaining('not both') });
  });

  test.each(['flows', 'messages'])(
    '%s: a damaged file is shown as far as it can be read',
    async (command) => {
      const path = join(ownFolder(), 'cut.pcap');
      writeFileSync(path, readFileSync(opAll).subarray(0, 5000));
      const { code, out, err } = await roce([command, path]);
      expect(code).toBe(1);
      expect(out).toMatch(/10\.77|SEND/);
      expect(err).toMatch(/^roce: .*cut\.pcap: /);
    },
  );
});
