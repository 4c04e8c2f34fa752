/** The man page and the completion have every command and option of the help, and shells complete by them. */
import { execFileSync, spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { run } from '../cli.ts';
import { commands, nameOf } from '../commands.ts';
import { version } from '../version.ts';
import { manPage } from './man-page.ts';
import { type CommandOutline, outlineOf } from './outline.ts';

const outlines = commands.map(outlineOf);
const has = (program: string) => spawnSync(program, ['--version']).status === 0;

/** Runs `roce`, and returns its exit code and output. */
async function printed(...args: string[]): Promise<{ code: number; out: string; err: string }> {
  let [out, err] = ['', ''];
  const code = await run(args, {
    stdin: Readable.from([]),
    stdout: { write: (text) => (out += text), columns: 400 },
    stderr: { write: (text) => (err += text) },
    env: {},
    signal: new AbortController().signal,
  });
  return { code, out, err };
}

const flagsOf = ({ options }: CommandOutline) => options.flatMap(({ names }) => names);

test.each(commands.map((spec) => [nameOf(spec), outlineOf(spec)] as const))(
  'the outline of %s has the options of its help, and no others',
  async (name, outline) => {
    const { out } = await printed(name, '--help');
    const listed = [...out.matchAll(/^ {2}(-[^<\n]*?)(?: <[^\n]*?>)?(?: {2,}|$)/gm)].flatMap(([, flags]) =>
      flags.split(', '),
    );
    expect(flagsOf(outline).sort()).toEqual(listed.sort());
  },
);

describe('the man page', () => {
  const page = manPage(commands, version());
  const plain = page.replaceAll('\\-', '-').replaceAll(/\\f[BIR]/g, '');

  test.each(outlines)('has the options and examples of $name', ({ name, options, examples }) => {
    const begin = plain.indexOf(`.SS roce ${name} `);
    const section = plain.slice(begin, plain.indexOf('.SS ', begin + 1));
    for (const { names, value } of options)
      expect(section).toContain(`\n${[names.join(', '), value].filter(Boolean).join(' ')}\n`);
    for (const [line] of examples) expect(section).toContain(`roce ${line.replaceAll('\\', '\\e')}`);
  });

  test('is the one that the package ships, under a name that npm takes', () => {
    const folder = join(import.meta.dirname, '../..');
    const { man } = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8')) as { man: string };
    expect(man).toMatch(/\.1$/);
    expect(readFileSync(join(folder, man), 'utf8')).toBe(page);
  });

  test('is ASCII without a line that roff would take for a request', () => {
    expect(page).toMatch(/^[\n -~]*$/);
    const requests = page.match(/^[.'].*/gm)!.map((line) => line.split(' ')[0]);
    expect([...new Set(requests)].sort()).toEqual(['.B', '.PP', '.SH', '.SS', '.TH', '.TP']);
  });

  test.skipIf(!has('groff'))('formats without a warning', () => {
    const { stdout, stderr } = spawnSync('groff', ['-man', '-ww', '-Tutf8'], {
      input: page,
      encoding: 'utf8',
    });
    expect(stderr).toBe('');
    expect(stdout.length).toBeGreaterThan(page.length / 2);
  });
});

test('completion for another shell is refused with those that there are', async () => {
  const { code, err } = await printed('completion', 'tcsh');
  expect([code, err]).toEqual([2, expect.stringContaining('Expected one of bash, zsh, fish.')]);
});

/** Command lines, the last word unfinished, and words that have to be offered, or not. */
const LINES: [line: string, offered: string[], absent: string[]][] = [
  ['roce d', ['demo', 'device', 'devinfo', 'doctor', 'dump'], ['flows', 'help']],
  ['roce completion ', ['bash', 'fish', 'zsh'], ['demo']],
  ['roce help com', ['compare', 'completion'], []],
  ['roce flows --ic', ['--icrc'], ['--json']],
  ['roce flows --icrc ', ['check', 'skip'], ['trace.pcap']],
  ['roce dump tra', ['trace.pcap'], ['--json']],
  ['roce export -o tra', ['trace.pcap'], []],
  ['roce perf -s 64 wr', ['write'], ['bw']],
];

describe('scripts', () => {
  let folder = '';
  const scripts: Record<string, string> = {};
  beforeAll(async () => {
    folder = mkdtempSync(join(tmpdir(), 'roce-completion-'));
    writeFileSync(join(folder, 'trace.pcap'), '');
    for (const shell of ['bash', 'zsh', 'fish']) {
      scripts[shell] = join(folder, `script.${shell}`);
      writeFileSync(scripts[shell], (await printed('completion', shell)).out);
    }
  });
  afterAll(() => rmSync(folder, { recursive: true }));

  test.each(['bash', 'zsh', 'fish'])('for %s have every command and option', (shell) => {
    const script = readFileSync(scripts[shell], 'utf8');
    for (const outline of outlines)
      for (const word of [outline.name, ...flagsOf(outline)])
        expect(script).toContain(shell === 'fish' ? word.replace(/^--?/, '') : word);
  });

  /** The words that a shell offers for a command line. */
  const offers: Record<string, (line: string) => string[]> = {
    bash: (line) => {
      const words = line.split(' ').map((word) => `'${word}'`);
      const program = `source ${scripts.bash}; COMP_WORDS=(${words.join(' ')}); COMP_CWORD=${words.length - 1}; _roce; printf '%s\\n' "\${COMPREPLY[@]}"`;
      return execFileSync('bash', ['--norc', '-c', program], { cwd: folder, encoding: 'utf8' }).split('\n');
    },
    fish: (line) => {
      const program = `source ${scripts.fish}; complete -C '${line}'`;
      const out = execFileSync('fish', ['--no-config', '-c', program], { cwd: folder, encoding: 'utf8' });
      return out.split('\n').map((offer) => offer.split('\t')[0]);
    },
  };
  for (const shell of ['bash', 'fish']) {
    describe.skipIf(!has(shell))(`${shell} completes`, () => {
      test.each(LINES)('%s', (line, offered, absent) => {
        const words = offers[shell](line);
        expect(words).toEqual(expect.arrayContaining(offered));
        expect(words.filter((word) => absent.includes(word))).toEqual([]);
      });
    });
  }

  test.skipIf(!has('zsh'))('zsh takes it as a completion of roce', () => {
    const program = `autoload -U compinit; compinit -u -D; source ${scripts.zsh}; print -r -- "$_comps[roce]"`;
    expect(execFileSync('zsh', ['-f', '-c', program], { encoding: 'utf8' })).toBe('_roce\n');
  });

  test('offer the interfaces of this machine', () => {
    expect(existsSync('/sys/class/net/lo')).toBe(true);
    expect(offers.bash('roce capture -i l')).toContain('lo');
  });
});
