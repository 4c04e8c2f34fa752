/** Pages and helps name commands and options that exist. */
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { commands, nameOf } from './commands.ts';
import { outlineOf } from './manual/outline.ts';

const root = join(import.meta.dirname, '../../..');
const outlines = new Map(commands.map((spec) => [nameOf(spec), { ...outlineOf(spec), spec }]));
const pages = execFileSync('git', ['ls-files', '*.md'], { cwd: root, encoding: 'utf8' })
  .split('\n')
  .filter((path) => path !== '' && !/^(test|CHANGELOG)/.test(path));

/** The words of a command line in a page, up to a pipe, redirection or comment; quotes are removed. */
function wordsOf(line: string): string[] {
  const words: string[] = [];
  for (const [word, double, single] of line.matchAll(/"([^"]*)"|'([^']*)'|\S+/g)) {
    const quoted = double ?? single;
    if (quoted === undefined && /^([|&<>;#…]|\d>)/.test(word)) break;
    words.push(quoted ?? word.replace(/[;,]$/, ''));
  }
  return words;
}

/** Command lines of `roce` in the code of a page: blocks of commands, and code inside of sentences. */
function linesOf(markdown: string): string[] {
  const blocks = [...markdown.matchAll(/^(?:```(?:sh|yaml|dockerfile)?)\n([\s\S]*?)^```/gm)].map(
    ([, text]) => text!,
  );
  const indented = markdown.match(/^ {4}\S.*$/gm) ?? [];
  const spans = [...markdown.replaceAll(/^```[\s\S]*?^```/gm, '').matchAll(/`(roce [^`\n]+)`/g)].map(
    ([, text]) => text!,
  );
  return [
    ...blocks.flatMap((text) => text.replaceAll('\\\n', ' ').split('\n')),
    ...indented,
    ...spans,
  ].flatMap((line) =>
    [...line.matchAll(/(?:^|[\s(|;])(?:\$ )?roce (?=[a-z-]+(?: |$))(.*)/g)].map(([, rest]) => rest!),
  );
}

/** The unknown command or option of a command line. */
function faultOf(line: string): string | undefined {
  const [name = '', ...words] = wordsOf(line);
  if (/^(-V|-h|--version|--help|help)$/.test(name)) return undefined;
  const outline = outlines.get(name);
  if (outline === undefined) return `no command ${name}`;
  const known = new Map(
    outline.options.flatMap((option) => option.names.map((flag) => [flag, option] as const)),
  );
  for (let i = 0; i < words.length; i++) {
    const word = words[i] as string;
    if (!word.startsWith('-') || word === '-') {
      if (outline.spec.passThrough) return undefined;
      continue;
    }
    if (word === '--') return undefined;
    const option = known.get(word.replace(/=.*/, ''));
    if (option === undefined) return `roce ${name} has no ${word}`;
    if (option.value !== undefined && !word.includes('=')) i++;
  }
  return undefined;
}

test.each(pages)('%s', (page) => {
  const lines = linesOf(readFileSync(join(root, page), 'utf8'));
  expect(lines.map((line) => [line, faultOf(line)]).filter(([, fault]) => fault)).toEqual([]);
});

test('the examples of each help', () => {
  const lines = commands.flatMap(({ examples }) => examples.flatMap(([line]) => line.split(/[&|] roce /)));
  expect(lines.map((line) => [line, faultOf(line)]).filter(([, fault]) => fault)).toEqual([]);
});

test.each([
  [
    'docs/counters.md',
    /With `--metrics PORT`,\s+the commands that open devices \((.*)\) serve/,
    '--metrics',
    '',
  ],
  ['docs/xdp.md', /The commands (.*) take `--link xdp`/, '--link', 'xdp (AF_XDP'],
])('%s lists the commands that have the option', (page, sentence, flag, value) => {
  const [, list = ''] = sentence.exec(readFileSync(join(root, page), 'utf8')) ?? [];
  const having = [...outlines].filter(([, { options }]) =>
    options.some(({ names, summary }) => names.includes(flag) && summary.includes(value)),
  );
  expect([...list.matchAll(/`(?:roce )?(\w+)`/g)].map(([, name]) => name)).toEqual(
    having.map(([name]) => name).sort(),
  );
});

test('a page has as many command lines as are looked at here, and a wrong option is found', () => {
  expect(linesOf(readFileSync(join(root, 'docs/capture-export.md'), 'utf8')).length).toBeGreaterThan(20);
  expect(faultOf('flows trace.pcap --opcode x | head')).toBe('roce flows has no --opcode');
  expect(faultOf('run -a 127.0.0.2 ib_write_bw --no-such-option')).toBeUndefined();
  expect(faultOf('wait x')).toBe('no command wait');
});
