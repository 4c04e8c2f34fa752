/**
 * Verdicts on small captures whose trouble is known: each has the mistake of its name, made by hand
 * (test/fixtures/verdicts/README.md). None may get another verdict, whole, cut or damaged.
 */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { type Analysis, analyzeCapture, type Verdict } from '@node-roce/capture/node';
import { createRandom } from '@node-roce/sim';
import { expect, test } from 'vitest';
import { KINDS, pcapOf } from './kinds/kinds.ts';

const folder = join(import.meta.dirname, '../fixtures/verdicts');

const EXPECTED: readonly [name: string, verdict: Partial<Verdict>, text: RegExp][] = [
  [
    'icrc-zero',
    { kind: 'icrc-never-right', certainty: 'certain', severity: 'error' },
    /192\.0\.2\.1 or 192\.0\.2\.2 is right: each is 0/,
  ],
  [
    'icrc-zero-50',
    { kind: 'icrc-never-right', certainty: 'certain' },
    /192\.0\.2\.1 or 192\.0\.2\.2 is right: each is 0/,
  ],
  ['icrc-swapped', { kind: 'icrc-never-right', certainty: 'certain' }, /wrong byte order/],
  [
    'icrc-swapped-retries',
    { kind: 'icrc-never-right', certainty: 'certain' },
    /wrong byte order; nobody answers/,
  ],
  ['nat', { kind: 'icrc-never-right', culprit: 'network' }, /NAT/],
  ['gid-v1-v2', { kind: 'gid-mismatch', certainty: 'certain' }, /RoCE v1, 192\.0\.2\.2 sends RoCE v2/],
  ['pkey', { kind: 'pkey-mismatch', certainty: 'likely' }, /0x8001 against 0xffff/],
  ['ttl1', { kind: 'ttl-too-small', culprit: '192.0.2.1' }, /TTL 1/],
  [
    'ip-bad-checksum',
    { kind: 'bad-checksum', culprit: '192.0.2.1' },
    /checksums of 0; as nothing is sent again, adapters fill them in later/,
  ],
  [
    'udp-bad-checksum',
    { kind: 'bad-checksum', certainty: 'certain' },
    /192\.0\.2\.1 and 192\.0\.2\.2 send wrong UDP checksums \(8 of 8 checked\); both take/,
  ],
  ['dns-reply-4791', { kind: 'nothing-decoded', certainty: 'likely' }, /other traffic/],
  [
    'icrc-good-retries',
    { kind: 'retries-exceeded', certainty: 'likely' },
    /sent no answer that was captured: .* one direction only/,
  ],
  ['rnr-655ms', { kind: 'rnr', culprit: '192.0.2.2' }, /no receive posted 3 times .*waited 1\.97 s/],
  ['connectx-ack-cnp', { kind: 'one-direction', certainty: 'not-known' }, /is not known/],
  ['asym-gre-key', { kind: 'healthy', certainty: 'certain' }, /6 messages, all complete/],
  ['asym-vxlan-vni', { kind: 'healthy', certainty: 'certain' }, /6 messages, all complete/],
  ['snap128', { kind: 'healthy' }, /Nothing stands out/],
];

test.each(EXPECTED)('%s', async (name, verdict, text) => {
  const analysis = await analyzeCapture(join(folder, `${name}.pcap`));
  expect(analysis.verdict).toMatchObject(verdict);
  expect(analysis.verdict.text).toMatch(text);
});

test('samples of the traffic: nothing is known of its connections', async () => {
  const kind = KINDS.find(({ name }) => name === 'sflow')!;
  const { verdict } = await analyzeCapture(Readable.from([Buffer.from(pcapOf(kind))]));
  expect(verdict).toMatchObject({ kind: 'not-known', certainty: 'not-known', severity: undefined });
  expect(verdict.text).toContain('samples only');
});

/** Kinds that a damaged or cut copy may get in place of the whole one's: it is vaguer, and has no other culprit. */
const LESSER: ReadonlySet<string> = new Set([
  'healthy',
  'not-known',
  'one-direction',
  'retransmissions',
  'retries-exceeded',
  'nothing-decoded',
  'damaged-packets',
  'damaged-file',
  'icrc-bad',
  'stalls',
]);

const analyze = (bytes: Uint8Array): Promise<Analysis> => analyzeCapture(Readable.from([Buffer.from(bytes)]));

test('a wrong ICRC that the other end takes: advice on the capture, by what is wrong', async () => {
  const hintOf = async (name: string) => (await analyzeCapture(join(folder, `${name}.pcap`))).verdict.hint;
  expect(await hintOf('icrc-zero')).toContain('before the adapter writes the ICRC');
  expect(await hintOf('nat')).toContain('a tool rewrote the addresses in the file');
  expect(await hintOf('icrc-swapped-retries')).not.toContain('perhaps');
});

test('cut at any place: the same verdict, or a lesser one', { tags: ['slow', 'gate'] }, async () => {
  for (const [name, { kind }] of EXPECTED) {
    const whole = readFileSync(join(folder, `${name}.pcap`));
    const step = Math.max(1, Math.floor(whole.length / 60));
    for (let length = 24; length < whole.length; length += step) {
      const { verdict } = await analyze(whole.subarray(0, length));
      expect([kind, ...LESSER], `${name} cut at ${length}: ${verdict.text}`).toContain(verdict.kind);
    }
  }
});

test('with a byte changed: no crash, and no certain verdict about another cause', {
  tags: ['slow', 'gate'],
}, async () => {
  const random = createRandom(4791);
  for (const [name, { kind }] of EXPECTED) {
    const whole = readFileSync(join(folder, `${name}.pcap`));
    for (let i = 0; i < 60; i++) {
      const copy = Uint8Array.from(whole);
      copy[random.between(24, whole.length - 1)] ^= random.between(1, 255);
      const { verdict } = await analyze(copy);
      if (verdict.certainty !== 'certain') continue;
      expect([kind, ...LESSER], `${name}, change ${i}: ${verdict.text}`).toContain(verdict.kind);
    }
  }
});
