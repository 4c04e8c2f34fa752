/**
 * The model against the real rxe, on every RC capture among the fixtures: the same requests give the same
 * replies, and the same posted operations and replies give the same requests. rxe's deviations are
 * in the table of quirks, and nothing else may differ.
 */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { crc32 } from 'node:zlib';
import { type EndpointKind, GSI_QKEY, type ModelCompletion, QUIRKS, type QuirkName } from '@node-roce/sim';
import { describe, expect, test } from 'vitest';
import { DeviceProgram, type DeviceReplay, type Setup } from './model-replay/device-replay.ts';
import { inferPosts, probePosts } from './model-replay/posts.ts';
import { replayRequester } from './model-replay/requester-replay.ts';
import { probeRegion, replayResponder } from './model-replay/responder-replay.ts';
import { option, type PrintedCompletion, parseSidecar, type Sidecar } from './model-replay/sidecar.ts';
import { type Connection, readConnections, readDatagrams, type Side } from './model-replay/trace.ts';

const folder = join(import.meta.dirname, '../fixtures/captures');
const names = readdirSync(folder)
  .filter((name) => name.endsWith('.pcap'))
  .map((name) => name.slice(0, -5));

const load = async (name: string) => ({
  connections: await readConnections(join(folder, `${name}.pcap`)),
  sidecar: parseSidecar(readFileSync(join(folder, `${name}.txt`), 'utf8')),
});

/** Fixtures that hold no RC traffic: UC, UD, or connection management that went nowhere. */
const WITHOUT_RC = [
  'cm_cmtime',
  'cm_mckey',
  'cm_mckey_ipv6',
  'cm_rping_refused',
  'op_uc',
  'pf_send_bw_uc',
  'pf_send_bw_ud',
  'pf_write_bw_uc',
  'pp_uc_default',
  'pp_uc_m1024_s9001',
  'pp_ud_default',
];

const seen = new Map<QuirkName, Set<string>>();
function note(quirks: Iterable<QuirkName>, name: string): void {
  for (const quirk of quirks) seen.set(quirk, (seen.get(quirk) ?? new Set()).add(name));
}

describe('responder', () => {
  test.each(names)('%s', async (name) => {
    const { connections, sidecar } = await load(name);
    expect(connections.length === 0).toBe(WITHOUT_RC.includes(name));
    for (const connection of connections) {
      for (const side of ['A', 'B'] as Side[]) {
        const asked = connection.packets.some((p) => p.isRequest && p.from !== side);
        if (!asked || sidecar.blackhole) continue;
        const replay = replayResponder(connection, side, sidecar);
        expect(replay.differences).toEqual([]);
        if (!sidecar.isLossy[side]) expect(replay.compared).toBeGreaterThan(0);
        note(replay.quirks, name);
        if (sidecar.isProbe && side === 'B') {
          checkProbeServer(replay, sidecar);
          if (replay.completions.some((c, i) => hasKernelsFlag(c, sidecar.completions.B[i]))) {
            note(['invalidateFlagIsTheKernels'], name);
          }
        }
      }
    }
  });
});

/** IB_WC_WITH_INVALIDATE of the kernel is 4, IBV_WC_WITH_INV of verbs.h is 8. */
function hasKernelsFlag({ invalidatedRkey }: ModelCompletion, { flags = 0 }: PrintedCompletion): boolean {
  return invalidatedRkey !== undefined && (flags & 12) === 4;
}

/** The output of rxprobe's server: each receive completion, the bytes it got, and its memory at the end. */
function checkProbeServer(replay: ReturnType<typeof replayResponder>, sidecar: Sidecar): void {
  const quirk = replay.quirks.has('shortReceiveIsOperationalError');
  const model = replay.completions.map(
    (c): Omit<PrintedCompletion, 'time' | 'dataCrc'> => ({
      wrId: c.wrId,
      status: quirk && c.status === 'LOC_LEN_ERR' ? 'LOC_QP_OP_ERR' : c.status,
      ...(c.opcode === undefined ? {} : { opcode: c.opcode }),
      ...(c.byteLen === undefined ? {} : { byteLen: c.byteLen }),
      ...(c.immediate === undefined ? {} : { immediate: c.immediate }),
    }),
  );
  const printed = sidecar.completions.B.map(({ time: _t, dataCrc: _c, flags: _f, ...rest }) => rest);
  expect(model).toEqual(printed);
  for (const { wrId, byteLen, dataCrc } of sidecar.completions.B) {
    if (dataCrc !== undefined) expect(crc32(replay.received.get(wrId)!.subarray(0, byteLen))).toBe(dataCrc);
  }
  const [region] = replay.responder.memory.regions;
  expect(crc32(region.bytes.subarray(0, 65536))).toBe(sidecar.targetCrc);
}

