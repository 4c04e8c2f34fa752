/** `roce conform` against rxe: every rule, with the agent next to it, and the list of what this rxe is known to do instead. */
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { AGENT_SOURCE } from '@node-roce/conform';
import { expect, inject, test } from 'vitest';
import { leftOut, rulesOf, wholeRun } from '../conform/played.ts';
import { GID_INDEX, Guest } from './harness/guest.ts';
import { onRelease } from './harness/release.ts';
import { RoceCommand } from './harness/roce.ts';
import { SAMPLE } from './harness/sample.ts';

const guest = new Guest(inject('guest9000'));
const { ip4, hostIp4 } = guest.address;
const list = onRelease({ debian12: 'rxe-6.1', debian13: 'rxe-6.12' });

/**
 * Lines that are no fault: the card of the guest has no speed, which each query of the port logs; rxe of 6.12 logs each request
 * that completes with an error, of any program (seen with rping whose sides have buffers of different sizes).
 */
const ORDINARY = onRelease({
  debian12: /speed is unknown, defaulting to/,
  debian13: /speed is unknown, defaulting to|rxe0: qp#\d+ \w+: non-flush error status = \d+$/,
});

/** Lines that the kernel logged since the last call. */
async function kernelLog(): Promise<string[]> {
  const lines = (await guest.must('dmesg -c')).split('\n');
  return lines.filter((line) => line !== '' && !ORDINARY.test(line));
}

/** Its library has no ibv_rereg_mr; Linux 6.1 has no FLUSH and no ATOMIC WRITE, that of 6.12 answers no FLUSH. */
const TOTALS = /^rxe0: (\d+) rules and (\d+) passive checks: [12]\d\d pass, \d+ known, \d+ not testable$/m;

/** Results that are neither passed nor known, with their reasons. */
const newsOf = (output: string) => output.replaceAll(/^(pass|known) .*\n( .*\n)*/gm, '');

/** Compiles the agent here, which has a compiler, and starts it in the guest. */
async function startAgent() {
  const folder = mkdtempSync(join(tmpdir(), 'roce-agent-'));
  try {
    const program = join(folder, 'roce-agent');
    const { status, stderr } = spawnSync('cc', ['-O2', '-o', program, AGENT_SOURCE.pathname, '-libverbs']);
    expect(status, String(stderr)).toBe(0);
    const text = readFileSync(program).toString('base64');
    await guest.must('base64 -d > /tmp/roce-agent && chmod +x /tmp/roce-agent', { stdin: text });
  } finally {
    rmSync(folder, { recursive: true });
  }
  const agent = guest.spawn(`exec /tmp/roce-agent -b ${ip4} -g ${GID_INDEX[4]} 2>&1`);
  await new Promise<void>((resolve, reject) => {
    agent.onStdout = (text) => text.includes(`rxe0 at ${ip4} port`) && resolve();
    agent.exited.then(({ stdout }) => reject(new Error(`the agent ended: ${stdout}`)), reject);
  });
  return agent;
}

test('without an agent: rules that perftest serves', async () => {
  const servers = ['write', 'read', 'atomic'].map((verb, i) =>
    guest.spawn(`while :; do ib_${verb}_bw -d rxe0 -x 1 -F -p ${18_515 + i}; done 2>&1`),
  );
  try {
    const chosen = SAMPLE === '' ? ['--hostile'] : ['--rule', 'PSN-01,PSN-02,KEY-02,LEN-04'];
    await using tester = new RoceCommand(['conform', ip4, '--via', 'perftest', '--device', list, ...chosen]);
    const { code, stdout, stderr } = await tester.exited;
    expect(code, newsOf(stdout) + stderr).toBe(0);
    if (SAMPLE === '') expect(leftOut(rulesOf('perftest', true), stdout)).toEqual([]);
    expect(stdout).toMatch(
      /^perftest at [\d.]+: \d+ rules( and \d+ passive checks?)?: \d+ pass(, \d+ known)?$/m,
    );
  } finally {
    for (const server of servers) server.kill();
  }
});

test('without an agent: the connection manager, with a service of rping', async () => {
  // A connection that fails ends rping.
  const server = guest.spawn('while :; do rping -s -P -S 4096; done 2>&1');
  const client = guest.spawn(`while :; do rping -c -a ${hostIp4} -C 1; sleep 0.1; done 2>&1`);
  try {
    await kernelLog();
    const hostile = SAMPLE === '' ? ['--hostile', '--slow'] : [];
    const chosen = ['--via', 'cm', '--device', list, '--patience', '1200', ...hostile];
    await using tester = new RoceCommand(['conform', ip4, ...chosen]);
    const { code, stdout, stderr } = await tester.exited;
    expect(code, stdout + stderr).toBe(0);
    expect(leftOut(rulesOf('cm', SAMPLE === ''), stdout)).toEqual([]);
    expect(stdout).toMatch(/: [23]\d rules and \d+ passive checks: [34]\d pass(, \d known)?\n/);
    expect(await kernelLog()).toEqual([]);
  } finally {
    client.kill();
    server.kill();
  }
});

test('every rule: nothing that the list has not, and the kernel of the device logs nothing', async () => {
  const agent = await startAgent();
  try {
    await kernelLog();
    const hostile = SAMPLE === '' ? ['--hostile', '--slow'] : [];
    await using tester = new RoceCommand([
      'conform',
      ip4,
      '--device',
      list,
      '--patience',
      '1200',
      ...hostile,
    ]);
    const { code, stdout, stderr } = await tester.exited;
    const log = await kernelLog();
    expect(code, `${newsOf(stdout)}\n${stderr}\n${log.join('\n')}`).toBe(0);
    const all = wholeRun(SAMPLE === '');
    expect(leftOut(all, stdout)).toEqual([]);
    const [, rules, checks] = TOTALS.exec(stdout) ?? [];
    expect(Number(rules) + Number(checks), stdout.slice(-200)).toBe(all.length);
    expect(log).toEqual([]);
  } finally {
    agent.kill();
  }
});
