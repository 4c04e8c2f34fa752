/** Messages of one packet, and their verdict: what tests of verdicts are told with. */
import { expect } from 'vitest';
import { wordsOf } from '../src/flow/verdict/index.ts';
import type { CaptureBuilder, PacketOptions } from './capture-builder.ts';

/** A SEND of one packet, at a time in µs. */
export const send = (capture: CaptureBuilder, time: number, psn: number, options: PacketOptions = {}) =>
  capture.packet(time, 'a', 'RC_SEND_ONLY', { psn, payload: 64, ackReq: true, migReq: false, ...options });

/** Its ACK, or with a `syndrome` a NAK. */
export const ack = (capture: CaptureBuilder, time: number, psn: number, options: PacketOptions = {}) =>
  capture.packet(time, 'b', 'RC_ACKNOWLEDGE', { psn, ...options });

/** The verdict, of which each text has at most 20 words. */
export function verdictOf(capture: CaptureBuilder) {
  const { verdict } = capture.finish();
  for (const { text } of [verdict, ...verdict.also]) expect(wordsOf(text), text).toBeLessThanOrEqual(20);
  return verdict;
}
