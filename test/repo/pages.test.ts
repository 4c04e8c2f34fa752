/** Statements of pages: first programs run on one machine without an option, and numbers agree with the code and with measurements. */
import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { promisify } from 'node:util';
import { PASSIVE_RULES, rules } from '@node-roce/conform';
import { expect, test } from 'vitest';
// @ts-expect-error: plain JavaScript
import { CI } from '../tiers/steps.mjs';

const root = join(import.meta.dirname, '../..');
const page = (path: string) => readFileSync(join(root, path), 'utf8');
/** Files that git tracks. */
const files = async (pattern: string) =>
  (await promisify(execFile)('git', ['ls-files', pattern], { cwd: root })).stdout.trim().split('\n');
const programsOf = (path: string) =>
  [...page(path).matchAll(/```js\n([\s\S]*?)```/g)].map(([, code]) => code as string);

/** Runs the first two programs of a page at one address: a server that serves for ever, and its client. Resolves with the client's output. */
async function firstPair(path: string, address: string): Promise<string> {
  const [server = '', client = ''] = programsOf(path).map((code) => code.replaceAll('10.0.0.1', address));
  const ready = "console.log('listening');\nfor await (const ";
  expect(server).toContain('for await (const ');
  // Not as files: they would be in the tree, which other tests read meanwhile.
  const run = (code: string) => ['--input-type=module', '--eval', code];
  const serving = spawn(process.execPath, run(server.replace('for await (const ', ready)), {
    cwd: root,
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  try {
    await once(createInterface(serving.stdout), 'line');
    for (let tries = 1; ; tries++)
      try {
        return (await promisify(execFile)(process.execPath, run(client), { cwd: root })).stdout;
      } catch (error) {
        // A server that gets no processor for 10 s, which is the default of `connect`: no fault of the page.
        if (tries === 10 || !`${error}`.includes('ERR_ROCE_CM_UNREACHABLE')) throw error;
      }
  } finally {
    serving.kill('SIGKILL');
  }
}

test.each([
  ['docs/connect.md', '127.0.61.1'],
  ['docs/rsocket.md', '127.0.0.1'],
])('the first two programs of %s run on one machine, at one address', async (path, address) => {
  expect(await firstPair(path, address)).toBe('hello\n');
});

test('`require` loads each entry that users import, as first-program.md states', async () => {
  expect(page('docs/guide/first-program.md')).toContain('or with `require` from a CommonJS');
  const { exports } = JSON.parse(page('package.json'));
  const names = Object.keys(exports).filter((path) => !path.endsWith('.json') && path !== './worker');
  const program = names.map((path) => `require('${path.replace('.', 'node-roce')}');`).join('\n');
  const { stdout } = await promisify(execFile)(
    process.execPath,
    ['-e', `${program}\nconsole.log('loaded')`],
    {
      cwd: root,
    },
  );
  expect(stdout).toBe('loaded\n');
});

test('tarballs that pages name have the version of the packages', () => {
  const { version } = JSON.parse(page('package.json'));
  const names = ['README.md', 'docs/guide/first-program.md', 'docs/run.md', 'packages/cli/README.md'].flatMap(
    (path) => [...page(path).matchAll(/\bnode-roce(?:-\w+)?-(\d[\w.-]*)\.tgz/g)].map(([, found]) => found),
  );
  expect(new Set(names)).toEqual(new Set([version]));
});

test('pages agree about the time that `close` waits for a peer', () => {
  const seconds = ['docs/connect.md', 'docs/rsocket.md'].map(
    (path) => Number(/\| `closeTimeout` \| (\d+) \|/.exec(page(path))![1]) / 1000,
  );
  expect(seconds).toEqual([5, 5]);
  expect(page('docs/guide/lifetimes.md')).toContain('at most 5 s (`closeTimeout`)');
});

// packages/rdmacm/src/ports.test.ts shows that it is so.
test('pages and --help agree about the default addresses: all for `listen`, that of the route for `connect`', async () => {
  expect(page('docs/connect.md')).toContain('| `address` (`listen`) | all addresses |');
  expect(page('docs/connect.md')).toContain('| `source` (`connect`) | chosen by the routing table |');
  expect(page('docs/rsocket.md')).toMatch(
    /\| `source` \(`connect`\), `address` \(`listen`\),.*\| chosen by the routing table; all addresses;/,
  );
  const first = page('docs/guide/first-program.md').replaceAll(/\s+/g, ' ');
  expect(first).toContain('If `listen` gets no `address`, it listens at all addresses of the machine.');
  expect(first).toContain('If `connect` gets no `source`, the routing table chooses the local address');
  const helpOf = async (command: string) => {
    const roce = join(root, 'packages/cli/bin/roce.js');
    const { stdout } = await promisify(execFile)(process.execPath, [roce, command, '--help']);
    return stdout.replaceAll(/\s+/g, ' ');
  };
  expect(await helpOf('listen')).toContain('Local address to listen at (default: all of this machine)');
  expect(await helpOf('connect')).toContain('Local address to use (default: that of the route to the peer)');
});

test('README.md has at most 90 lines', () => {
  expect(page('README.md').trimEnd().split('\n').length).toBeLessThanOrEqual(90);
});

test('pages and the device agree about the damaged packets that an open window of Identifications accepts', async () => {
  expect(page('packages/link/src/udp.ts')).toContain("sharing?.isAlone === false ? '32,768'");
  const shares = (await files('docs/*.md')).flatMap((path) =>
    [...page(path).matchAll(/\b(?:damaged packet|accepts \(one) in (\d\d,\d{3})\b/g)].map(
      ([, share]) => share,
    ),
  );
  expect(shares.length).toBeGreaterThan(4);
  expect(new Set(shares)).toEqual(new Set(['32,768']));
});

test('pages name as many conformance rules as there are', () => {
  const withNeed = (...needs: string[]) =>
    rules().filter((rule) => rule.needs.some((need) => needs.includes(need))).length;
  for (const path of ['README.md', 'docs/conform.md'])
    expect(page(path)).toMatch(new RegExp(`\\b${rules().length} rules`));
  const text = page('docs/conform.md').replaceAll(/\s+/g, ' ');
  const words = ['eleven', 'twelve', 'thirteen', 'fourteen', 'fifteen', 'sixteen'];
  const word = (count: number) => words[count - 11] ?? `${count}`;
  expect(text).toContain(`has ${withNeed('listener', 'caller')} rules`);
  expect(text).toContain(`all rules except ${word(withNeed('frames', 'spoof'))}`);
  const passive = word(PASSIVE_RULES.length);
  expect(text).toContain(`${passive.charAt(0).toUpperCase()}${passive.slice(1)} rules (area \`TRC\``);
  // Three of the basic rules are of the connection manager: the agent does not test them.
  const first = rules().filter((rule) => rule.first && !rule.needs.includes('listener')).length;
  expect(text).toContain(`the ${first} basic rules`);
});

test('security.md has as many hostile packets as the gate sends', () => {
  const steps: { command: string; env?: Record<string, number> }[] = CI;
  const given = Object.assign({}, ...steps.map(({ env }) => env));
  const sentBy = (path: string) =>
    steps.some(({ command, env }) => env !== undefined && command.includes(path.replace('.test.ts', '')));
  const security = page('docs/security.md');
  for (const [path, variable, rows] of [
    [
      'test/hostile/packets.test.ts',
      'ROCE_HOSTILE_PACKETS',
      [/, forged \|.*\| 3 × ([\d,]+) \|/, /the same, mutated \|.*\| ([\d,]+) \|/],
    ],
    ['test/hostile/insider.test.ts', 'ROCE_HOSTILE_PACKETS', [/insider\.test\.ts\) \|.*\| ([\d,]+) \|/]],
    ['test/hostile/link.test.ts', 'ROCE_HOSTILE_PACKETS', [/link\.test\.ts\) \|.*\| 3 × ([\d,]+) \|/]],
    ['test/hostile/cm.test.ts', 'ROCE_HOSTILE_MADS', [/cm\.test\.ts\) \|.*\| 2 × ([\d,]+) \|/]],
    [
      'test/perf/hostile/mutated.test.ts',
      'ROCE_PERF_DIALOGUES',
      [/mutated\.test\.ts\) \|.*\| ([\d,]+), 30 \|/],
    ],
  ] as const) {
    const usualOf = new RegExp(`process\\.env\\.${variable} \\?\\? ([\\d_]+)`);
    const [, usual = ''] = usualOf.exec(page(path)) ?? [];
    const count = Number(sentBy(path) ? given[variable] : usual.replaceAll('_', ''));
    for (const row of rows)
      expect(row.exec(security)?.[1], `${path} ${row}`).toBe(count.toLocaleString('en'));
  }
});

