/**
 * The CM model against the real rxe: two models play both ends of each recorded dialogue. Each message that Linux sent
 * has to be one that the model may send then, byte for byte, and each that Linux took one that the model takes.
 */
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { type CmMessage, CmModel, decodeCm } from '@node-roce/sim';
import { describe, expect, test } from 'vitest';
import { otherSide, readDatagrams, type Side } from './model-replay/trace.ts';

const folder = join(import.meta.dirname, '../fixtures/captures');
const names = readdirSync(folder)
  .filter((name) => name.endsWith('.pcap'))
  .map((name) => name.slice(0, -5));

/** How long a message is on its way, µs: the fastest answer took 1,000, a DREQ that crossed another 100. */
const FLIGHT = 500;

/** Recorded dialogues, each with one REQ. */
const DIALOGUES: Record<string, number> = {
  cm_cmtime: 3,
  cm_rdma_client: 1,
  cm_rping: 1,
  cm_rping_ipv6: 1,
  cm_rping_refused: 1,
  cm_ucmatose: 2,
  loss15_cm: 1,
  pf_send_bw_cm_tos104: 2,
  pf_write_bw_cm: 2,
};

interface Recorded {
  time: number;
  from: Side;
  source: Uint8Array;
  destination: Uint8Array;
  mad: Uint8Array;
  message: CmMessage;
}

async function recordedIn(name: string): Promise<Recorded[]> {
  const flows = await readDatagrams(join(folder, `${name}.pcap`));
  const gsi = flows.find(({ qpn }) => qpn.A === 1 && qpn.B === 1);
  return (gsi?.packets ?? []).map(({ time, from, source, destination, packet }) => {
    const message = decodeCm(packet.payload);
    if (typeof message === 'string') throw new Error(message);
    return { time, from, source, destination, mad: packet.payload, message };
  });
}

/** Linux's transaction id (cm_form_tid): the agent's number, then the id as x86 stores it. */
function linuxTid(localId: number): bigint {
  const view = new DataView(new ArrayBuffer(4));
  view.setUint32(0, localId, true);
  return (2n << 32n) | BigInt(view.getUint32(0));
}

/** One end of a recorded dialogue: the model, and a program that calls it as the recorded one did. */
class End {
  model: CmModel | undefined;
  /** The id that the model draws next. */
  nextId = 0;

  of(caGuid: bigint): CmModel {
    this.model ??= new CmModel({ caGuid, random: () => this.nextId, tid: linuxTid });
    return this.model;
  }

  handleOf(localId: number): number {
    return [...this.model!.connections.values()].find((one) => one.localId === localId)?.handle ?? -1;
  }
}

/** The call that makes a model send the recorded message; none where it answers by itself. */
function call(end: End, { message, destination, time }: Recorded, caGuid: bigint): void {
  const model = end.of(caGuid);
  if (message.name === 'REQ') {
    const { name: _, tid: _tid, localId, caGuid: _guid, ...fields } = message;
    end.nextId = localId;
    model.connect(destination, fields, time);
    return;
  }
  if (!('localId' in message)) throw new Error(`${message.name} is not in these captures`);
  const handle = end.handleOf(message.localId);
  if (message.name === 'REP') {
    const { name: _, tid: _tid, localId: _id, remoteId: _remote, caGuid: _guid, ...fields } = message;
    expect(model.accept(handle, fields, time)).toBe(true);
  }
  if (message.name === 'RTU') expect(model.ready(handle, time)).toBe(true);
  if (message.name === 'DREQ' || message.name === 'DREP') expect(model.disconnect(handle, time)).toBe(true);
}

/** Ids that the passive side gives later are drawn when the REQ arrives. */
function idOfAnswer(recorded: Recorded[], req: Recorded): number {
  const { message } = req;
  if (message.name !== 'REQ') return 0;
  const answer = recorded.find(({ message: m }) => m.name === 'REP' && m.remoteId === message.localId);
  return answer?.message.name === 'REP' ? answer.message.localId : 0;
}

/** The GUIDs of the two hosts: EUI-64 of their MACs; a host that only refuses shows none. */
const GUID: Record<Side, bigint> = { A: 0x505400fffe770002n, B: 0x505400fffe770003n };

describe('both ends of the recorded dialogues', () => {
  test.each(Object.keys(DIALOGUES))('%s', async (name) => {
    const recorded = await recordedIn(name);
    const ends: Record<Side, End> = { A: new End(), B: new End() };
    for (const side of ['A', 'B'] as Side[]) ends[side].of(GUID[side]);
    for (const { message } of recorded) {
      if (message.name === 'REQ' && name !== 'cm_rping_refused') ends.B.model!.listen(message.serviceId);
    }
    const flying: Recorded[] = [];
    const deliver = (until: number) => {
      while (flying.length > 0 && flying[0].time + FLIGHT <= until) {
        const one = flying.shift()!;
        const receiver = ends[otherSide(one.from)];
        receiver.nextId = idOfAnswer(recorded, one);
        receiver.model!.receive(one.mad, one.source, one.time + FLIGHT);
      }
    };
    for (const one of recorded) {
      deliver(one.time);
      const what = `${name}: ${one.message.name} of ${one.from} at ${one.time} µs`;
      const sender = ends[one.from];
      for (const { model } of Object.values(ends)) model!.advance(one.time);
      let sent = sender.model!.take();
      if (sent.length === 0) {
        call(sender, one, GUID[one.from]);
        sent = sender.model!.take();
      }
      expect(sent.length, what).toBe(1);
      expect(decodeCm(sent[0].bytes), what).toEqual(one.message);
      expect(sent[0].bytes, what).toEqual(one.mad);
      expect(sent[0].to, what).toEqual(one.destination);
      flying.push(one);
    }
    deliver(Infinity);
    expect(recorded.filter(({ message }) => message.name === 'REQ').length).toBe(DIALOGUES[name]);
    for (const { model } of Object.values(ends)) {
      expect(model!.take()).toEqual([]);
      expect(model!.complaints).toEqual([]);
      // Nothing but timewait is left, and that ends.
      for (const { state } of model!.connections.values()) expect(state).toBe('TIMEWAIT');
      model!.advance(model!.nextDeadline());
      model!.advance(Infinity);
      expect(model!.connections.size).toBe(0);
      expect(model!.nextDeadline()).toBe(Infinity);
    }
  });

  test('are all that there are', async () => {
    for (const name of names) expect((await recordedIn(name)).length > 0, name).toBe(name in DIALOGUES);
  });
});
