import { LinkType } from '@node-roce/pcap';
import { buildPacket } from '@node-roce/wire';
import { expect, test } from 'vitest';
import { rawRecord } from '../../../testing/records.ts';
import { PacketReader } from '../../read/reader.ts';
import { FlowAnalyzer } from '../analyzer.ts';

const MAC = { a: '02:00:00:00:00:01', b: '02:00:00:00:00:02', c: '02:00:00:00:00:03' } as const;
type Host = keyof typeof MAC;

/** Eight copies of a WRITE from one host to another, which nobody answers. */
interface Sender {
  from: Host;
  to: Host;
  source: string;
  destination: string;
  qp: number;
}

function verdictOf(senders: readonly Sender[]) {
  const analyzer = new FlowAnalyzer();
  const reader = new PacketReader({ onPacket: (packet) => analyzer.add(packet) });
  for (let i = 0; i < 8; i++) {
    for (const { from, to, source, destination, qp } of senders) {
      const frame = buildPacket({
        ethernet: { source: MAC[from], destination: MAC[to] },
        ip: { source, destination },
        bth: { opcode: 'RC_RDMA_WRITE_ONLY', destQp: qp, psn: 100, ackReq: true },
        extensions: { reth: { va: 0n, rkey: 1, length: 8 } },
        payload: new Uint8Array(8),
      });
      reader.frame(rawRecord(frame, { linkType: LinkType.ETHERNET, nanoseconds: i * 67e6 + qp }));
    }
  }
  return analyzer.finish(reader.summary(), reader.addresses).verdict;
}

const a: Sender = { from: 'a', to: 'b', source: 'fe80::1', destination: 'fe80::2', qp: 0x12 };
const b: Sender = { from: 'b', to: 'a', source: '192.0.2.2', destination: '192.0.2.1', qp: 0x11 };

test('link-local against IPv4 between the same two ports', () => {
  expect(verdictOf([a, b])).toMatchObject({
    kind: 'gid-mismatch',
    certainty: 'certain',
    text: 'Both ends use different GID types: fe80::1 sends over link-local IPv6, 192.0.2.2 sends over IPv4; neither answers.',
  });
});

test('two IPv4 addresses of one port: GIDs of different indexes', () => {
  const other = { ...a, source: '198.51.100.1', destination: '198.51.100.2' };
  expect(verdictOf([other, b])).toMatchObject({ kind: 'gid-mismatch', certainty: 'likely' });
});

test('more than one candidate, or other ports: not this', () => {
  expect(verdictOf([a, b, { ...b, qp: 0x21 }]).kind).not.toBe('gid-mismatch');
  expect(verdictOf([a, { ...b, from: 'c' }]).kind).not.toBe('gid-mismatch');
});
