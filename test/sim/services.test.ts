/** Scenarios of windows and SRQs on whole devices, for the engine and the model alike; each is a rule of docs/rules.md. */
import {
  CONNECTION_DEFAULTS,
  decodePacket,
  type EndpointKind,
  EngineDevice,
  ModelDevice,
  Network,
  type ResumableQp,
  type SimDevice,
  type SimSend,
  type WireOptions,
} from '@node-roce/sim';
import { Access } from '@node-roce/transport';
import { gidFromText, opcodeInfo } from '@node-roce/wire';
import { describe, expect, test } from 'vitest';

const ARENA = 8192;
const NOTHING = { offset: 0, length: 0 };

function makeDevice(kind: EndpointKind, number: number): SimDevice {
  const gid = gidFromText(`10.0.0.${number}`);
  return kind === 'model'
    ? new ModelDevice({ gid, qpn: 0x10 * number, arenaBytes: ARENA })
    : new EngineDevice({ gid, seed: number, arenaBytes: ARENA });
}

/** Two devices with a reliable connection; `aToB` is what the wire does to what A sends. */
class Connected {
  readonly network = new Network(1);
  readonly a: SimDevice;
  readonly qpA: ResumableQp;
  readonly qpB: ResumableQp;

  constructor(kind: EndpointKind, aToB: WireOptions) {
    this.a = makeDevice(kind, 1);
    const b = makeDevice(kind, 2);
    for (const host of [this.a, b]) this.network.add(host);
    this.network.link(this.a, b, aToB);
    [this.qpA, this.qpB] = [this.a, b].map((device) => device.createQp({ service: 'RC', psn: 100 }));
    this.qpA.connect(this.qpB.info, CONNECTION_DEFAULTS);
    this.qpB.connect(this.qpA.info, CONNECTION_DEFAULTS);
  }

  /** A type 2 window over the first 64 bytes of A, bound. */
  bind(): number {
    const window = this.a.allocWindow(2);
    const rkey = ((window.rkey & ~0xff) | ((window.rkey + 1) & 0xff)) >>> 0;
    const bind = { window, rkey, offset: 0, length: 64, access: Access.REMOTE_WRITE };
    this.qpA.postSend({ wrId: 1, opcode: 'BIND_MW', ...NOTHING, bind });
    expect(this.until(this.qpA)).toEqual([[1, 'SUCCESS']]);
    return rkey;
  }

  /** Runs until the queue pair has a completion of its own requests; each as number and status. */
  until(qp: ResumableQp): [number, string][] {
    const done: [number, string][] = [];
    for (let turn = 0; turn < 3 && done.length === 0; turn++) {
      this.network.run(() => {
        done.push(...qp.pollSend().map(({ wrId, status }): [number, string] => [wrId, status]));
        return done.length > 0;
      });
    }
    return done;
  }

  write(wrId: number, rkey: number): SimSend {
    return { wrId, opcode: 'RDMA_WRITE', offset: 0, length: 8, remoteOffset: 0, rkey };
  }

  /** The packets that A sent, by name. */
  sentByA(): string[] {
    return this.network.trace
      .filter(({ event, source }) => event === 'sent' && source === this.a.gid)
      .map(({ bytes }) => decodePacket(bytes))
      .map((decoded) => (decoded.ok ? opcodeInfo(decoded.packet.opcode)!.key : decoded.reason));
  }
}

describe.each<EndpointKind>(['model', 'engine'])('%s', (kind) => {
  const lostOnce: WireOptions = { drop: (_, index) => index === 0 };

  /** A WRITE comes through a window while the request before its LOCAL_INV is still to be retransmitted. */
  const localInv = (fence: boolean, status: string) => {
    const pair = new Connected(kind, lostOnce);
    const rkey = pair.bind();
    pair.qpA.postSend({ wrId: 2, opcode: 'RDMA_WRITE', offset: 0, length: 8, remoteOffset: 0 });
    pair.qpA.postSend({ wrId: 3, opcode: 'LOCAL_INV', ...NOTHING, invalidateRkey: rkey, fence });
    pair.qpB.postSend(pair.write(4, rkey));
    expect(pair.until(pair.qpB)).toEqual([[4, status]]);
    if (!fence) return;
    expect(pair.until(pair.qpA)[0]).toEqual([2, 'SUCCESS']);
    pair.network.pass(1000);
    pair.qpB.postSend(pair.write(5, rkey));
    expect(pair.until(pair.qpB)).toEqual([[5, 'REM_ACCESS_ERR']]);
  };
  describe('fencedLocalInvWaitsForAll', () => {
    test('the WRITE still finds the window', () => localInv(true, 'SUCCESS'));
  });
  test('LOCAL_INV without a fence waits for nothing', () => localInv(false, 'REM_ACCESS_ERR'));

  test.each([true, false])('fencedBindWaitsForReads: fence %s', (fence) => {
    const pair = new Connected(kind, lostOnce);
    const window = pair.a.allocWindow(1);
    const rkey = ((window.rkey & ~0xff) | ((window.rkey + 1) & 0xff)) >>> 0;
    const bind = { window, rkey, offset: 0, length: 64, access: Access.REMOTE_READ };
    pair.qpA.postSend({ wrId: 1, opcode: 'RDMA_READ', offset: 0, length: 8, remoteOffset: 0 });
    pair.qpA.postSend({ wrId: 2, opcode: 'BIND_MW', ...NOTHING, bind, fence });
    pair.qpA.postSend({ wrId: 3, opcode: 'RDMA_WRITE', offset: 0, length: 8, remoteOffset: 64 });
    pair.network.pass(5);
    const [READ, WRITE] = ['RC_RDMA_READ_REQUEST', 'RC_RDMA_WRITE_ONLY'];
    expect(pair.sentByA()).toEqual(fence ? [READ] : [READ, WRITE]);
    const done: number[] = [];
    for (let turn = 0; turn < 3; turn++) done.push(...pair.until(pair.qpA).map(([wrId]) => wrId));
    expect(done).toEqual([1, 2, 3]);
  });
});
