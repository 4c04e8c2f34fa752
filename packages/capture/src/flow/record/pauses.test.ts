/** Pause frames among the packets of a capture. */
import { LinkType, type PacketRecord } from '@node-roce/pcap';
import { buildPfc, fromHex } from '@node-roce/wire';
import { expect, test } from 'vitest';
import { ACK, CNP } from '../../../testing/frames.ts';
import { rawRecord } from '../../../testing/records.ts';
import { PacketReader } from '../../read/reader.ts';
import { FlowAnalyzer } from '../analyzer.ts';

const HOST = fromHex('183d5ebf5192');
const SWITCH = fromHex('020000000009');

function analyze(frames: readonly (readonly [microseconds: number, frame: Uint8Array])[], speed?: bigint) {
  const analyzer = new FlowAnalyzer();
  const reader = new PacketReader({
    onPacket: (packet) => analyzer.add(packet),
    onPause: (pause) => analyzer.addPause(pause),
  });
  for (const [time, frame] of frames) {
    const record: PacketRecord = rawRecord(frame, {
      linkType: LinkType.ETHERNET,
      nanoseconds: time * 1000,
    });
    reader.frame(speed === undefined ? record : withSpeed(record, speed));
  }
  return analyzer.finish(reader.summary(), reader.addresses);
}

const withSpeed = (record: PacketRecord, speed: bigint): PacketRecord =>
  Object.assign(record, { interface: { ...record.interface, speed } });

/** The ACK of tests, with the source MAC address of that host. */
const fromHost = (() => {
  const frame = ACK.slice();
  frame.set(HOST, 6);
  return frame;
})();

test('PFC by sender and priority, with the host whose adapter it is', () => {
  const pfc = buildPfc(HOST, { 3: 0xffff, 4: 100 });
  const { pauses, findings, summary } = analyze([
    [0, fromHost],
    [1000, pfc],
    [1100, pfc],
    [1200, buildPfc(HOST, { 3: 0 })],
    [9000, buildPfc(SWITCH, { 3: 1 })],
  ]);
  expect(summary).toMatchObject({ pauseFrames: 4, otherFrames: 0, rocePackets: 1 });
  expect(pauses).toEqual([
    {
      mac: '18:3d:5e:bf:51:92',
      addresses: ['192.168.70.4'],
      frames: 3,
      start: 1e6,
      end: 1.2e6,
      priorities: [
        { priority: 3, pauses: 2, resumes: 1, quanta: 131_070, mostQuanta: 65_535, pausedTime: undefined },
        { priority: 4, pauses: 2, resumes: 0, quanta: 200, mostQuanta: 100, pausedTime: undefined },
      ],
      held: { packets: 0, stalls: 0, time: 0, longest: 0, frame: 0 },
      firstFrames: [2, 3, 4],
    },
    expect.objectContaining({ mac: '02:00:00:00:00:09', addresses: [], frames: 1 }),
  ]);
  expect(findings.filter(({ kind }) => kind === 'pause').map(({ text }) => text)).toEqual([
    '18:3d:5e:bf:51:92 (192.168.70.4) sent 3 pause frames from 0.001 s to 0.001 s: it paused its link partner: priority 3 (PFC) 2 times, resumed 1 time, up to 65535 quanta per frame (336 µs at 100 Gb/s); priority 4 (PFC) 2 times, resumed 0 times, up to 100 quanta per frame (512 ns at 100 Gb/s); no RoCE traffic was held up',
    expect.stringContaining('02:00:00:00:00:09 sent 1 pause frame'),
  ]);
});

test('with the speed of the link, the time that a priority was stopped', () => {
  // 1000 quanta at 10 Gb/s are 51.2 µs.
  const stop = buildPfc(HOST, { 3: 1000 });
  const { pauses } = analyze(
    [
      [0, stop],
      [20, stop],
      [500, stop],
      [510, buildPfc(HOST, { 3: 0 })],
      [900, buildPfc(HOST, { 5: 10 })],
    ],
    10_000_000_000n,
  );
  expect(pauses[0].priorities).toMatchObject([
    { priority: 3, pauses: 3, resumes: 1, pausedTime: 20_000 + 51_200 + 10_000 },
    { priority: 5, pauses: 1, pausedTime: 512 },
  ]);
});

test('PAUSE stops everything; a frame that only resumes is no finding', () => {
  const pause = new Uint8Array(60);
  pause.set([...fromHex('0180c2000001'), ...SWITCH, 0x88, 0x08, 0, 1, 0, 16]);
  const { pauses, findings } = analyze([[0, pause]]);
  expect(pauses).toMatchObject([{ priorities: [{ priority: -1, pauses: 1, quanta: 16 }] }]);
  expect(findings[0].text).toContain('paused its link partner: all priorities (PAUSE) 1 time');
  expect(analyze([[0, buildPfc(HOST, { 3: 0 })]]).findings).toEqual([]);
});

test('a packet that waits until a pause is over is held up; the verdict names the host and the time', () => {
  const { pauses, verdict } = analyze(
    [
      [0, fromHost],
      [10, ACK],
      [1000, buildPfc(HOST, { 3: 0xffff })],
      [4300, ACK],
    ],
    10_000_000_000n,
  );
  expect(pauses[0].held).toEqual({ packets: 1, stalls: 1, time: 3.3e6, longest: 3.3e6, frame: 4 });
  expect(verdict).toMatchObject({
    kind: 'pause',
    certainty: 'likely',
    culprit: '192.168.70.4',
    text: '192.168.70.4 paused its link partner 1 time (PFC); RoCE traffic stood still for 3.3 ms.',
  });
});

test('a switch that pauses a host: the verdict names the host that waited', () => {
  const { pauses, verdict } = analyze(
    [
      [0, fromHost],
      [1000, buildPfc(SWITCH, { 3: 0xffff })],
      [4300, fromHost],
    ],
    10_000_000_000n,
  );
  expect(pauses[0].held).toMatchObject({ stalls: 1, waiting: '192.168.70.4' });
  expect(verdict.text).toBe(
    'Port 02:00:00:00:00:09 paused its link partner 1 time (PFC); RoCE traffic of 192.168.70.4 stood still for 3.3 ms.',
  );
});

test('two hosts wait while a switch pauses: one may wait for the other, and the verdict names neither', () => {
  const { pauses, verdict } = analyze(
    [
      [0, fromHost],
      [10, CNP],
      [1000, buildPfc(SWITCH, { 3: 0xffff })],
      [4300, fromHost],
      [4400, CNP],
    ],
    10_000_000_000n,
  );
  expect(pauses[0].held).toMatchObject({ stalls: 1, time: 3.4e6, waiting: undefined });
  expect(verdict.text).toMatch(/RoCE traffic stood still for 3\.4 ms\.$/);
});

test('pauses long after the last packet, and packets long after a pause: nothing was held up', () => {
  const pfc = buildPfc(HOST, { 3: 0xffff });
  for (const frames of [
    [
      [0, fromHost],
      [534_000, ACK],
      [1_274_000, pfc],
    ],
    [
      [0, fromHost],
      [1000, pfc],
      [60_000, ACK],
    ],
  ] as const) {
    const { verdict } = analyze(frames, 10_000_000_000n);
    expect(verdict).toMatchObject({ kind: 'pause', severity: 'note' });
    expect(verdict.text).toMatch(/no RoCE traffic was held up\.$/);
  }
});
