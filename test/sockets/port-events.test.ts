/**
 * PORT_ACTIVE, PORT_ERR and GID_CHANGE: each change of a real interface, in a network namespace of the test, is reported once.
 * Needs root and iproute2; with ROCE_ROOT_TESTS set, as in .ci/run, it fails without them.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, afterEach, beforeEach, describe, expect, test } from 'vitest';
import { Namespace } from './port/namespace.ts';

const NAME = `roce-port-${process.pid}`;
let namespace = Namespace.make(NAME, (why) => {
  if (process.env.ROCE_ROOT_TESTS) throw new Error(why);
  console.warn(`port events are not tested, for want of a network namespace: ${why}`);
});
const able = namespace !== undefined;
afterAll(() => namespace?.[Symbol.dispose]());

type Message = Record<string, unknown> & { type: string };

/** test/sockets/port/program.mjs in the namespace. */
class Program {
  readonly heard: Message[] = [];
  readonly #child;
  #read = 0;

  constructor(...args: string[]) {
    const program = join(import.meta.dirname, 'port/program.mjs');
    this.#child = spawn('ip', ['netns', 'exec', NAME, process.execPath, program, ...args], {
      stdio: ['pipe', 'pipe', 'inherit'],
    });
    createInterface({ input: this.#child.stdout }).on('line', (line) => this.heard.push(JSON.parse(line)));
  }

  /** The program's events since the last call, once there are so many. */
  async said(count: number): Promise<Message[]> {
    const end = Date.now() + 120_000;
    while (this.heard.length < this.#read + count && Date.now() < end) await sleep(10);
    const news = this.heard.slice(this.#read);
    this.#read = this.heard.length;
    return news;
  }

  async ask(command: string): Promise<unknown> {
    this.#child.stdin.write(`${command}\n`);
    return (await this.said(1))[0]?.result;
  }

  async end(): Promise<void> {
    if (this.#child.exitCode !== null) return;
    this.#child.stdin.end();
    await once(this.#child, 'exit');
    expect(this.#child.exitCode).toBe(0);
  }
}

let program: Program;
afterEach(async () => {
  await program?.end();
});

beforeEach(() => {
  if (!able) return;
  // A fresh one for each: what was done to the last does not matter.
  namespace?.[Symbol.dispose]();
  namespace = Namespace.make(NAME, (why) => {
    throw new Error(why);
  });
});

const types = (messages: Message[]) => messages.map(({ type }) => type);

/** The same of both: `npm test` looks at one. */
const ENGINES: [engine: 'inline' | 'worker', options: { tags?: string[] }][] = [
  ['inline', {}],
  ['worker', { tags: ['slow'] }],
];

for (const [engine, options] of ENGINES)
  describe.skipIf(!able)(`engine: ${engine}`, options, () => {
    const open = async (more: object) => {
      program = new Program('device', JSON.stringify({ engine, ...more }));
      expect(types(await program.said(1))).toEqual(['ready']);
      return namespace!;
    };

    test('cable out and in, interface down and up: PORT_ERR and PORT_ACTIVE, once each', async () => {
      const there = await open({ address: '10.77.0.1' });
      const down = { type: 'PORT_ERR', portNum: 1, portState: 'DOWN' };
      const up = { type: 'PORT_ACTIVE', portNum: 1, portState: 'ACTIVE' };
      for (const [change, ...told] of [
        ['far0 down', down],
        ['far0 up', up],
        ['roce0 down', down],
        ['roce0 up', up],
        ['roce0 up'],
        ['roce0 mtu 4000'],
      ] as const) {
        await there.change(`link set ${change}`);
        expect(await program.said(told.length)).toMatchObject(told);
      }
      expect(await program.ask('counters')).toBe(2);
      expect(await program.ask('write 0')).toBe('SUCCESS');
    });

    test('addresses come and go: GID_CHANGE, and the table follows; one that comes back has its index', async () => {
      const there = await open({ interface: 'roce0' });
      await there.change('address add 10.77.0.2/24 dev roce0');
      expect(await program.said(1)).toMatchObject([{ type: 'GID_CHANGE', gids: ['10.77.0.1', '10.77.0.2'] }]);
      expect(await program.ask('write 1')).toBe('SUCCESS');
      await there.change('address delete 10.77.0.1/24 dev roce0');
      // 10.77.0.2 was secondary to it, and goes with it.
      expect((await program.said(2)).at(-1)).toMatchObject({ type: 'GID_CHANGE', gids: ['::', '::'] });
      expect(await program.ask('write 0')).toBe('ahAttr.grh.dgid');
      await there.change('address add 10.77.0.1/24 dev roce0');
      expect(await program.said(1)).toMatchObject([{ type: 'GID_CHANGE', gids: ['10.77.0.1', '::'] }]);
      expect(await program.ask('write 0')).toBe('SUCCESS');
      await there.change('address add fd77::1/64 dev roce0 nodad');
      expect(await program.said(1)).toMatchObject([
        { type: 'GID_CHANGE', gids: ['10.77.0.1', '::', 'fd77::1'] },
      ]);
      expect(await program.ask('write 2')).toBe('SUCCESS');
      await there.change('address add fe80::77/64 dev roce0 nodad');
      expect(await program.said(1)).toMatchObject([{ type: 'GID_CHANGE' }]);
      expect(await program.ask('write 3')).toBe('SUCCESS');
    });

    test('an address whose port another program has: a warning that names it, and no GID', async () => {
      const there = await open({ interface: 'roce0' });
      await there.change('address add 10.78.0.9/24 dev far0');
      const device = program;
      const holder = new Program('hold', '10.78.0.9');
      await holder.said(1);
      await there.change('address add 10.78.0.9/24 dev roce0');
      expect(await device.said(1)).toMatchObject([
        { type: 'warning', code: 'ROCE_ADDRESS_NOT_SERVED', message: expect.stringContaining('10.78.0.9') },
      ]);
      await holder.end();
    });

    test('reports an IPv6 address once, when it is known to be unique', async () => {
      const there = await open({ interface: 'roce0' });
      await there.change('address add fd77::2/64 dev roce0');
      const [first, ...others] = await program.said(1);
      expect(first).toMatchObject({ type: 'GID_CHANGE', gids: ['10.77.0.1', 'fd77::2'] });
      await sleep(300);
      expect([...others, ...(await program.said(0))]).toEqual([]);
      expect(await program.ask('write 1')).toBe('SUCCESS');
    });

    test('a device of some addresses: the others are not its business', async () => {
      const there = await open({ address: '10.77.0.1' });
      await there.change('address add 10.77.0.2/24 dev roce0');
      await there.change('address delete 10.77.0.2/24 dev roce0');
      await there.change('address delete 10.77.0.1/24 dev roce0');
      expect(await program.said(1)).toMatchObject([
        { type: 'GID_CHANGE', gids: ['::'], portState: 'ACTIVE' },
      ]);
    });

    test('over xdp, the interface goes, and another of its name comes: a warning, and the port stays down', async () => {
      const there = await open({ address: '10.77.0.1', link: 'xdp', xdpMode: 'any' });
      await there.change('link delete roce0');
      const told = await program.said(3);
      expect(types(told).sort()).toEqual(['GID_CHANGE', 'PORT_ERR', 'warning']);
      expect(told.find(({ type }) => type === 'warning')).toMatchObject({
        code: 'ROCE_INTERFACE_GONE',
        message: expect.stringContaining('roce0 is gone'),
      });
      there.plug();
      await sleep(300);
      expect(await program.said(0)).toEqual([]);
    });

    test('the interface goes, and another of its name comes', async () => {
      const there = await open({ interface: 'roce0' });
      await there.change('link delete roce0');
      expect(types(await program.said(2)).sort()).toEqual(['GID_CHANGE', 'PORT_ERR']);
      there.plug();
      expect((await program.said(2)).at(-1)).toMatchObject({ gids: ['10.77.0.1'], portState: 'ACTIVE' });
      expect(types(program.heard.slice(3)).sort()).toEqual(['GID_CHANGE', 'PORT_ACTIVE']);
      expect(await program.ask('write 0')).toBe('SUCCESS');
    });
  });

describe.skipIf(!able).each(['netlink', 'polling'] as const)('watching an interface by %s', (how) => {
  test('each change once', async () => {
    const options = how === 'polling' ? { how, interval: 20 } : {};
    program = new Program('watch', 'roce0', JSON.stringify(options));
    expect(await program.said(1)).toEqual([{ type: 'ready', how }]);
    const there = namespace!;
    for (const [change, ...told] of [
      ['address add fd77::1/64 dev roce0 nodad', { type: 'address-added', address: 'fd77::1' }],
      ['link set far0 down', { type: 'down' }],
      ['link set far0 up', { type: 'up' }],
      ['link set far0 up'],
      ['address delete fd77::1/64 dev roce0', { type: 'address-removed', address: 'fd77::1' }],
      ['address add 10.77.0.2/24 dev roce0', { type: 'address-added', address: '10.77.0.2' }],
    ] as const) {
      await there.change(change);
      expect(await program.said(told.length)).toEqual(told);
    }
    await there.change('link delete roce0');
    // Its addresses go, too, before or after.
    const ends = how === 'netlink' ? ['down', 'down', 'gone'] : ['down', 'down'];
    await expect.poll(() => types(program.heard).filter((type) => ends.includes(type))).toEqual(ends);
  });
});
