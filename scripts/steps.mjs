/** Runs commands in turn. On a terminal, a line below their output names the step and its time, so that a long one is not silent. */
import { spawn } from 'node:child_process';

/** ms between two drawings of the line. */
const EVERY = 1000;

/**
 * Runs one command; resolves with its exit code.
 *
 * @param {string} text the line without the time
 * @param {readonly string[]} command
 * @param {NodeJS.WriteStream} terminal
 * @param {NodeJS.WriteStream} output
 */
function run(text, [program, ...args], terminal, output) {
  const { isTTY } = terminal;
  // Output to a file or a pipe stays there.
  const shown = [isTTY && output.isTTY, isTTY];
  const child = spawn(program, args, {
    stdio: ['inherit', ...shown.map((isShown) => (isShown ? 'pipe' : 'inherit'))],
  });
  const start = performance.now();
  // A part of a line stays until the rest has come: the step's line would stand in the middle of it.
  let part = '';
  const draw = () => terminal.write(`\r\u001b[K${text}, ${Math.floor((performance.now() - start) / 1000)} s`);
  const show = (chunk) => {
    const end = chunk.lastIndexOf('\n') + 1;
    if (end > 0) terminal.write(`\r\u001b[K${part}${chunk.slice(0, end)}`);
    part = (end > 0 ? '' : part) + chunk.slice(end);
    draw();
  };
  const timer = isTTY ? setInterval(draw, EVERY) : undefined;
  if (isTTY) {
    draw();
    for (const stream of [child.stdout, child.stderr]) stream?.setEncoding('utf8').on('data', show);
  }
  return new Promise((resolve) => {
    const end = (code) => {
      clearInterval(timer);
      if (isTTY) terminal.write(`\r\u001b[K${part === '' ? '' : `${part}\n`}`);
      resolve(code);
    };
    child.on('error', (error) => {
      terminal.write(`${program}: ${error.message}\n`);
      end(1);
    });
    child.on('close', (code) => end(code ?? 1));
  });
}

/**
 * Runs each command until one fails; resolves with the exit code of the last one.
 *
 * @param {string} name of the whole, at the beginning of the line
 * @param {readonly (readonly [what: string, ...command: string[]])[]} steps
 * @param {NodeJS.WriteStream} [terminal]
 * @param {NodeJS.WriteStream} [output] where the commands' standard output goes
 */
export async function runSteps(name, steps, terminal = process.stderr, output = process.stdout) {
  for (const [i, [what, ...command]] of steps.entries()) {
    const code = await run(`${name}: step ${i + 1} of ${steps.length}, ${what}`, command, terminal, output);
    if (code !== 0) return code;
  }
  return 0;
}
