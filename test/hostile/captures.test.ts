/**
 * Captures that somebody has tampered with, through every command of `roce` that reads one: an answer or a message,
 * never an exception, and nothing on the terminal that steers it.
 *
 *   ROCE_HOSTILE_CAPTURES=2000 npx vitest run test/hostile/captures
 */
import { readdirSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { run } from '@node-roce/cli';
import { CaptureParser, LinkType, PcapngEncoder } from '@node-roce/pcap';
import { createRandom, type Random } from '@node-roce/sim';
import { describe, expect, test } from 'vitest';

const CAPTURES = Number(process.env.ROCE_HOSTILE_CAPTURES ?? 40);
const folder = join(import.meta.dirname, '../fixtures/captures');
/** Small ones of every service; a damaged copy of a large one takes as long and shows no more. */
const fixtures = readdirSync(folder)
  .filter((name) => name.endsWith('.pcap') && statSync(join(folder, name)).size < 40_000)
  .map((name) => readFileSync(join(folder, name)));

const COMMANDS = [
  'dump -',
  'dump --fields -',
  'dump --json -',
  'flows -',
  'flows --json -',
  'messages -',
  'report -o - -',
  'ladder -o - -',
  'export --anonymize --zero-payload -o - -',
];

async function roce(command: string, input: Uint8Array) {
  let out = '';
  let err = '';
  const code = await run(command.split(' '), {
    stdin: Readable.from([input]),
    stdout: {
      write(chunk, done) {
        // Of bytes, the size is enough: a capture is no text.
        out += typeof chunk === 'string' ? chunk : '.'.repeat(chunk.length);
        done?.();
      },
    },
    stderr: { write: (text) => (err += text) },
    env: {},
    signal: new AbortController().signal,
  });
  return { code, out, err };
}

/** Characters that move a cursor, change a title or ring: everything that is no text, line end or tab. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: that is what is looked for
const CONTROLS = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f]/;

/** A file with some bytes changed, and now and then cut, or with a piece twice. */
function tampered(file: Uint8Array, random: Random): Uint8Array {
  const copy = Uint8Array.from(file);
  for (let changes = random.between(1, 40); changes > 0; changes--) {
    // Half of them where headers of the file and of its first packets are.
    const at = random.between(0, (random.chance(0.5) ? Math.min(400, copy.length) : copy.length) - 1);
    copy[at] = random.chance(0.5) ? random.next() : random.pick([0, 1, 0x7f, 0x80, 0xff]);
  }
  if (random.chance(0.2)) return copy.subarray(0, random.between(0, copy.length));
  if (random.chance(0.2)) return Buffer.concat([copy, copy.subarray(random.between(0, copy.length - 1))]);
  return copy;
}

describe.each(COMMANDS)('roce %s', (command) => {
  test('captures that were tampered with', { timeout: 300_000 + CAPTURES * 200 }, async () => {
    const random = createRandom(21);
    const codes = new Set<number>();
    for (let i = 0; i < CAPTURES; i++) {
      const { code, out, err } = await roce(command, tampered(random.pick(fixtures), random));
      codes.add(code);
      expect(err, `capture ${i}`).not.toMatch(/\.ts:|\.js:|TypeError|RangeError|bug/);
      expect(out, `capture ${i}`).not.toMatch(CONTROLS);
      expect(err, `capture ${i}`).not.toMatch(CONTROLS);
    }
    expect([...codes].sort()).toEqual([0, 1]);
  });

  test('names and comments that would steer a terminal', async () => {
    const evil = '\u001b]0;owned\u0007\u001b[2J\r\u009b31mrm -rf\n\u0000';
    const encoder = new PcapngEncoder({ hardware: evil, os: evil, application: evil, comments: [evil] });
    const id = encoder.interface({
      linkType: LinkType.ETHERNET,
      name: evil,
      description: evil,
      comments: [evil],
    });
    const parser = new CaptureParser();
    parser.push(fixtures[0]);
    parser.end();
    for (const { data, timestamp } of parser)
      encoder.packet({ data, timestamp, interfaceId: id, comments: [evil] });
    const { code, out, err } = await roce(command, encoder.take());
    expect(code).toBe(0);
    expect(out.length).toBeGreaterThan(100);
    expect(out).not.toMatch(CONTROLS);
    expect(err).not.toMatch(CONTROLS);
  });
});