describe('requester', () => {
  test.each(names.filter((name) => !WITHOUT_RC.includes(name)))('%s', async (name) => {
    const { connections, sidecar } = await load(name);
    for (const connection of connections) {
      for (const side of ['A', 'B'] as Side[]) {
        if (!connection.packets.some((p) => p.isRequest && p.from === side)) continue;
        const replay = replayRequester(connection, side, sidecar);
        expect(replay.differences).toEqual([]);
        expect(replay.compared).toBeGreaterThan(0);
        note(replay.quirks, name);
        if (sidecar.isProbe) checkProbeClient(replay, sidecar);
        else expect(replay.completions.every(({ status }) => status === 'SUCCESS')).toBe(true);
      }
    }
  });
});

/** The output of rxprobe's client: each completion of what it posted. */
function checkProbeClient(replay: ReturnType<typeof replayRequester>, sidecar: Sidecar): void {
  const model = replay.completions.map(({ wrId, status, opcode, byteLen }) => ({
    wrId,
    status,
    ...(opcode === undefined ? {} : { opcode, byteLen }),
  }));
  expect(model).toEqual(sidecar.completions.A.map(({ time: _t, dataCrc: _c, ...rest }) => rest));
}

/** The command line of a program of the capture: so many messages of so many bytes. */
function messagesOf({ command }: Sidecar, side: Side): { count: number; bytes: number } {
  const value = (letter: string) => option(command[side], letter);
  return { count: Number(value('n') ?? value('C')), bytes: Number(value('S') ?? value('s') ?? 4096) };
}

/** The receiver got just these, in order, byte for byte. */
function expectMessages(
  { receives }: DeviceReplay,
  { count, bytes }: { count: number; bytes: number },
  posts: ReturnType<typeof inferPosts>['posts'],
  head: number,
): void {
  expect(receives.map(({ completion: { status, byteLen } }) => ({ status, byteLen }))).toEqual(
    new Array(count).fill({ status: 'SUCCESS', byteLen: head + bytes }),
  );
  expect(receives.map((received) => received.bytes.subarray(head))).toEqual(posts.map(({ local }) => local));
}

const requestsOf = ({ packets }: Connection, side: Side) =>
  packets.filter(({ from, isRequest }) => from === side && isRequest);
const otherOf = (side: Side): Side => (side === 'A' ? 'B' : 'A');
const capture = (name: string) => join(folder, `${name}.pcap`);

