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
    socket.on('data', (data) => answer(socket, data.toString().trimEnd()));
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

test('a run ends where the agent goes, and the rules behind are not broken', async () => {
  let left = 0;
  const agent = await agentThat((socket, line) => {
    if (line === 'hello') socket.write('{"ok":true}\n');
    else {
      left++;
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
  expect(left).toBe(1);
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
