/** Directions of connections between two hosts, paired by PSNs and UDP source ports. */
import { sourcePortForConnection } from '@node-roce/wire';
import { expect, test } from 'vitest';
import { CaptureBuilder, QP } from '../../../testing/capture-builder.ts';

/** Sixteen WRITEs and their ACKs, from `psn` on, between queue pairs 0x100 + n and 0x200 + n. */
function writes(capture: CaptureBuilder, n: number, psn: number, port?: number): void {
  const [a, b] = [0x100 + n, 0x200 + n];
  const derived = (from: number, to: number) => port ?? sourcePortForConnection(0, from, to);
  for (let i = 0; i < 16; i++) {
    const time = n * 10_000 + i * 100;
    const request = { psn: psn + i, payload: 64, length: 64, ackReq: true, destQp: b, port: derived(a, b) };
    capture.packet(time, 'a', 'RC_RDMA_WRITE_ONLY', request);
    capture.packet(time + 10, 'b', 'RC_ACKNOWLEDGE', { psn: psn + i, destQp: a, port: derived(b, a) });
  }
}

// Adapters of ours on loopback addresses have one socket to send from.
test('where most ports follow from QPNs, those that share a port are paired by their PSNs', () => {
  const capture = new CaptureBuilder();
  for (let n = 0; n < 6; n++) writes(capture, n, 1000 * n);
  for (let n = 6; n < 8; n++) writes(capture, n, 100_000 * n, 50_001);
  const { connections } = capture.finish();
  // The first of them is found once the second one shows that they share it.
  expect(connections.map(({ a, b, pairing }) => [a.qpn, b.qpn, pairing]).sort()).toEqual(
    Array.from({ length: 8 }, (_, n) => [0x100 + n, 0x200 + n, 'certain']),
  );
});

test('XRC of the connection manager: the passive end is in the place of the EE context', () => {
  const capture = new CaptureBuilder();
  const path = { pathMtu: 3, primaryAckTimeout: 14 };
  const xrc = { transportService: 3, extendedTransport: 1 };
  capture.cm(0, 'a', { name: 'REQ', localCommId: 7, localQpn: QP.a, ...xrc, ...path });
  capture.cm(1, 'b', { name: 'REP', localCommId: 8, remoteCommId: 7, localQpn: 0, localEecn: QP.b });
  capture.cm(2, 'a', { name: 'RTU', localCommId: 7, remoteCommId: 8 });
  capture.packet(3, 'a', 'XRC_SEND_ONLY', { psn: 9, payload: 64, ackReq: true });
  capture.packet(4, 'b', 'XRC_ACKNOWLEDGE', { psn: 9 });
  const { connections, exchanges, findings } = capture.finish();
  expect(findings).toEqual([]);
  expect(connections).toMatchObject([{ pairing: 'cm', a: { qpn: QP.a }, b: { qpn: QP.b } }]);
  expect(exchanges).toMatchObject([{ passive: { qpn: QP.b } }]);
});