/** Through a whole device, so that the same captures hold for the engine as for the model. */
describe.each<EndpointKind>(['model', 'engine'])('a device of the %s', (kind) => {
  const sidecarOf = async (name: string) => (await load(name)).sidecar;
  const probeSetup = (sidecar: Sidecar, connections: Connection[], service: 'RC' | 'UC'): Setup => {
    const { address, rkey, windowKey } = sidecar.probe.B!;
    return {
      kind,
      side: 'B',
      service,
      connections,
      psns: sidecar.psns,
      receives: { count: 16, bytes: 65_536, firstWrId: 1000 },
      memory: { base: address, rkey, content: probeRegion(sidecar) },
      ...(windowKey === 0 ? {} : { window: { rkey: windowKey, length: 65_536 } }),
    };
  };
  const checkProbe = ({ differences, receives, memory }: DeviceReplay, sidecar: Sidecar) => {
    expect(differences).toEqual([]);
    const printed = sidecar.completions.B.map(({ time: _t, flags: _f, dataCrc: _d, ...rest }) => rest);
    expect(receives.map(({ completion: { invalidatedRkey: _i, solicited: _s, ...rest } }) => rest)).toEqual(
      printed,
    );
    sidecar.completions.B.forEach(({ dataCrc }, i) => {
      if (dataCrc !== undefined) expect(crc32(receives[i].bytes)).toBe(dataCrc);
    });
    expect(crc32(memory.subarray(0, 65_536))).toBe(sidecar.targetCrc);
  };

  test.each(['op_all', 'err_mw_invalidated'])('memory windows: %s', async (name) => {
    const { connections, sidecar } = await load(name);
    const replay = new DeviceProgram(probeSetup(sidecar, connections, 'RC')).receive();
    checkProbe(replay, sidecar);
    expect(replay.compared).toBeGreaterThan(0);
    const binds = sidecar.binds.map(({ time: _, ...rest }) => rest);
    expect(replay.sends.filter(({ opcode }) => opcode === 'BIND_MW')).toEqual(binds);
  });

  test('a shared receive queue: pp_srq_default', async () => {
    const { connections, sidecar } = await load('pp_srq_default');
    const { count } = messagesOf(sidecar, 'A');
    for (const side of ['A', 'B'] as Side[]) {
      const receives = { count: 200, bytes: 4096, firstWrId: 0, shared: true };
      const setup: Setup = { kind, side, service: 'RC', connections, psns: sidecar.psns, receives };
      const replay = new DeviceProgram(setup).receive();
      expect(replay.differences).toEqual([]);
      // 16 queue pairs take turns: the receives are used up in the order in which the messages came.
      const got = replay.receives.map(({ completion }) => completion.wrId);
      const messages = connections.flatMap((connection) => requestsOf(connection, otherOf(side)));
      expect(messages.length).toBeGreaterThanOrEqual(count);
      const ends = messages.filter(({ packet }) => packet.ackReq).length;
      expect(got).toEqual(Array.from({ length: ends }, (_, i) => i));
      expect(replay.compared).toBe(ends);
    }
  });

  test('UC: op_uc, as both programs printed it', async () => {
    const [sidecar, connections] = [await sidecarOf('op_uc'), await readConnections(capture('op_uc'), 'UC')];
    checkProbe(new DeviceProgram(probeSetup(sidecar, connections, 'UC')).receive(), sidecar);
    const setup: Setup = { kind, side: 'A', service: 'UC', connections, psns: sidecar.psns };
    const { differences, compared, sends } = new DeviceProgram(setup).send(probePosts(sidecar).posts);
    expect(differences).toEqual([]);
    expect(compared).toBe(12);
    expect(sends).toEqual(sidecar.completions.A.map(({ time: _, ...rest }) => rest));
  });

  test.each(['pf_send_bw_uc', 'pf_write_bw_uc', 'pp_uc_default', 'pp_uc_m1024_s9001'])(
    'UC: %s',
    async (name) => {
      const [sidecar, connections] = [await sidecarOf(name), await readConnections(capture(name), 'UC')];
      expect(connections.length).toBe(1);
      for (const side of ['A', 'B'] as Side[]) {
        const requests = requestsOf(connections[0], side);
        if (requests.length === 0) continue;
        const { posts } = inferPosts(requests);
        const common = { kind, service: 'UC', connections, psns: sidecar.psns } as const;
        const sender = new DeviceProgram({ ...common, side }).send(posts);
        expect(sender.differences).toEqual([]);
        expect(sender.sends.map(({ status }) => status)).toEqual(posts.map(() => 'SUCCESS'));
        const messages = messagesOf(sidecar, side);
        expect(posts.length).toBe(messages.count);
        const { va: base = 0n, rkey = 0 } = posts[0].remote ?? {};
        const memory = { base, rkey, content: new Uint8Array(messages.bytes) };
        const receives = { count: 16, bytes: messages.bytes, firstWrId: 0 };
        const receiver = new DeviceProgram({ ...common, side: otherOf(side), receives, memory }).receive();
        expect(receiver.differences).toEqual([]);
        if (posts[0].remote === undefined) expectMessages(receiver, messages, posts, 0);
        else expect(receiver.memory.subarray(0, messages.bytes)).toEqual(posts.at(-1)!.local);
      }
    },
  );

  // The Q_Keys that these programs use.
  test.each([
    ['pf_send_bw_ud', 0x1111_1111],
    ['pp_ud_default', 0x1111_1111],
    ['cm_mckey', 0x0123_4567],
  ])('UD: %s', async (name, qkey) => {
    const [sidecar, connections] = [await sidecarOf(name), await readDatagrams(capture(name))];
    expect(connections.length).toBe(1);
    for (const side of ['A', 'B'] as Side[]) {
      if (requestsOf(connections[0], side).length === 0) continue;
      const { posts } = inferPosts(requestsOf(connections[0], side));
      const common = { kind, service: 'UD', connections, psns: sidecar.psns, qkey } as const;
      const sender = new DeviceProgram({ ...common, side }).send(posts);
      expect(sender.differences).toEqual([]);
      expect(sender.sends.map(({ status }) => status)).toEqual(posts.map(() => 'SUCCESS'));
      const messages = messagesOf(sidecar, side);
      const receives = { count: 16, bytes: messages.bytes + 40, firstWrId: 0 };
      const receiver = new DeviceProgram({ ...common, side: otherOf(side), receives }).receive();
      expect(receiver.differences).toEqual([]);
      expectMessages(receiver, messages, posts, 40);
      for (const { completion } of receiver.receives) {
        expect(completion.sourceQpn).toBe(connections[0].qpn[side]);
        if (name === 'cm_mckey') expect(completion.immediate).toBe(connections[0].qpn[side]);
      }
    }
  });

  test.each(QUIRKS.gsiAsksForAcks.captures)('QP1: %s', async (name) => {
    const sidecar = await sidecarOf(name);
    const connections = (await readDatagrams(capture(name))).filter(({ qpn }) => qpn.A === 1 && qpn.B === 1);
    expect(connections.length).toBe(1);
    for (const side of ['A', 'B'] as Side[]) {
      const requests = requestsOf(connections[0], side);
      const { posts } = inferPosts(requests);
      const setup = { kind, service: 'GSI', psns: sidecar.psns, qkey: GSI_QKEY } as const;
      const withoutAckReq = connections.map(({ qpn, packets }) => ({
        qpn,
        packets: packets.map((p) => ({ ...p, packet: { ...p.packet, ackReq: false } })),
      }));
      const sender = new DeviceProgram({ ...setup, side, connections: withoutAckReq }).send(posts);
      expect(sender.differences).toEqual([]);
      if (requests.every(({ packet }) => packet.ackReq)) note(['gsiAsksForAcks'], name);
      const receives = { count: 64, bytes: 296, firstWrId: 0 };
      const receiver = new DeviceProgram({ ...setup, side: otherOf(side), connections, receives }).receive();
      expect(receiver.differences).toEqual([]);
      expectMessages(receiver, { count: posts.length, bytes: 256 }, posts, 40);
    }
  });
});

