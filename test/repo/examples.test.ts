/** The examples run as they stand; the README shows stream-echo.mjs, and what `roce flows` prints. */
import { execFile, spawn } from 'node:child_process';
import { existsSync, readFileSync, rmSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { describe, expect, test } from 'vitest';
// @ts-expect-error: plain JavaScript
import { terminalPicture } from '../../scripts/terminal-picture.mjs';

const run = promisify(execFile);
const path = (name: string) => fileURLToPath(new URL(`../../examples/${name}`, import.meta.url));
const read = (name: string) => readFileSync(new URL(`../../${name}`, import.meta.url), 'utf8');

/** On addresses of its own, so that other tests may use the first ones of loopback. */
test('write.mjs', async () => {
  const { stdout } = await run(process.execPath, [path('write.mjs')]);
  expect(stdout).toBe('SUCCESS written from afar\n');
});

test('the README shows stream-echo.mjs, and the first lines of roce flows, also in a picture (node scripts/terminal-picture.mjs)', async () => {
  const readme = read('README.md');
  expect(readme).toContain(`\`\`\`js\n${read('examples/stream-echo.mjs')}\`\`\``);
  const [, file = '', shown = ''] = /```text\n\$ roce flows (.*)\n([\s\S]*?)```/.exec(readme)!;
  const roce = fileURLToPath(new URL('../../packages/cli/bin/roce.js', import.meta.url));
  const cwd = fileURLToPath(new URL('../..', import.meta.url));
  const { stdout } = await run(process.execPath, [roce, 'flows', file], { cwd });
  expect(shown).toContain('verdict  ');
  expect(stdout.startsWith(shown)).toBe(true);
  expect(read('docs/terminal.svg')).toBe(terminalPicture(stdout));
});

test('tokens.mjs admits by token, and changes its key; guide/securing.md shows it', async () => {
  const quote = `<!-- examples/tokens.mjs -->\n\`\`\`js\n${read('examples/tokens.mjs')}\`\`\``;
  expect(read('docs/guide/securing.md')).toContain(quote);
  const { stdout } = await run(process.execPath, [path('tokens.mjs')]);
  expect(stdout.split('\n')).toEqual([
    ...[7, 8].map((client) => `client ${client}: CONSUMER_DEFINED`),
    'for clients with a token',
    'another key: true; for clients with a token',
    'the old key: REM_ACCESS_ERR',
    '',
  ]);
});

test('stream-echo.mjs has twelve lines of code at most', async () => {
  const lines = read('examples/stream-echo.mjs').split('\n');
  expect(lines.filter((line) => line !== '' && !line.startsWith('//')).length).toBeLessThanOrEqual(12);
  const { stdout } = await run(process.execPath, [path('stream-echo.mjs')]);
  expect(stdout).toBe('hello\n');
});

/** Runs an example as server and as client, which tries until the server listens. */
async function serverAndClient(name: string, tcpPort: number, server: string[], client: string[]) {
  const env = { ...process.env, PORT: `${tcpPort}` };
  const serving = spawn(process.execPath, [path(name), ...server], { env });
  const said = { server: '', client: '' };
  serving.stdout.on('data', (data) => {
    said.server += data;
  });
  const ended = new Promise<number | null>((resolve) => serving.on('exit', resolve));
  while (said.client === '') {
    try {
      said.client = (await run(process.execPath, [path(name), ...client], { env })).stdout;
    } catch (error) {
      if (!(error as Error).message.includes('ECONNREFUSED') || serving.exitCode !== null) throw error;
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
  }
  expect(await ended).toBe(0);
  return said;
}

test('two-programs.mjs: server and client', { tags: ['slow', 'gate'] }, async () => {
  const server = ['server', '127.0.7.1'];
  const client = ['client', '127.0.7.2', '127.0.7.1'];
  expect(await serverAndClient('two-programs.mjs', 18677, server, client)).toEqual({
    client: 'the server offers: the answer is 42\n',
    server: 'the client sends: thank you\n',
  });
});

test.each(['two-programs.mjs', 'ibv-rc-pingpong.mjs'])(
  '%s without arguments prints its usage',
  async (name) => {
    const call = run(process.execPath, [path(name)]);
    await expect(call).rejects.toMatchObject({ code: 2, stderr: expect.stringMatching(/^usage: .*ADDRESS/) });
  },
);

describe('each on one screen', { tags: ['slow', 'gate'] }, () => {
  const said: Record<string, string[]> = {
    'echo.mjs': ['there → THERE', 'and → AND', 'back again → BACK AGAIN'],
    'one-sided.mjs': ['RECV_RDMA_WITH_IMM: row 17, 64 bytes', 'SUCCESS row eighteen', 'REM_ACCESS_ERR ERR'],
    'counter.mjs': ['counted 100, 100 different tickets; the lock is with 0', '1 of 4 got the lock'],
    'datagrams.mjs': ['here is 2, here is 3, here is 4'],
    'cm-echo.mjs': ['there → THERE', 'and → AND', 'back again → BACK AGAIN'],
    'cm-key-value.mjs': ['colour: green, shape: round', 'colour: blue', 'size: undefined'],
    'cm-chat.mjs': ['"hello, who is there?" "hello, who is there?"', '"me" "me"'],
    'shared-receives.mjs': [
      ...[1, 2, 3, 4, 5].map((n) => `client ${n}: 20 messages`),
      'stocked up in time; rnr naks: 0',
    ],
    'window-lease.mjs': [
      'first lease SUCCESS',
      'first lease',
      'given back: true',
      'second lease SUCCESS',
      'second lease',
      'given back: true',
      'without a lease: REM_ACCESS_ERR ERR',
    ],
  };
  test.each(Object.keys(said))('%s', async (name) => {
    expect(read(`examples/${name}`).split('\n').length).toBeLessThan(60);
    const { stdout } = await run(process.execPath, [path(name)]);
    expect(stdout.trim().split('\n')).toEqual(said[name]);
  });
});

describe('with the functions of libibverbs', { tags: ['slow', 'gate'] }, () => {
  test('ibv-query-qp.mjs', async () => {
    const { stdout } = await run(process.execPath, [path('ibv-query-qp.mjs')]);
    expect(stdout.trim().split('\n')).toEqual([
      'send requests: at least 10',
      'state: IBV_QPS_RESET',
      'type: IBV_QPT_RC',
      'the completion queues are its own: true',
      'the same sizes: true',
      expect.stringMatching(/^the CQ is in use: EBUSY/),
      'destroyed: 0,0,0,0',
    ]);
  });

  test('ibv-qp-states.mjs: the walks of three types', async () => {
    const { stdout } = await run(process.execPath, [path('ibv-qp-states.mjs')]);
    const walks = stdout.trim().split('\n\n');
    const way = ['INIT', 'RTR', 'RTS', 'SQD', 'RTS', 'ERR', 'RESET'].map((state) => `IBV_QPS_${state}`);
    for (const [i, type] of ['UD', 'UC', 'RC'].entries()) {
      const [title, ...lines] = walks[i].split('\n');
      expect(title).toBe(`IBV_QPT_${type}`);
      expect(lines.slice(0, -1).map((line) => line.split(':')[0])).toEqual(way);
      expect(lines.at(-1)).toBe('send queue drained true');
      const valid = Object.fromEntries(lines.map((line) => line.split(': ')));
      expect(valid.IBV_QPS_RESET).toBe('cap');
      expect(valid.IBV_QPS_SQD.split(' ')).toEqual(expect.arrayContaining(['sq_psn', 'sq_draining']));
      const [connected, reliable] = [
        /ah_attr/.test(valid.IBV_QPS_RTR),
        /min_rnr_timer/.test(valid.IBV_QPS_RTR),
      ];
      expect([connected, reliable]).toEqual([type !== 'UD', type === 'RC']);
    }
    expect(walks[3]).toMatch(/^IBV_QPT_RAW_PACKET: (created|EPERM)/);
  });

  test('ibv-rc-pingpong.mjs: server and client', async () => {
    const line = '1000 sent, 1000 received; by events\n';
    expect(
      await serverAndClient('ibv-rc-pingpong.mjs', 18678, ['127.0.49.1'], ['127.0.49.2', '127.0.49.1']),
    ).toEqual({ server: line, client: line });
  });
});

describe('interop-suite.mjs', { tags: ['slow', 'gate'] }, () => {
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
    // The device is wrapped in one that spoils its messages.
    const spoilt = `
      let sent = 0;
      const makeDevice = (options) => {
        const device = new EngineEndpoint(options);
        const transmit = device.transmit.bind(device);
        device.transmit = (now) => transmit(now).filter((p) => ${keep});
        return device;
      };`;
    const program = read('examples/interop-suite.mjs').replace(/^const makeDevice = .*$/m, spoilt);
    const root = fileURLToPath(new URL('../..', import.meta.url));
    const running = run(process.execPath, ['--input-type=module', '-e', program], { cwd: root });
    // A requester has to survive faults that look like losses; all others are found.
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
