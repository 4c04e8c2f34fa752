/** `roce conform`: exit codes, which a CI server reads. */
import { spawnSync } from 'node:child_process';
import { chmodSync, existsSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { Readable } from 'node:stream';
import { fileURLToPath } from 'node:url';
import { isServedBy, PASSIVE_RULES, RULES } from '@node-roce/conform';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { ownFolder, removeFolders } from '../testing/folder.ts';
import { run } from './cli.ts';

removeFolders();

const conform = (...args: string[]) => played('--via', 'model', ...args);

const played = (...args: string[]) => playedUntil(new AbortController().signal, args);

async function playedUntil(
  signal: AbortSignal,
  args: readonly string[],
): Promise<{ code: number; out: string; err: string }> {
  let out = '';
  let err = '';
  const code = await run(['conform', ...args], {
    stdin: Readable.from([]),
    stdout: { write: (text) => (out += text) },
    stderr: { write: (text) => (err += text) },
    env: {},
    signal,
  });
  return { code, out, err };
}

test('a list that cannot be read is no deviation', async () => {
  const file = join(ownFolder(), 'list.json');
  writeFileSync(file, '{ "device": ');
  for (const name of [file, join(ownFolder(), 'none'), 'toString'])
    expect(await conform('--rule', 'PSN-01', '--device', name)).toMatchObject({
      code: 2,
      err: expect.stringContaining(`--device ${name}: `),
    });
});

test.skipIf(!existsSync('/dev/full'))(
  'results that cannot be written are printed, and are no deviation',
  async () => {
    const { code, out } = await conform('--rule', 'PSN-01', '--junit', '/dev/full');
    expect(code).toBe(2);
    expect(out).toContain('model: 1 rule: 1 pass');
  },
);

// Node's recursive mkdir would go round for ever in /proc.
test.each([
  ['--output', '/proc/none/results'],
  ['--output', fileURLToPath(import.meta.url)],
  ['--junit', '/proc/none/file'],
  ['--junit', dirname(fileURLToPath(import.meta.url))],
  ['--html', '/none/file'],
  ['--learn', '/none/file'],
])('a place where nothing can be written is found before the run: %s %s', async (option, place) => {
  const { code, out, err } = await conform('--rule', 'PSN-01', option, place);
  expect({ code, out }).toEqual({ code: 2, out: '' });
  expect(err).toContain(`${option} ${place}: E`);
});

test('a run without a host makes no folder', async () => {
  const made = join(ownFolder(), 'made');
  expect((await played('--rule', 'PSN-01', '-o', join(made, 'x'))).code).toBe(2);
  expect(existsSync(made)).toBe(false);
});

describe('without the rights of root', () => {
  const program = fileURLToPath(new URL('../bin/roce.js', import.meta.url));
  const ordinary = [
    'setpriv',
    '--reuid',
    '65534',
    '--clear-groups',
    '--inh-caps=-all',
    '--bounding-set=-all',
  ];
  /** As a user, to whom `folder` is closed. */
  const asUser = (...args: string[]) => {
    const as = process.getuid?.() === 0 ? ordinary : [];
    const [file, ...rest] = [
      ...as,
      process.execPath,
      program,
      'conform',
      '--via',
      'model',
      '--rule',
      'PSN-01',
    ];
    return spawnSync(file, [...rest, ...args], { encoding: 'utf8' });
  };
  const folder = ownFolder();
  beforeAll(() => {
    writeFileSync(join(folder, 'open.xml'), '');
    chmodSync(join(folder, 'open.xml'), 0o666);
    chmodSync(folder, 0o555);
  });
  afterAll(() => chmodSync(folder, 0o755));

  test('a file that can be written is written, in whatever folder', () => {
    const { status, stderr } = asUser('--junit', join(folder, 'open.xml'));
    expect([status, stderr]).toEqual([0, '']);
    expect(readFileSync(join(folder, 'open.xml'), 'utf8')).toContain('PSN-01');
    expect(asUser('--junit', '/dev/null').status).toBe(0);
  });

  test.each(['--output', '--html'])('%s to a folder that is closed is found before the run', (option) => {
    const place = option === '--html' ? join(folder, 'new') : folder;
    const { status, stdout, stderr } = asUser(option, place);
    expect([status, stdout]).toEqual([2, '']);
    expect(stderr).toContain(`${option} ${place}: EACCES`);
  });
});

test('a page has a column for this device, and one for each other', async () => {
  const file = join(ownFolder(), 'page.html');
  const other = join(ownFolder(), 'other.json');
  const { out } = await conform('--rule', 'PSN-01', '--json');
  writeFileSync(other, out.replace('"model"', '"<other>"').replace('"pass"', '"deviation"'));
  const chosen = ['--rule', 'PSN-01,STA-06', '--html', file];
  expect((await conform(...chosen, '--compare', other)).code).toBe(0);
  const page = readFileSync(file, 'utf8');
  expect(page).toContain('<th>model</th><th>&#60;other&#62;</th>');
  // The packets are behind each cell, also of a rule that passed.
  const cells =
    /<td class="pass"><details><summary>pass<.*<pre>.*<td class="deviation">.*deviation<.*<pre>.*◀── device/s;
  expect(page).toMatch(cells);
  expect(page).toMatch(/STA-06<.*not testable.*<td class="untested">not played<\/td><\/tr>/);
  writeFileSync(other, '{"device":{"name":"x"},"results":[{}]}');
  expect(await conform(...chosen, '--compare', other)).toMatchObject({
    code: 2,
    out: '',
    err: expect.stringContaining('expected a file that --json wrote'),
  });
  expect((await conform('--rule', 'PSN-01', '--compare', other)).code).toBe(2);
});

test('a host may be a name, or an IPv6 address for a UDP socket', async () => {
  expect(await played('localhost', '--port', '9')).toEqual({
    code: 2,
    out: '',
    err: 'roce conform: no agent at 127.0.0.1 port 9 (connect ECONNREFUSED 127.0.0.1:9): compile and start the agent there first; roce conform --print-agent prints its source\n',
  });
  expect(await played('')).toMatchObject({ code: 2, err: expect.stringContaining('expected the host') });
  expect((await played('::1')).err).toContain('--link udp');
  expect((await played('fe80::1', '--link', 'udp')).err).toContain('a link-local address');
  expect((await played('0:0:0:0:0:0:0:1', '--link', 'udp', '--port', '9')).err).toContain(
    'ECONNREFUSED ::1:9',
  );
  expect((await played('no.such.host.invalid')).code).toBe(2);
});

test('a list that is learned again keeps its reasons', async () => {
  const file = join(ownFolder(), 'list.json');
  const list = { device: 'mine', deviations: { 'KEY-01': { is: 'x', because: 'a reason' } } };
  writeFileSync(file, JSON.stringify(list));
  const { code, err } = await conform('--rule', 'PSN-01', '--learn', file);
  expect(code).toBe(0);
  expect(JSON.parse(readFileSync(file, 'utf8'))).toEqual(list);
  // It may be the wrong file.
  expect(err).toBe(
    `roce conform: ${file} is the list of "mine", and keeps this name; the device that was tested is "model"\n`,
  );
  writeFileSync(file, '{');
  expect(await conform('--rule', 'PSN-01', '--learn', file)).toMatchObject({
    code: 2,
    out: '',
    err: expect.stringContaining(`--learn ${file}: `),
  });
  expect(readFileSync(file, 'utf8')).toBe('{');
});

test('a list that is learned beside another one has its own name and reasons, and the other one’s reasons', async () => {
  const folder = ownFolder();
  const [other, file] = ['other.json', 'list.json'].map((name) => join(folder, name));
  const of = (because: string) => ({ is: 'x', because });
  const both = (device: string, deviations: object) => JSON.stringify({ device, seen: 'then', deviations });
  writeFileSync(other, both('other', { 'KEY-01': of('theirs'), 'KEY-02': of('theirs') }));
  const args = ['--rule', 'PSN-01', '--device', other, '--learn', file];
  expect(await conform(...args)).toMatchObject({ code: 0, err: '' });
  const learned = { device: 'model', deviations: { 'KEY-01': of('theirs'), 'KEY-02': of('theirs') } };
  expect(JSON.parse(readFileSync(file, 'utf8'))).toEqual(learned);
  writeFileSync(file, both('model', { 'KEY-01': of('mine') }));
  expect(await conform(...args)).toMatchObject({ code: 0, err: '' });
  expect(JSON.parse(readFileSync(file, 'utf8'))).toEqual({
    device: 'model',
    seen: 'then',
    deviations: { 'KEY-01': of('mine'), 'KEY-02': of('theirs') },
  });
});

test('a run in which nothing could be tested is not passed', async () => {
  expect(await conform('--rule', 'STA-06')).toMatchObject({
    code: 2,
    err: expect.stringContaining('no rule could be tested'),
  });
});

test('by the connection manager: its rules, and no others', async () => {
  const { code, out } = await played('127.0.0.1', '--via', 'cm', '--link', 'udp', '--patience', '5');
  expect(code).toBe(2);
  expect(out).toMatch(/not testable +CM-01 .*\n +nobody listens at the connection manager/);
  expect(out).toMatch(/: (\d+) rules: \1 not testable\n/);
  expect(out).not.toContain('PSN-01');
  expect((await conform('--rule', 'CM-01')).out).toContain('1 rule: 1 pass');
});

test('rules that wait for long are played with --slow only', async () => {
  expect(await conform('--rule', 'TMO-18')).toMatchObject({
    code: 2,
    err: expect.stringContaining('--slow'),
  });
  expect((await conform('--rule', 'TMO-18', '--slow')).out).toContain('1 rule: 1 pass');
  expect((await conform('--rule', 'TMO')).out).not.toContain('TMO-18');
  expect((await conform('--list', '--rule', 'TMO-18')).out).toContain('must; slow; needs');
});

test('a run that is interrupted is exit code 2, and reports what was not played', async () => {
  const { code, err } = await playedUntil(AbortSignal.abort(), ['--via', 'model', '--rule', 'PSN']);
  expect({ code, err }).toEqual({
    code: 2,
    err: 'roce conform: interrupted: 8 of 8 rules were not played\n',
  });
});

test('a run without a rule is not passed', async () => {
  expect(await conform('--rule', 'ROB-01')).toMatchObject({
    code: 2,
    err: expect.stringContaining('--hostile'),
  });
  expect((await conform('--rule', 'PSN-01,')).code).toBe(2);
  expect((await conform('--rule', 'PSN-01, PSN-02')).out).toContain('2 rules: 2 pass');
});

describe('a capture', () => {
  const folder = fileURLToPath(new URL('../../../test/capture/real/captures/', import.meta.url));
  const capture = join(folder, 'k61-loss10-write-a.pcap.gz');

  test('is judged, host by host, or at the host of --at', async () => {
    const { code, out } = await played('--capture', capture);
    expect(code).toBe(0);
    expect(out).toMatch(/^10\.78\.0\.1: 14 passive checks: \d pass, \d+ not testable$/m);
    expect(out).toMatch(/^10\.78\.0\.2: 14 passive checks: \d pass, \d+ not testable$/m);
    const own = await played('--capture', capture, '--at', '10.78.0.1', '--json');
    const { hosts } = JSON.parse(own.out);
    expect(hosts.map(({ device }: { device: { name: string } }) => device.name)).toEqual(['10.78.0.1']);
    expect(hosts[0].results).toContainEqual(expect.objectContaining({ id: 'TRC-02', verdict: 'pass' }));
  });

  test('made elsewhere than at the host of --at: deviations, exit code 1, and the frames', async () => {
    // A packet that was lost on the way looks as if its sender had left it out.
    const junit = join(ownFolder(), 'junit.xml');
    const far = join(folder, 'k61-loss10-write-b.pcap.gz');
    const { code, out } = await played('--capture', far, '--at', '10.78.0.1', '--junit', junit);
    expect(code).toBe(1);
    expect(out).toMatch(
      /^deviation {5}TRC-01 .*\n {14}left out PSNs\n {14}note: left out PSNs: \d+ times, frames \d+, /m,
    );
    expect(readFileSync(junit, 'utf8')).toMatch(
      /^<\?xml.*\n<testsuites>\n<testsuite .*<failure message="deviation: left out PSNs"/s,
    );
    const list = join(ownFolder(), 'list.json');
    const deviations = { 'TRC-01': { is: 'left out PSNs', because: 'a capture from the other end' } };
    writeFileSync(list, JSON.stringify({ device: 'x', deviations }));
    const chosen = ['--at', '10.78.0.1', '--rule', 'trc-01, TRC-04', '--device', list];
    expect(await played('--capture', far, ...chosen)).toMatchObject({
      code: 0,
      out: expect.stringMatching(/^known +TRC-01/m),
    });
  });

  test('that cannot be judged is exit code 2', async () => {
    const cases: [string[], string][] = [
      [['--capture', join(folder, 'none')], 'none'],
      [['--capture', '-'], 'expected a file'],
      [['--capture', fileURLToPath(import.meta.url)], 'magic number'],
      [['--capture', capture, '--at', '192.0.2.9'], 'no reliable connection of 192.0.2.9'],
      [['--capture', capture, '--rule', 'PSN-01'], 'no rule PSN-01 about captures'],
      [['--capture', capture, '--hostile'], '--hostile is not for --capture'],
      // Before the capture is read.
      [['--capture', capture, '--junit', '/none/file'], '--junit /none/file: ENOENT'],
      [['--capture', capture, '--html', '/none/file'], '--html is not for --capture'],
      [['192.0.2.9', '--capture', capture], 'not both'],
      [['--capture', join(folder, 'k61-ud-send-a.pcap.gz')], 'no reliable connection in the capture'],
      [['--at', '192.0.2.9'], '--at is for --capture'],
      [['--rule', 'TRC', '--via', 'model'], 'need --capture FILE'],
    ];
    for (const [args, err] of cases)
      expect(await played(...args), args.join(' ')).toMatchObject({
        code: 2,
        err: expect.stringContaining(err),
      });
  });

  test('has rules of its own, which are listed', async () => {
    expect((await played('--list', '--capture', capture)).out).toContain('\n14 passive checks. ');
    expect((await played('--list', '--rule', 'TRC-05')).out).toContain('needs capture');
    expect((await played('--list')).out).toContain('TRC-21');
  });
});

test('the rules about packets judge those of the other rules', async () => {
  const all = await conform('--rule', 'PSN-01,TRC');
  expect(all.out).toMatch(/^pass +TRC-14 .*\n +note: 1 occasion in the packets of the other rules$/m);
  expect((await conform('--rule', 'PSN-01,TRC-14')).out).toContain(
    'model: 1 rule and 1 passive check: 2 pass',
  );
  expect((await conform('--rule', 'PSN-01')).out).toContain('model: 1 rule: 1 pass');
  expect(await conform('--rule', 'TRC-14')).toMatchObject({
    code: 2,
    err: expect.stringContaining(
      'rules about packets need --capture FILE, or rules whose packets they judge',
    ),
  });
});

test('a rule about packets that was asked for is never left out: not testable, or refused', async () => {
  for (const [chosen, id] of [
    ['CRD-01,TRC-14', 'TRC-14'],
    ['FUZ-01,trc-14', 'TRC-14'],
    ['PSN-01,TRC', 'TRC-17'],
  ]) {
    const { code, out } = await conform('--hostile', '--rule', chosen);
    expect(code, chosen).toBe(0);
    expect(out).toMatch(
      new RegExp(`^not testable +${id} .*\\n +no occasion to break it in the packets`, 'm'),
    );
  }
  for (const id of ['TRC-05', 'TRC-21'])
    expect(await conform('--rule', `PSN-01,${id}`)).toMatchObject({
      code: 2,
      out: '',
      err: expect.stringContaining(`${id}: judges captures only (--capture FILE)`),
    });
});

test('--first is the basic rules, in the list and in the run; rules about packets where they are named', async () => {
  const [, count] = /\n(\d+) rules\. /.exec((await conform('--list', '--first')).out)!;
  expect((await conform('--first')).out).toContain(`model: ${count} rules: ${count} pass\n`);
  expect((await played('--list', '--first', '--rule', 'TRC')).out).toContain('\n14 passive checks. ');
  expect((await conform('--first', '--rule', 'PSN-01,TRC-14')).out).toContain(
    'model: 1 rule and 1 passive check: 2 pass',
  );
});

describe('--list', () => {
  const LISTS_OF = '. Lists of known deviations: rxe-6.1, rxe-6.12, node-roce\n';
  /** The rules that are listed, and the last line. */
  const listed = async (...args: string[]) => {
    const { code, out } = await played('--list', ...args);
    expect(code).toBe(0);
    const ids = [...out.matchAll(/^([A-Z]{2,3}-\d\d) {2}/gm)].map(([, id]) => id);
    return { ids, out, total: out.trimEnd().split('\n').at(-1) };
  };

  test('counts rules and passive checks apart', async () => {
    const { ids, total } = await listed();
    expect(ids).toEqual([...RULES, ...PASSIVE_RULES].map(({ id }) => id));
    const having = (mark: 'hostile' | 'slow') => RULES.filter((rule) => rule[mark]).length;
    const marks = `${having('hostile')} only with --hostile, ${having('slow')} only with --slow`;
    expect(`${total}\n`).toBe(
      `${RULES.length} rules (${marks}), ${PASSIVE_RULES.length} passive checks${LISTS_OF}`,
    );
    expect((await listed('--rule', 'PSN-01')).total).toMatch(/^1 rule\. /);
  });

  test('with --via, has what this way can test, and what the others need', async () => {
    const cm = await listed('--via', 'cm');
    expect(cm.ids.filter((id) => !id.startsWith('TRC'))).toEqual(
      RULES.filter((rule) => isServedBy(rule, 'cm')).map(({ id }) => id),
    );
    expect(cm.out).toContain(
      'Not testable with --via cm --link packet:\n  needs a reliable connection: PSN-01,',
    );
    expect(cm.out).toContain('  needs a capture (--capture): TRC-05, TRC-21\n');
    const perftest = await listed('--via', 'perftest');
    expect(perftest.ids).toContain('PSN-01');
    expect(perftest.ids).not.toContain('DUP-01');
    expect(perftest.out).toMatch(/^ {2}needs receives posted at the device: .*DUP-01/m);
    const udp = await listed('--via', 'agent', '--link', 'udp', '--rule', 'HDR');
    expect(udp.ids).not.toContain('HDR-13');
    expect(udp.out).toMatch(/^ {2}needs whole frames \(--link packet\): .*HDR-13/m);
    expect((await listed('--via', 'cm', '--rule', 'PSN-01')).total).toMatch(/^No rule\. /);
  });
});