test('each quirk shows in the captures that the table names, and in no others', () => {
  for (const [name, { captures }] of Object.entries(QUIRKS)) {
    expect([...(seen.get(name as QuirkName) ?? [])].sort(), name).toEqual([...captures].sort());
  }
});

test('docs/rules.md names clauses that exist, and docs/quirks.md every quirk', () => {
  const model = join(import.meta.dirname, '../../packages/sim/src/model');
  const code = readdirSync(model)
    .map((name) => readFileSync(join(model, name), 'utf8'))
    .join('\n');
  const rules = readFileSync(join(import.meta.dirname, '../../docs/rules.md'), 'utf8');
  const cells = rules.split('\n').map((line) => line.split(' | ')[2] ?? '');
  const clauses = [...cells.join('\n').matchAll(/`([A-Za-z]+)`/g)].map(([, name]) => name);
  expect(clauses.length).toBeGreaterThan(40);
  for (const clause of clauses) {
    expect(code, clause).toMatch(new RegExp(`(function|const|class) ${clause}\\b`));
  }
  const quirks = readFileSync(join(import.meta.dirname, '../../docs/quirks.md'), 'utf8');
  for (const [name, { clause, captures }] of Object.entries(QUIRKS)) {
    expect(quirks).toContain(`**${name}**`);
    expect(code, clause).toMatch(new RegExp(`function ${clause}\\b`));
    for (const capture of captures) expect(quirks).toContain(`\`${capture}\``);
  }
});
