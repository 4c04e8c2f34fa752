/** The examples run as they stand; the one in the README is examples/write.mjs. */
import { execFile, spawn } from 'node:child_process';
import { existsSync, readFileSync, rmSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { describe, expect, test } from 'vitest';

const run = promisify(execFile);
const path = (name: string) => fileURLToPath(new URL(`../examples/${name}`, import.meta.url));
const read = (name: string) => readFileSync(new URL(`../${name}`, import.meta.url), 'utf8');

/** On addresses of its own, so that other tests may use the first ones of loopback. */
test('write.mjs', async () => {
  const { stdout } = await run(process.execPath, [path('write.mjs')]);
  expect(stdout).toBe('SUCCESS written from afar\n');
});

test('the README shows write.mjs', () => {
  expect(read('README.md')).toContain(`\`\`\`js\n${read('examples/write.mjs')}\`\`\``);
});

test('two-programs.mjs: server and client', async () => {
  const env = { ...process.env, PORT: '18677' };
  const server = spawn(process.execPath, [path('two-programs.mjs'), 'server', '127.0.7.1'], { env });
  let said = '';
  server.stdout.on('data', (data) => {
    said += data;
  });
  const ended = new Promise<number | null>((resolve) => server.on('exit', resolve));
  let client: { stdout: string } | undefined;
  for (let attempt = 0; client === undefined; attempt++) {
    client = await run(process.execPath, [path('two-programs.mjs'), 'client', '127.0.7.2', '127.0.7.1'], {
      env,
    }).catch(async (error: Error) => {
      if (!error.message.includes('ECONNREFUSED') || attempt > 50) throw error;
      await new Promise((resolve) => setTimeout(resolve, 100));
      return undefined;
    });
  }
  expect(client.stdout).toBe('the server offers: the answer is 42\n');
  expect(await ended).toBe(0);
  expect(said).toBe('the client says: thank you\n');
});

describe('interop-suite.mjs', () => {
  test('passes for our own engine, all seeds and one', async () => {
    const { stdout } = await run(process.execPath, [path('interop-suite.mjs')]);
    expect(stdout).toBe('all is well\n');
    expect((await run(process.execPath, [path('interop-suite.mjs'), '17'])).stdout).toBe('all is well\n');
  });

  test.each([
    ['sends no NAK', 'p.bytes[12] < 0x60', /expected a packet|syndrome is|PSN/],
    [
      'forgets to answer at times',
      '++sent % 40 !== 0 || p.bytes[0] !== 0x11 || p.bytes[12] >= 0x60',
      undefined,
    ],
    [
      'turns a bit over in what it sends',
      '(p.bytes[0] === 4 && (p.bytes[12] ^= 1), true)',
      /seed \d+: .*damaged/,
    ],
  ])('a device that %s', async (_what, keep, expected) => {
    // The device is packed into one that spoils what it says.
    const spoilt = `
      let sent = 0;
      const makeDevice = (options) => {
        const device = new EngineEndpoint(options);
        const transmit = device.transmit.bind(device);
        device.transmit = (now) => transmit(now).filter((p) => ${keep});
        return device;
      };`;
    const program = read('examples/interop-suite.mjs').replace(/^const makeDevice = .*$/m, spoilt);
    const root = fileURLToPath(new URL('..', import.meta.url));
    const running = run(process.execPath, ['--input-type=module', '-e', program], { cwd: root });
    // What loss explains, a requester has to survive; all else is found.
    if (expected === undefined) expect((await running).stdout).toBe('all is well\n');
    else {
      const error = await running.then(
        () => undefined,
        (reason) => reason,
      );
      expect(error?.stderr).toMatch(expected);
      const capture = /seed (\d+)/.exec(error.stderr)?.[1];
      if (capture) {
        const file = `${root}interop-suite-${capture}.pcapng`;
        expect(existsSync(file)).toBe(true);
        rmSync(file);
      }
    }
  });
});
