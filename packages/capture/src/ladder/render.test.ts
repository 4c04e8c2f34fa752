import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { answer, connection, ladderPacket } from '../../testing/analysis.ts';
import { layoutLadder, usualGap } from './layout.ts';
import { packetId, renderLadder } from './render.ts';

const MS = 1e6;
const three = connection({
  ladder: [
    ladderPacket({ frame: 1, payloadLength: 64 }),
    ladderPacket({ frame: 2, time: 67 * MS, payloadLength: 64, retransmission: 'timeout' }),
    answer(0x1f, 'ACK', { frame: 3, time: 67.1 * MS }),
  ],
});

/** The elements that are open at the end, or the error. */
function unbalanced(markup: string): string[] {
  const open: string[] = [];
  for (const [, slash, name, selfClosed] of markup.matchAll(/<(\/?)(\w+)[^<>]*?(\/?)>/g)) {
    if (selfClosed) continue;
    if (!slash) open.push(name!);
    else if (open.pop() !== name) return [`</${name}>`];
  }
  return open;
}

describe('a ladder', () => {
  const svg = renderLadder(three);

  test('has a row a packet and one for the time that passes, both ends, and a legend', () => {
    expect(svg.match(/class="row /g)).toHaveLength(3);
    expect(svg).toContain('67 ms later');
    expect(svg).toContain('10.0.0.1');
    expect(svg).toContain('QP 0x12');
    expect(svg).toContain('retransmission: timeout');
    for (const name of ['Request', 'Retransmission', 'ACK']) expect(svg).toContain(`>${name}</text>`);
    expect(svg).not.toContain('>CNP</text>');
    expect(unbalanced(svg)).toEqual([]);
  });

  test('is the same for the same packets', () => expect(renderLadder(structuredClone(three))).toBe(svg));

  test('arrows lead from the sender to the other end', () => {
    const [first, , last] = svg.split('\n').filter((line) => line.includes('class="row '));
    const ends = (row: string) =>
      ['x1', 'x2'].map((name) => Number(new RegExp(`${name}="([\\d.]+)"`).exec(row)![1]));
    const [from, to] = ends(first!);
    expect(from).toBeLessThan(to!);
    const [back, forth] = ends(last!);
    expect(back).toBeGreaterThan(forth!);
  });

  test('low rows have no text but a title to point at', () => {
    const low = renderLadder(three, { rowHeight: 8 });
    expect(low).not.toContain('class="label"');
    expect(low).toContain('<title>2 0.067000 Send Only · PSN 100 = 0x000064 · 64 B</title>');
  });

  test('nothing of a capture can become markup', () => {
    const evil = '<script>alert(1)</script>"\'&\u0000';
    const hostile = renderLadder(
      { ...three, a: { address: evil, qpn: -1 }, ladder: [ladderPacket({ opcodeName: evil })] },
      { title: evil, width: 2000 },
    );
    expect(hostile).not.toContain('<script');
    expect(hostile).not.toContain('\u0000');
    expect(hostile).toContain('&lt;script&gt;');
    expect(hostile).toContain('QP ?');
    expect(unbalanced(hostile)).toEqual([]);
  });

  test('embedded: options of a list box, no head', () => {
    const embedded = renderLadder(three, { embedded: true });
    expect(embedded.match(/role="option"/g)).toHaveLength(3);
    expect(embedded).toContain(`id="${packetId(three.ladder[0])}"`);
    expect(embedded).not.toContain('<style>');
    expect(unbalanced(embedded)).toEqual([]);
  });

  test('without packets it is a frame', () => {
    expect(unbalanced(renderLadder(connection()))).toEqual([]);
  });

  test.each([
    ['width', { width: 100 }],
    ['width', { width: Number.NaN }],
    ['rowHeight', { rowHeight: 3 }],
    ['rowHeight', { rowHeight: 61 }],
  ])('a %s out of range', (name, options) => {
    expect(() => renderLadder(three, options)).toThrow(
      expect.objectContaining({ code: 'ERR_OUT_OF_RANGE', message: expect.stringContaining(name) }),
    );
  });
});

describe('layout', () => {
  test('rows stand evenly, and gaps are as long as the time between packets', () => {
    const times = fc
      .array(fc.nat({ max: 1e9 }), { minLength: 1, maxLength: 50 })
      .map((all) => all.sort((a, b) => a - b));
    fc.assert(
      fc.property(times, fc.integer({ min: 1, max: 1e8 }), (all, gapAfter) => {
        const packets = all.map((time, i) => ladderPacket({ time, frame: i + 1 }));
        const { rows, height } = layoutLadder(packets, 10, gapAfter);
        expect(rows.map(({ y }) => y)).toEqual(rows.map((_, i) => 10 * i + 5));
        expect(height).toBe(10 * rows.length);
        expect(rows.flatMap((row) => ('packet' in row ? [row.packet] : []))).toEqual(packets);
        const gaps = rows.flatMap((row) => ('gap' in row ? [row.gap] : []));
        expect(gaps).toEqual(
          all.slice(1).flatMap((time, i) => (time - all[i] >= gapAfter ? [time - all[i]] : [])),
        );
      }),
    );
  });

  test('a gap before the first packet of a part is shown', () => {
    const { rows } = layoutLadder([ladderPacket({ time: 50 })], 10, 20, ladderPacket({ time: 10 }));
    expect(rows[0]).toMatchObject({ gap: 40 });
  });

  test('the shortest gap depends on the usual time between packets, and is 0.1 ms at least', () => {
    const every = (span: number) => Array.from({ length: 20 }, (_, i) => ladderPacket({ time: i * span }));
    expect(usualGap(every(1000))).toBe(100_000);
    expect(usualGap(every(1 * MS))).toBe(20 * MS);
    expect(usualGap([])).toBe(100_000);
  });
});
