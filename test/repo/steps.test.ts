/** The line that `npm run setup` shows on a terminal. */
import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { expect, test } from 'vitest';
// @ts-expect-error: plain JavaScript
import { runSteps } from '../../scripts/steps.mjs';

const program = (code: string) => [process.execPath, '-e', code];
const PRINTS = program("process.stdout.write('one\\ntw'); setTimeout(() => console.error('o'), 50)");

/** Runs steps at a terminal; returns the exit code, what was written, and what stays on the screen. */
async function atTerminal(...steps: [what: string, ...command: string[]][]) {
  let text = '';
  const terminal = { isTTY: true, write: (part: string) => (text += part) };
  const code: number = await runSteps('setup', steps, terminal, terminal);
  // Cleared text is gone.
  const screen = text.split('\n').map((line) => line.split('\r\u001b[K').at(-1));
  return { code, text, screen: screen.join('\n') };
}

test('names the step and its time, and leaves only the output of the commands', async () => {
  const { code, text, screen } = await atTerminal(['printing', ...PRINTS], ['waiting', ...program('')]);
  expect(code).toBe(0);
  expect(text).toContain('\r\u001b[Ksetup: step 1 of 2, printing, 0 s');
  expect(text).toContain('setup: step 2 of 2, waiting, 0 s');
  expect(screen).toBe('one\ntwo\n');
});

test('ends at the first step that fails, with its exit code', async () => {
  const { code, text } = await atTerminal(['failing', ...program('process.exit(3)')], ['never', ...PRINTS]);
  expect(code).toBe(3);
  expect(text).not.toContain('never');
  expect((await atTerminal(['starting', '/nonexistent/program'])).code).toBe(1);
});

test('without a terminal, prints nothing of its own', async () => {
  let text = '';
  const terminal = { isTTY: false, write: (part: string) => (text += part) };
  expect(await runSteps('setup', [['quiet', ...program('')]], terminal)).toBe(0);
  expect(text).toBe('');
});

test('standard output that goes to a file or a pipe has the output of the commands', () => {
  const file = join(import.meta.dirname, '../../scripts/steps.mjs');
  const { stdout } = spawnSync(
    process.execPath,
    [
      ...['--input-type=module', '--eval'],
      `import { runSteps } from ${JSON.stringify(file)};
       await runSteps('setup', [['printing', process.execPath, '-e', 'console.log(1)']], { isTTY: true, write() {} });`,
    ],
    { encoding: 'utf8' },
  );
  expect(stdout).toBe('1\n');
});
