/** Captures cut at every snap length: each number is the one of the whole capture, or is not there. */
import { readFileSync } from 'node:fs';
import { CaptureParser, LinkType } from '@node-roce/pcap';
import { describe, expect, test } from 'vitest';
import { rawRecord } from '../../testing/records.ts';
import { PacketReader } from '../read/reader.ts';
import type { Message } from './analysis.ts';
import { FlowAnalyzer } from './analyzer.ts';

/** Ethernet, IPv6 and UDP before the BTH of 12 bytes; below that there is no packet. */
const LEAST = 14 + 40 + 8 + 12;
/** All headers of the longest packet, an atomic request. */
const ALL_HEADERS = LEAST + 28;

function analyze(name: string, snapLength: number) {
  const parser = new CaptureParser();
  parser.push(readFileSync(new URL(`../../../../test/fixtures/captures/${name}`, import.meta.url)));
  parser.end();
  const messages: Message[] = [];
  const analyzer = new FlowAnalyzer({ onMessage: (message) => messages.push(message) });
  const reader = new PacketReader({ onPacket: (packet) => analyzer.add(packet) });
  for (const { data, timestamp, seconds, nanoseconds } of parser) {
    const frame = data.slice(0, snapLength);
    const record = rawRecord(frame, { linkType: LinkType.ETHERNET, originalLength: data.length });
    expect(timestamp).toBeGreaterThan(0n);
    Object.assign(record, { seconds, nanoseconds });
    reader.frame(record);
  }
  return { ...analyzer.finish(reader.summary(), reader.addresses), messages };
}

const isIpv4 = (name: string) => !name.includes('ipv6');

describe.each([
  'op_all.pcap',
  'op_read_depth.pcap',
  'op_uc.pcap',
  'pf_read_bw_ipv6.pcap',
  'pf_read_bw_rc_m1024_8193.pcap',
  'pf_atomic_bw_faa.pcap',
  'pf_write_bw_rc_m1024_1023.pcap',
])('%s', (name) => {
  const whole = analyze(name, 65_536);
  const least = LEAST - (isIpv4(name) ? 20 : 0);

  test('at every length from the BTH on', () => {
    expect(whole.messages.length).toBeGreaterThan(0);
    for (let length = least; length <= ALL_HEADERS; length++) {
      const { summary, connections, findings, messages } = analyze(name, length);
      expect(summary.rocePackets, `${length}`).toBe(whole.summary.rocePackets);
      expect(connections).toHaveLength(whole.connections.length);
      connections.forEach((connection, i) => {
        for (const key of ['aToB', 'bToA'] as const) {
          expect(connection[key], `${length}`).toMatchObject({
            packets: whole.connections[i][key].packets,
            retransmitted: 0,
            missedByCapture: 0,
            gaps: whole.connections[i][key].gaps,
          });
        }
      });
      const cut = summary.cutHeaders > 0 ? ['cut-headers'] : [];
      expect(findings.map(({ kind }) => kind)).toEqual(cut);
      expect(messages.map(({ operation }) => operation)).toEqual(
        whole.messages.map(({ operation }) => operation),
      );
      messages.forEach((message, i) => {
        const { bytes, latency, outcome, firstPsn } = whole.messages[i];
        expect(message.firstPsn).toBe(firstPsn);
        expect([bytes, undefined]).toContain(message.bytes);
        expect([latency, undefined]).toContain(message.latency);
        expect([outcome, 'incomplete']).toContain(message.outcome);
      });
    }
  });
});

test('cut AETHs: the verdict is likely, as NAKs would not show; without a BTH it is the snap length', () => {
  const short = analyze('op_all.pcap', 14 + 20 + 8 + 12);
  expect(short.verdict).toMatchObject({
    kind: 'healthy',
    certainty: 'likely',
    text: expect.stringContaining('cut headers hide NAKs'),
  });
  // tcpdump -s 64 cuts RETHs; AETHs end at 58.
  const usual = analyze('op_all.pcap', 64);
  expect(usual.summary.cutHeaders).toBeGreaterThan(0);
  expect(usual.verdict).toMatchObject({ kind: 'healthy', certainty: 'likely' });
  expect(`${usual.verdict.text} ${usual.findings.map(({ text }) => text).join()}`).not.toContain('NAKs');
  const { verdict, findings } = analyze('op_all.pcap', 42);
  expect(verdict.text).toMatch(
    /^No RoCE packet was decoded: \d+ of \d+ frames are cut inside the headers\.$/,
  );
  expect(verdict.also).toEqual([]);
  expect(findings.filter(({ isExplained }) => isExplained !== true).map(({ kind }) => kind)).toEqual([
    'nothing-decoded',
  ]);
});