test('README.md has commands of other pages as they stand there, where tests run them', () => {
  const [readme, first, ci] = ['README.md', 'docs/guide/first-program.md', 'docs/guide/ci.md'].map(page);
  const blockOf = (kind: string) =>
    [...readme.matchAll(new RegExp(`\`\`\`${kind}\n([\\s\\S]*?)\`\`\``, 'g'))].map(([, block = '']) => block);
  const [, install = ''] = blockOf('sh');
  const commands = (text: string) => text.split('\n').map((line) => line.replace(/ +#.*/, '').trim());
  expect(commands(install).filter((line) => !commands(first).includes(line))).toEqual([]);
  const [job = ''] = blockOf('yaml');
  // All lines of the job: the test of the action runs the page's job as it stands.
  expect(ci).toContain(`${job}\`\`\``);
});

test.each(['docs', 'docs/guide'])('%s/README.md leads to each page of its folder', async (folder) => {
  const map = page(`${folder}/README.md`);
  const names = (await files(`${folder}/*.md`))
    .map((path) => path.slice(folder.length + 1))
    .filter((name) => name !== 'README.md' && !name.includes('/'));
  expect(names.length).toBeGreaterThan(10);
  expect(names.filter((name) => !map.includes(`(${name}`))).toEqual([]);
});

test('no page installs by npx from the registry: the packages are not published', async () => {
  expect(page('README.md')).toContain('The packages are not published yet');
  const pages = [...(await files('*.md')), ...(await files('.github'))].filter(
    (path) => !/^(CHANGELOG|test)/.test(path),
  );
  expect(pages.filter((path) => /\bnpx (--yes )?(@node-roce|node-roce|roce)\b/.test(page(path)))).toEqual([]);
});
