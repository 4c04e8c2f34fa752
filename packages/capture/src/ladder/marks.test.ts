import { Opcode } from '@node-roce/wire';
import { describe, expect, test } from 'vitest';
import { answer, connection, ladderPacket } from '../../testing/analysis.ts';
import type { LadderPacket, Recovery, Stall } from '../flow/analysis.ts';
import { ladderMarks } from './marks.ts';
import { renderLadder } from './render.ts';

const MS = 1_000_000;

/** PSN 101 is asked for again by the NAK in frame 4, in frame 5. */
const recovery = (given: Partial<Recovery> = {}): Recovery => ({
  from: 'a',
  cause: 'sequence-nak',
  grade: 'certain',
  frame: 5,
  time: 9 * MS,
  psn: 101,
  lastFrame: 6,
  packets: 2,
  reason: 'lost',
  evidence: 4,
  damaged: undefined,
  wait: MS,
  timeout: undefined,
  missing: 'request',
  side: 'requester',
  ...given,
});

const request = (frame: number, psn: number, given: Partial<LadderPacket> = {}) =>
  ladderPacket({ frame, psn, time: frame * MS, ...given });
const nak = answer(0x60, 'NAK, PSN sequence error', { frame: 4, psn: 101, time: 8 * MS });
const again = [
  request(5, 101, { retransmission: 'sequence-nak' }),
  request(6, 102, { retransmission: 'sequence-nak' }),
];
const unseen = [request(1, 100), request(2, 102), request(3, 103), nak, ...again];
const seen = [request(1, 100), request(2, 101), request(3, 102), nak, ...again];

describe('a lost packet', () => {
  test('that the tap did not see is missing before the first one behind it', () => {
    const { before, lost } = ladderMarks({ ladder: unseen, recoveries: [recovery()] });
    expect(before.get(2)).toEqual([
      { kind: 'missing', text: 'PSN 101 = 0x000065 missing: lost or late before the tap' },
    ]);
    expect(lost.size).toBe(0);
  });

  test('that the tap saw is marked where it was seen', () => {
    const { before, lost } = ladderMarks({ ladder: seen, recoveries: [recovery({ side: 'responder' })] });
    expect([...lost]).toEqual([[2, 'lost or late behind the tap']]);
    expect(before.get(2)).toBeUndefined();
  });

  test('of a response: among the responses, though ACKs have its PSN', () => {
    const response = (frame: number, psn: number) =>
      request(frame, psn, { from: 'b', opcode: Opcode.RC_RDMA_READ_RESPONSE_MIDDLE });
    const ladder = [
      request(1, 100),
      response(2, 100),
      answer(0x1f, 'ACK', { frame: 3, psn: 101 }),
      response(4, 102),
      again[0],
    ];
    const implied = recovery({ cause: 'implied-nak', missing: 'response', side: 'responder' });
    expect(ladderMarks({ ladder, recoveries: [implied] }).before.get(4)).toEqual([
      { kind: 'missing', text: 'response PSN 101 = 0x000065 missing: lost or late before the tap' },
    ]);
  });

  test('of an earlier recovery does not count', () => {
    const ladder = [request(1, 101), request(2, 100), ...unseen.slice(1)];
    const { before } = ladderMarks({ ladder, recoveries: [recovery({ side: 'responder', damaged: 1 })] });
    expect(before.get(2)).toBeUndefined();
    expect(ladderMarks({ ladder: [], recoveries: [recovery()] }).before.get(5)).toHaveLength(2);
  });

  test.each([{ missing: 'none' }, { missing: 'unknown' }, { side: 'unknown' }] as const)(
    '%o: none',
    (given) => {
      const { before, lost } = ladderMarks({ ladder: seen, recoveries: [recovery(given)] });
      expect([lost.size, before.get(2)]).toEqual([0, undefined]);
    },
  );
});

test('a recovery has its cause before its first packet, and a join from its evidence', () => {
  const { before, joins } = ladderMarks({ ladder: seen, recoveries: [recovery({ grade: 'likely' })] });
  expect(before.get(5)).toContainEqual({
    kind: 'recovery',
    text: 'go-back-N to PSN 101 = 0x000065: likely sequence NAK in frame 4, 1 ms before',
  });
  expect(joins).toEqual([{ requester: 'a', from: 4, to: 5, isSilence: false }]);
});

test('a timeout is a silence with the code that it fits', () => {
  const timeout = recovery({ cause: 'timeout', evidence: 3, wait: 65.1 * MS, timeout: 14 });
  const { before, joins } = ladderMarks({ ladder: seen, recoveries: [timeout] });
  expect(before.get(5)).toContainEqual({
    kind: 'recovery',
    text: 'go-back-N to PSN 101 = 0x000065: ACK timeout: 65.1 ms of silence ≈ timeout 14',
  });
  expect(joins).toEqual([{ requester: 'a', from: 3, to: 5, isSilence: true }]);
});

describe('drawn', () => {
  const stall: Stall = { from: 'a', start: 4 * MS, duration: 4 * MS, after: 3, frame: 4, end: 'answer' };
  const subject = connection({ ladder: unseen, recoveries: [recovery()], stalls: [stall] });
  const count = (svg: string, part: string) => svg.split(part).length - 1;

  test('missing packet, recovery, stall and join have each their own shape', () => {
    const svg = renderLadder(subject);
    expect(svg).toContain('PSN 101 = 0x000065 missing');
    expect(svg).toContain('5 ms later: stall of A&#39;s requests, ended by an answer');
    for (const part of ['annotation missing', 'annotation recovery', 'gap stall', 'class="join"'])
      expect(count(svg, part), part).toBe(1);
  });

  test('a join goes on in each part of a ladder, and ends in the last', () => {
    const parts = [0, 2, 4].map((at) =>
      renderLadder(connection({ ...subject, recoveries: [recovery({ evidence: 1 })] }), {
        packets: unseen.slice(at, at + 2),
        embedded: true,
      }),
    );
    expect(parts.map((svg) => count(svg, 'class="join"'))).toEqual([1, 1, 1]);
    expect(parts.map((svg) => count(svg, 'class="point"'))).toEqual([0, 0, 1]);
  });

  test('a narrow ladder has no text that is wider than it, and leaves nothing out of its annotations', () => {
    const width = 360;
    const svg = renderLadder(subject, { width, embedded: true });
    const texts = [...svg.matchAll(/<text [^>]*>([^<]*)/g)].map(([, text]) => text!);
    for (const text of texts) expect(text.length * 6.7, text).toBeLessThan(width);
    expect(texts.filter((text) => text.includes('…'))).toEqual([]);
    expect(texts.join(' ')).toContain('sequence NAK in frame 4, 1 ms before');
  });
});
