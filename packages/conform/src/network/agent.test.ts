/** The client of the agent, against agents that misbehave. */
import { once } from 'node:events';
import { type AddressInfo, createServer, type Server, type Socket } from 'node:net';
import { afterEach, expect, test } from 'vitest';
import type { ConnectionSpec } from '../device.ts';
import { rules } from '../rules/all.ts';
import { play, run } from '../run.ts';
import { VirtualLine } from '../virtual/line.ts';
import { Agent } from './agent.ts';
import { agentDevice } from './agent-device.ts';

const servers: Server[] = [];

afterEach(() => {
  for (const server of servers.splice(0)) server.close();
});

/** An agent that does with each line what it is given. */
async function agentThat(answer: (socket: Socket, line: string) => void): Promise<Agent> {
  const server = createServer((socket) => {
    socket.on('error', () => {});
    socket.on('data', (data) => {
      for (const line of data.toString().trimEnd().split('\n')) answer(socket, line);
    });
  });
  servers.push(server);
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return Agent.connect('127.0.0.1', (server.address() as AddressInfo).port);
}

test('a request is a line of keys and values, without those that are undefined', async () => {
  const agent = await agentThat((socket, line) => socket.write(`{"ok":true,"line":"${line}"}\n`));
  const { line } = await agent.call('mr', { size: 65_536, access: 'lw', off: undefined });
  expect(line).toBe('mr size=65536 access=lw');
  agent.close();
});

test('a refusal, an answer that is no JSON, and an agent that goes are errors with their reasons', async () => {
  const refusing = await agentThat((socket) =>
    socket.write('{"ok":false,"what":"token","errno":13,"text":"Permission denied"}\n'),
  );
  await expect(agentDevice(refusing, 'x')).rejects.toThrow('agent: hello: token: Permission denied');
  const babbling = await agentThat((socket) => socket.write('Segmentation fault\n'));
  await expect(babbling.call('hello')).rejects.toThrow('the agent answers Segmentation fault');
  const leaving = await agentThat((socket) => socket.destroy());
  await expect(leaving.call('hello')).rejects.toThrow('the agent is gone');
  await expect(leaving.call('hello')).rejects.toThrow('the agent is gone');
  expect(leaving.gone).toBe(true);
});

test('an answer without end is cut off', async () => {
  const flooding = await agentThat((socket) => {
    for (let i = 0; i < 80; i++) socket.write('x'.repeat(65_536));
  });
  await expect(flooding.call('peek')).rejects.toThrow('more than an answer');
});

test('answers in pieces, and two in one piece, go to their requests', async () => {
  const agent = await agentThat((socket, line) => {
    if (!line.endsWith('b')) return;
    socket.write('{"ok":true,"n":1}\n{"ok":');
    setTimeout(() => socket.write('true,"n":2}\n'), 5);
  });
  agent.takesAhead = true;
  const first = agent.call('a');
  const second = agent.call('b');
  expect((await first).n).toBe(1);
  expect((await second).n).toBe(2);
  agent.close();
});

test('a region and a queue pair whose connection the agent refuses are dropped', async () => {
  const seen: string[] = [];
  const agent = await agentThat((socket, line) => {
    const verb = line.split(' ')[0];
    seen.push(verb === 'drop' ? line : verb);
    const fails = verb === 'connect';
    socket.write(
      `${JSON.stringify(fails ? { ok: false, what: 'RTR', text: 'no' } : { ok: true, mr: 3, qp: 4 })}\n`,
    );
  });
  const device = await agentDevice(agent);
  const spec = { service: 'rc', access: [], regionAccess: [], receives: 0, address: '10.0.0.1' };
  await expect(device.connect(spec as unknown as ConnectionSpec)).rejects.toThrow('agent: connect: RTR');
  expect(seen).toEqual(['hello', 'mr', 'qp', 'connect', 'drop qp=4', 'drop mr=3']);
  agent.close();
});

test('a connection costs two round trips, and its end one more, if the agent takes requests ahead', async () => {
  const LAST_OF_TRIP = ['hello', 'qp', 'connect', 'poll'];
  let trip: string[] = [];
  const trips: string[][] = [];
  const agent = await agentThat((socket, line) => {
    const verb = line.split(' ')[0];
    trip.push(verb);
    if (!LAST_OF_TRIP.includes(verb)) return;
    for (const _ of trip) socket.write(`${JSON.stringify({ ok: true, agent: 4, ...SIX.mr, ...SIX.qp })}\n`);
    trips.push(trip);
    trip = [];
  });
  const device = await agentDevice(agent);
  const connection = await device.connect({ ...SPEC, receives: 1 } as unknown as ConnectionSpec);
  await connection.close();
  expect(trips).toEqual([['hello'], ['mr', 'qp'], ['recv', 'connect'], ['drop', 'drop', 'poll']]);
  agent.close();
});

