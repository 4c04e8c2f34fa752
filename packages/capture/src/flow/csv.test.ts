import { expect, test } from 'vitest';
import type { Finding, Message } from './analysis.ts';
import { FINDING_CSV_HEADER, findingCsv, MESSAGE_CSV_HEADER, messageCsv } from './csv.ts';

const message: Message = {
  id: 3,
  connection: 2,
  from: 'b',
  operation: 'SEND',
  bytes: undefined,
  firstPsn: 7,
  lastPsn: 9,
  packets: 3,
  retransmitted: 1,
  firstFrame: 10,
  lastFrame: 14,
  start: 1_500_000_001,
  end: 1_500_000_002,
  latency: undefined,
  ackRoundTrip: undefined,
  outcome: 'failed',
  failure: 'invalid-request',
};

test('a message: as many fields as the heading, unknown ones are empty', () => {
  const line = messageCsv(message);
  expect(line).toBe('2,3,b,SEND,,7,9,3,1,10,14,1.500000001,1.500000002,,failed,invalid-request');
  expect(line.split(',').length).toBe(MESSAGE_CSV_HEADER.split(',').length);
});

test('texts with commas, quotes and ends of lines are quoted', () => {
  const finding: Finding = {
    kind: 'rnr',
    severity: 'note',
    connection: undefined,
    from: undefined,
    subject: undefined,
    statement: 'one, "two"',
    text: 'one, "two"',
    hint: 'a\nb',
    start: 0,
    end: 1,
    frames: [1, 2],
    frameCount: 9,
  };
  expect(findingCsv(finding)).toBe('note,rnr,,"one, ""two""","a\nb",0.000000000,0.000000001,9,1 2');
  expect(FINDING_CSV_HEADER).toBe('severity,kind,connection,text,hint,start,end,frame_count,frames');
});
