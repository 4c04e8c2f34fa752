/**
 * `roce conform` and its agent, in C, on a device of ours: `roce run` gives it node-roce's library. The rules over a cable need root and iproute2;
 * with ROCE_ROOT_TESTS set, as in .ci/run, they fail without them.
 */
import { type ChildProcess, type StdioOptions, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { connect, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { AGENT_SOURCE, CASE_RULES, open, play, rules } from '@node-roce/conform';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { ShapedCable } from '../links/shaped/network.ts';
import { Devices, listening, type Running, roce, whyMissing } from '../programs/programs.ts';
import { leftOut, rulesOf, wholeRun } from './played.ts';

const missing = whyMissing();
if (missing) console.log(`the agent is not compiled: ${missing}`);

const folder = mkdtempSync(join(tmpdir(), 'roce-conform-'));
const program = join(folder, 'roce-agent');
afterAll(() => rmSync(folder, { recursive: true, force: true }));

describe.skipIf(missing !== undefined)('the agent', () => {
  const address = '127.0.0.91';
  let devices: Devices;
  let agent: Running;

  beforeAll(async () => {
    const flags = ['-O2', '-std=gnu99', '-Wall', '-Wextra', '-Wshadow', '-Werror'];
    const { status, stderr } = spawnSync(
      'cc',
      [...flags, '-o', program, AGENT_SOURCE.pathname, '-libverbs'],
      { encoding: 'utf8' },
    );
    // A warning is an error.
    expect([status, stderr]).toEqual([0, '']);
    devices = await Devices.open(address);
    agent = devices.start(0, program, ['-b', address, '-g', '0', '-i', '1']);
    await listening(18_777);
  });
  afterAll(async () => {
    agent?.child.kill();
    await agent?.ended;
    await devices?.close();
  });

  /** A client, and its questions. */
  async function client(): Promise<{
    socket: Socket;
    ask: (line: string) => Promise<Record<string, unknown>>;
  }> {
    const socket = connect(18_777, address);
    await once(socket, 'connect');
    const lines = createInterface({ input: socket })[Symbol.asyncIterator]();
    const ask = async (line: string) => {
      socket.write(`${line}\n`);
      return JSON.parse((await lines.next()).value);
    };
    return { socket, ask };
  }

  test('a client that is silent does not keep others out', async () => {
    const silent = connect(18_777, address);
    await once(silent, 'connect');
    // No whole line.
    silent.write('hel');
    const next = await client();
    expect(await next.ask('hello')).toMatchObject({ ok: true, agent: 4, device: 'roce0' });
    next.socket.destroy();
    silent.destroy();
  });

  test('opened from a program, plays rules of its own choice', async () => {
    await expect(open({ via: 'agent', host: address })).rejects.toThrow('an address of this machine');
    await using bench = await open({ via: 'agent', host: address, link: 'udp' });
    expect(bench.device.info).toMatchObject({ name: 'roce0' });
    // By flags that ibv_query_device_ex alone has.
    expect([...bench.device.offers]).toEqual(expect.arrayContaining(['flush', 'atomicWrite']));
    for (const rule of rules('PSN-01', 'KEY-02')) {
      const { verdict, why, ladder } = await play(rule, bench);
      expect(verdict, `${why.join('\n')}\n${ladder}`).toBe('pass');
    }
  });

  test('refuses requests that cannot be done, and goes on', async () => {
    const { socket, ask } = await client();
    await ask('mr size=4096 access=l');
    expect(await ask('qp type=ud')).toMatchObject({ ok: true, qp: 0 });
    expect(await ask('send qp=0 mr=0 op=send len=8')).toMatchObject({
      ok: false,
      text: expect.stringContaining('not connected'),
    });
    for (const line of [
      'send qp=7 mr=0 op=send len=8',
      'send qp=0 mr=0 op=send off=4090 len=8',
      'peek mr=0 off=18446744073709551615 len=2',
      'poke mr=0 off=4095 hex=0102',
      'recv qp=0 mr=0 len=8 count=3 stride=4096',
      'connect qp=0 dgid=zz',
      'connect qp=0 dgid=zz000000000000000000000000000000',
      'mr size=0',
      'qp=1',
      '',
    ])
      expect(await ask(line), line).toMatchObject({ ok: false });
    expect(await ask('state qp=0')).toEqual({ ok: true, state: 'INIT' });
    // Two requests in one piece, and one in two.
    socket.write('state qp=0\nsta');
    expect(await ask('te qp=0')).toMatchObject({ ok: true });
    socket.destroy();
  });

  describe('next to our device, across a cable', { tags: ['slow'] }, () => {
    const whys: string[] = [];
    const cable = ShapedCable.make('conform', (why) => whys.push(why));
    if (cable === undefined && process.env.ROCE_ROOT_TESTS) throw new Error(whys.join('\n'));
    const started: ChildProcess[] = [];
    afterAll(async () => {
      for (const child of started) {
        child.kill();
        await once(child, 'close');
      }
      cable?.[Symbol.dispose]();
    });

    function start(
      end: 0 | 1,
      args: readonly string[],
      as: readonly string[] = [],
      stdio: StdioOptions = 'pipe',
    ): ChildProcess {
      const { namespace } = cable!.ends[end];
      return spawn('ip', ['netns', 'exec', namespace, ...as, process.execPath, ...args], {
        env: { ...process.env, XDG_RUNTIME_DIR: folder },
        stdio,
      });
    }

    /** Plays rules, and gives what is printed; it fails where something is news. */
    async function played(
      chosen: readonly string[],
      as?: readonly string[],
      there = cable!.ends[1].address,
    ): Promise<string> {
      const tester = start(0, [roce, 'conform', there, '--device', 'node-roce', ...chosen], as);
      let output = '';
      for (const stream of [tester.stdout, tester.stderr]) {
        stream!.on('data', (data) => {
          output += data;
        });
      }
      const [code] = await once(tester, 'close');
      const news = output.replaceAll(/^(pass|known) .*\n( .*\n)*/gm, '');
      expect(code, news).toBe(0);
      return output;
    }

    async function startAgent(there: string): Promise<void> {
      const running = start(1, [roce, 'run', '-a', there, '--', program, '-b', there, '-g', '0']);
      started.push(running);
      const said = createInterface({ input: running.stderr! })[Symbol.asyncIterator]();
      expect((await said.next()).value).toContain(`roce0 at ${there} port 18777`);
    }

    /** A UDP socket shows no headers of IP; programs of roce run find no counters (CNT-01). */
    function expectAllButEleven(output: string): void {
      const all = wholeRun(false);
      expect(leftOut(all, output)).toEqual([]);
      const totals = `roce0: ${all.length - CASE_RULES.length} rules and ${CASE_RULES.length} passive checks: \\d+ pass, \\d known, 12 not testable\n`;
      expect(output).toMatch(new RegExp(totals));
    }

    describe.skipIf(cable === undefined)('nothing that the list has not', () => {
      beforeAll(async () => {
        cable!.mtu(9000);
        await startAgent(cable!.ends[1].address);
      });

      test('the first rules', { tags: ['gate'] }, async () => {
        const output = await played(['--first']);
        const first = rulesOf('agent', false).filter((rule) => rule.first);
        expect(leftOut(first, output)).toEqual([]);
        expect(output).toMatch(new RegExp(`roce0: ${first.length} rules: \\d+ pass, \\d known\n`));
      });

      test('every rule', async () => {
        const output = await played(['--hostile', '--slow']);
        const all = wholeRun(true);
        expect(leftOut(all, output)).toEqual([]);
        expect(output).toMatch(
          new RegExp(
            `roce0: ${all.length - CASE_RULES.length} rules and ${CASE_RULES.length} passive checks: \\d+ pass, \\d known, 1 not testable\n`,
          ),
        );
      });

      test("with perftest's servers in place of the agent", async () => {
        const servers = ['write', 'read', 'atomic'].map(
          (verb, i) => `ib_${verb}_bw -x 0 -F -p ${18_515 + i}`,
        );
        // The loops end with the shell.
        const loops = servers.map((server) => `while [ -d /proc/$$ ]; do ${server} > /dev/null; done &`);
        const there = cable!.ends[1].address;
        const shell = ['sh', '-c', `${loops.join(' ')} wait`];
        started.push(start(1, [roce, 'run', '-a', there, '--', ...shell], [], 'ignore'));
        const output = await played(['--via', 'perftest', '--hostile']);
        const all = rulesOf('perftest', true);
        expect(leftOut(all, output)).toEqual([]);
        expect(output).toMatch(
          new RegExp(`: ${all.length} rules and \\d+ passive checks: \\d+ pass, \\d known\n`),
        );
      });

      test('every rule but eleven, without a privilege', async () => {
        const { address: here } = cable!.ends[0];
        const ordinary = [
          'setpriv',
          '--reuid',
          '65534',
          '--clear-groups',
          '--inh-caps=-all',
          '--bounding-set=-all',
        ];
        const output = await played(['--link', 'udp', '--bind', here], ordinary);
        expectAllButEleven(output);
      });

      test('the same over IPv6', async () => {
        for (const end of [0, 1] as const)
          cable!.ip(end, `address add fd77::${end + 1}/64 dev ${cable!.ends[end].interface} nodad`);
        await startAgent('fd77::2');
        const output = await played(['--link', 'udp'], [], 'fd77::2');
        expectAllButEleven(output);
      });
    });
  });
});