test('an agent that does not say so gets one request at a time', async () => {
  let [open, most] = [0, 0];
  const agent = await agentThat((socket) => {
    most = Math.max(most, ++open);
    setTimeout(() => {
      open--;
      socket.write(`${JSON.stringify({ ok: true, agent: 3, ...SIX.mr, ...SIX.qp })}\n`);
    }, 5);
  });
  const device = await agentDevice(agent);
  const connection = await device.connect({ ...SPEC, receives: 1 } as unknown as ConnectionSpec);
  await connection.close();
  expect(most).toBe(1);
  agent.close();
});

test.each([
  ['mr', 'drop qp=4'],
  ['qp', 'drop mr=3'],
])('where the agent refuses %s, the other one is dropped: %s', async (refused, dropped) => {
  const drops: string[] = [];
  const agent = await agentThat((socket, line) => {
    const verb = line.split(' ')[0];
    if (verb === 'drop') drops.push(line);
    const refusal = { ok: false, what: refused, errno: 12, text: 'no room' };
    socket.write(`${JSON.stringify(verb === refused ? refusal : { ok: true, mr: 3, qp: 4 })}\n`);
  });
  const device = await agentDevice(agent);
  await expect(device.connect(SPEC as unknown as ConnectionSpec)).rejects.toThrow('no room');
  expect(drops).toEqual([dropped]);
  agent.close();
});

test('a run ends where the agent goes, and the rules behind are not broken', async () => {
  const asked: string[] = [];
  const agent = await agentThat((socket, line) => {
    if (line === 'hello') socket.write('{"ok":true}\n');
    else {
      asked.push(line.split(' ')[0]);
      socket.destroy();
    }
  });
  const bench = {
    line: new VirtualLine(),
    device: await agentDevice(agent),
    waits: { quiet: 1, patience: 1, slack: 1 },
    connections: 0,
  };
  const results = await run(rules('PSN'), bench);
  expect(results).toMatchObject([{ verdict: 'broken', why: ['the agent is gone'] }]);
  expect(asked).toEqual(['mr']);
});

test('a connection that the device cannot have is not testable; one without room in the agent is broken', async () => {
  const answers: Record<string, object> = { mr: { mr: 0 }, qp: { qp: 0 } };
  const agent = await agentThat((socket, line) =>
    socket.write(`${JSON.stringify({ ok: true, ...answers[line.split(' ')[0]] })}\n`),
  );
  const device = await agentDevice(agent);
  const play1 = async (verb: string, errno: number) => {
    answers[verb] = { ok: false, what: 'RTR', errno, text: 'no' };
    return play(rules('PSN-01')[0], {
      line: new VirtualLine(),
      device,
      waits: { quiet: 1, patience: 1, slack: 1 },
      connections: 0,
    });
  };
  expect(await play1('connect', 22)).toMatchObject({
    verdict: 'not testable',
    why: ['the device refuses it: agent: connect: RTR: no'],
  });
  expect(await play1('qp', 95)).toMatchObject({ verdict: 'not testable' });
  expect(await play1('mr', 12)).toMatchObject({ verdict: 'broken' });
  agent.close();
});

test.each(['null', '42', '"text"', '[]', '{}', '{"ok":"yes"}', '\u001b[2Jgone'])(
  'an answer of %s is an error that shows it',
  async (line) => {
    const agent = await agentThat((socket) => socket.write(`${line}\n`));
    const failure = await agent.call('hello').catch((error: Error) => error.message);
    expect(failure).toContain('the agent answers ');
    expect(failure).toContain('expected {"ok":true');
    // Nothing that a terminal obeys.
    expect(failure).not.toContain('\u001b');
    agent.close();
  },
);

test('control characters in the names of a device do not reach a terminal', async () => {
  const agent = await agentThat((socket) => socket.write('{"ok":true,"device":"a\\u001b[2Jb"}\n'));
  expect((await agentDevice(agent)).info.name).toBe('a?[2Jb');
  agent.close();
});

test('an answer to no request ends the agent', async () => {
  const agent = await agentThat((socket) => socket.write('{"ok":true}\n{"ok":true,"stray":1}\n'));
  await agent.call('hello');
  await expect(agent.call('mr')).rejects.toThrow('an answer to no request: {"ok":true,"stray":1}');
});

/** A bench whose agent answers these verbs, and refuses others. */
async function benchThat(
  answers: Readonly<Record<string, object>>,
  onLine: (socket: Socket) => void = () => {},
) {
  const agent = await agentThat((socket, line) => {
    onLine(socket);
    const own = answers[line.split(' ')[0]];
    const lack = { ok: false, what: 'verb', errno: 38, text: 'Function not implemented' };
    socket.write(`${JSON.stringify(own === undefined ? lack : { ok: true, ...own })}\n`);
  });
  const waits = { quiet: 1, patience: 1, slack: 1 };
  return { line: new VirtualLine(), device: await agentDevice(agent), waits, connections: 0 };
}

const SIX = {
  hello: { device: 'six' },
  mr: { mr: 0, addr: '4096', rkey: 7 },
  qp: { qp: 0, qpn: 17 },
  connect: {},
  state: { state: 'RTS' },
  drop: {},
};

