/**
 * The model against the real rxe, on every RC capture among the fixtures: the same requests give the same
 * replies, and the same posted operations and replies give the same requests. What rxe does otherwise is
 * in the table of quirks, and nothing else may differ.
 */

import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { crc32 } from 'node:zlib';
import { QUIRKS, type QuirkName } from '@node-roce/sim';
import { describe, expect, test } from 'vitest';
import { replayRequester } from './model-replay/requester-replay.ts';
import { replayResponder } from './model-replay/responder-replay.ts';
import { type PrintedCompletion, parseSidecar, type Sidecar } from './model-replay/sidecar.ts';
import { readConnections, type Side } from './model-replay/trace.ts';

const folder = join(import.meta.dirname, 'fixtures/captures');
const names = readdirSync(folder)
  .filter((name) => name.endsWith('.pcap'))
  .map((name) => name.slice(0, -5));

const load = async (name: string) => ({
  connections: await readConnections(join(folder, `${name}.pcap`)),
  sidecar: parseSidecar(readFileSync(join(folder, `${name}.txt`), 'utf8')),
});

/** Fixtures that hold no RC traffic: UC, UD, or connection management that went nowhere. */
const WITHOUT_RC = [
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
        if (sidecar.isProbe && side === 'B') checkProbeServer(replay, sidecar);
      }
    }
  });
});

/** What rxprobe's server printed: each receive completion, the bytes it got, and its memory at the end. */
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
  const printed = sidecar.completions.B.map(({ time: _t, dataCrc: _c, ...rest }) => rest);
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

/** What rxprobe's client printed: each completion of what it posted. */
function checkProbeClient(replay: ReturnType<typeof replayRequester>, sidecar: Sidecar): void {
  const model = replay.completions.map(({ wrId, status, opcode, byteLen }) => ({
    wrId,
    status,
    ...(opcode === undefined ? {} : { opcode, byteLen }),
  }));
  expect(model).toEqual(sidecar.completions.A.map(({ time: _t, dataCrc: _c, ...rest }) => rest));
}

test('each quirk shows in the captures that the table names, and in no others', () => {
  for (const [name, { captures }] of Object.entries(QUIRKS)) {
    expect([...(seen.get(name as QuirkName) ?? [])].sort(), name).toEqual([...captures].sort());
  }
});

test('docs/rules.md names clauses that exist, and docs/quirks.md every quirk', () => {
  const model = join(import.meta.dirname, '../packages/sim/src/model');
  const code = readdirSync(model)
    .map((name) => readFileSync(join(model, name), 'utf8'))
    .join('\n');
  const rules = readFileSync(join(import.meta.dirname, '../docs/rules.md'), 'utf8');
  const clauses = [...rules.matchAll(/`([A-Za-z]+)`/g)].map(([, name]) => name);
  expect(clauses.length).toBeGreaterThan(40);
  for (const clause of clauses) {
    expect(code, clause).toMatch(new RegExp(`(function|const|class) ${clause}\\b`));
  }
  const quirks = readFileSync(join(import.meta.dirname, '../docs/quirks.md'), 'utf8');
  for (const [name, { clause, captures }] of Object.entries(QUIRKS)) {
    expect(quirks).toContain(`**${name}**`);
    expect(code, clause).toMatch(new RegExp(`function ${clause}\\b`));
    for (const capture of captures) expect(quirks).toContain(`\`${capture}\``);
  }
});