test('with an agent of six verbs, rules that need another one are not testable', async () => {
  const bench = await benchThat(SIX);
  // The device is silent: it has an agent only.
  expect(await play(rules('PSN-01')[0], bench)).toMatchObject({ verdict: 'deviation', notes: [] });
  expect(await play(rules('REQ-01')[0], bench)).toMatchObject({
    verdict: 'not testable',
    why: ['the agent has no verb send'],
  });
});

test.each([
  ['mr', { addr: '4096', rkey: 7 }, 'mr without mr'],
  ['mr', { mr: 0, addr: '-1', rkey: 7 }, 'mr without addr'],
  ['mr', { mr: 0, addr: `${2n ** 64n}`, rkey: 7 }, 'mr without addr'],
  ['mr', { mr: 0, addr: { toString: 1, valueOf: 1 }, rkey: 7 }, 'mr without addr'],
  ['mr', { mr: 0, addr: '4096', rkey: -1 }, 'mr without rkey'],
  ['qp', { qp: 0, qpn: 'x' }, 'qp without qpn'],
])('an answer of %s that lacks something is broken, and names it: %j', async (verb, answer, text) => {
  const bench = await benchThat({ ...SIX, [verb]: answer });
  expect(await play(rules('PSN-01')[0], bench)).toMatchObject({
    verdict: 'broken',
    why: [expect.stringContaining(`the agent answers ${text}`)],
  });
});

test('an agent that goes in the midst of a rule: broken, not a deviation of the device', async () => {
  let lines = 0;
  const bench = await benchThat(SIX, (socket) => {
    if (++lines > 4) socket.destroy();
  });
  const { verdict, why } = await play(rules('PSN-01')[0], bench);
  expect(verdict).toBe('broken');
  expect(why.at(-1)).toBe('closing: the agent is gone');
});

const ALL = {
  ...SIX,
  poll: { wc: [] },
  peek: { hex: '00' },
  events: { events: [] },
  counters: { counters: {} },
  mw: { mw: 0 },
  bind: { rkey: 9 },
  rereg: { rkey: 9 },
};
const SPEC = { service: 'rc', access: [], regionAccess: [], receives: 0, address: '10.0.0.1', size: 64 };
const WINDOW = { type: 1, offset: 0, length: 8, access: [] } as const;

type Bench = Awaited<ReturnType<typeof benchThat>>;
type Connection = Awaited<ReturnType<Bench['device']['connect']>>;

test.each<[verb: string, answer: object, ask: (c: Connection, b: Bench) => Promise<unknown> | undefined]>([
  ['poll', {}, (c) => c.completions?.(1, 1)],
  ['poll', { wc: [null] }, (c) => c.completions?.(1, 1)],
  ['poll', { wc: [{ id: 1 }] }, (c) => c.completions?.(1, 1)],
  ['poll', { wc: [{ id: 1, status: 'SUCCESS' }] }, (c) => c.completions?.(1, 1)],
  ['poll', { wc: [{ id: 1, status: 0, len: -1 }] }, (c) => c.completions?.(1, 1)],
  ['peek', {}, (c) => c.peek?.(0, 1)],
  ['peek', { hex: '0' }, (c) => c.peek?.(0, 1)],
  ['peek', { hex: 'zz' }, (c) => c.peek?.(0, 1)],
  ['peek', { hex: '0000' }, (c) => c.peek?.(0, 1)],
  ['state', {}, (c) => c.state?.()],
  ['state', { state: 'FINE' }, (c) => c.state?.()],
  ['events', {}, (c) => c.events?.(1)],
  ['events', { events: [1] }, (c) => c.events?.(1)],
  ['counters', {}, (_, { device }) => device.counters?.()],
  ['counters', { counters: { sent_pkts: 'many' } }, (_, { device }) => device.counters?.()],
  ['mw', {}, (c) => c.bindWindow?.(WINDOW)],
  ['bind', { rkey: 1e12 }, (c) => c.bindWindow?.(WINDOW)],
  ['rereg', {}, (c) => c.reregister?.([])],
])('an agent that lies about %s is the one that is blamed: %j', async (verb, answer, ask) => {
  const right = await benchThat(ALL);
  const connection = await right.device.connect(SPEC as unknown as ConnectionSpec);
  await ask(connection, right);
  const lying = await benchThat({ ...ALL, [verb]: answer });
  const other = await lying.device.connect(SPEC as unknown as ConnectionSpec);
  await expect(ask(other, lying)).rejects.toThrow(`the agent answers ${verb} without `);
});

test('facts of hello that are no facts are text', async () => {
  const { device } = await benchThat({
    ...SIX,
    hello: { device: { toString: 1 }, fw: 'x'.repeat(9999), mtu: [] },
  });
  expect(device.info).toEqual({
    device: '{"toString":1}',
    name: '{"toString":1}',
    fw: 'x'.repeat(64),
    mtu: '[]',
  });
});
