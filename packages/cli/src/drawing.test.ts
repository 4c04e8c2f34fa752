import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { PACKET_KINDS } from '@node-roce/capture';
import { describe, expect, test } from 'vitest';
import { ownFolder, removeFolders } from '../testing/folder.ts';
import { runRoce as roce } from '../testing/roce.ts';
import { commands, nameOf } from './commands.ts';

const captures = join(import.meta.dirname, '../../../test/fixtures/captures');
const loss5 = join(captures, 'loss5_both_rc_pingpong.pcap');
const folder = ownFolder();
removeFolders();

/** The numbers of the frames in a drawing. */
const framesOf = (svg: string) =>
  [...svg.matchAll(/class="row [^>]*>.*?<text class="faint"[^>]*>(\d+)</g)].map(([, frame]) => Number(frame));

describe('report', () => {
  test('writes the file and lists its contents', async () => {
    const file = join(folder, 'report.html');
    const { code, out, err } = await roce(['report', loss5, '-o', file]);
    expect({ code, out }).toEqual({ code: 0, out: '' });
    expect(err).toMatch(/^.*report\.html: 6 findings, 1 connection, 0\.\d\d MB\n$/);
    const html = readFileSync(file, 'utf8');
    expect(html).toContain('<title>loss5_both_rc_pingpong.pcap – RoCE report</title>');
    const { version } = JSON.parse(readFileSync(join(import.meta.dirname, '../package.json'), 'utf8'));
    expect(html).toContain(`"generator":"node-roce ${version}"`);
  });

  test('to standard output, from standard input', async () => {
    const { code, out, err } = await roce(['report', '-', '-o', '-', '--title', 'a & b'], {
      input: readFileSync(loss5),
    });
    expect({ code, err }).toEqual({ code: 0, err: '' });
    expect(out).toContain('<title>a &amp; b – RoCE report</title>');
    expect(out.endsWith('</html>\n')).toBe(true);
  });

  test('--json', async () => {
    const output = join(folder, 'json.html');
    const { out } = await roce(['report', loss5, '-o', output, '--json']);
    expect(JSON.parse(out)).toEqual({
      output,
      bytes: readFileSync(output).length,
      findings: 6,
      connections: 1,
      rocePackets: 364,
      damage: null,
    });
  });

  test('--icrc skip', async () => {
    const { out } = await roce(['report', loss5, '-o', '-', '--icrc', 'skip']);
    expect(out).toContain('"icrc":{"ok":0,"bad":0,"none":364}');
  });

  test('of a damaged file: the readable part, exit code 1', async () => {
    const cut = join(folder, 'cut.pcap');
    const file = join(folder, 'cut.html');
    writeFileSync(cut, readFileSync(loss5).subarray(0, 100_000));
    const { code, err } = await roce(['report', cut, '-o', file]);
    expect(code).toBe(1);
    expect(err).toContain('the input is cut off at byte 100000');
    expect(readFileSync(file, 'utf8')).toContain('the input is cut off');
  });
});

describe('ladder', () => {
  const ladder = async (...args: string[]) => (await roce(['ladder', loss5, '-o', '-', ...args])).out;

  test('writes the same drawing each time, and reports it', async () => {
    const file = join(folder, 'ladder.svg');
    const { code, out, err } = await roce(['ladder', loss5, '--qp', '0x74', '-o', file]);
    expect({ code, out }).toEqual({ code: 0, out: '' });
    expect(err).toMatch(
      /ladder\.svg: 364 packets of connection 1: RC 10\.77\.0\.2 QP 0x75 ↔ 10\.77\.0\.3 QP 0x74, 0\.\d\d MB\n$/,
    );
    expect(readFileSync(file, 'utf8')).toBe(await ladder('--connection', '1'));
  });

  test('chooses by time, kind and text', async () => {
    expect(framesOf(await ladder('--from', '0.0649', '--to', '0.0651'))).toEqual([3, 4, 5]);
    expect(framesOf(await ladder('--nak'))).toHaveLength(6);
    expect(framesOf(await ladder('--kind', 'nak,rnr'))).toHaveLength(6);
    expect(framesOf(await ladder('--kind', 'retransmission'))).toHaveLength(33);
    expect(framesOf(await ladder('--text', 'psn sequence error'))).toHaveLength(6);
  });

  test('--count draws the first ones, and reports that', async () => {
    const { out, err } = await roce(['ladder', loss5, '-o', '-', '-c', '5']);
    expect(framesOf(out)).toEqual([1, 2, 3, 4, 5]);
    expect(err).toBe('only the first 5 packets: choose with --from and --to, or raise --count\n');
  });

  test('which connection is meant must be clear', async () => {
    const several = join(captures, 'op_all.pcap');
    const { code, err } = await roce(['ladder', several, '-o', '-', '--qp', '0x999']);
    expect(code).toBe(1);
    expect(err).toContain('no such connection; choose with --connection or --qp:\n  1: RC 10.77.0.2 QP');
    expect(
      (await roce(['ladder', join(captures, 'cm_mckey.pcap'), '-o', '-', '--connection', '77'])).code,
    ).toBe(1);
  });

  test('--kind knows the kinds of packets, and no others', async () => {
    const option = commands
      .find((each) => nameOf(each) === 'ladder')!
      .options.find(({ flags }) => flags.includes('kind'))!;
    expect(option.parse!(PACKET_KINDS.join(','))).toEqual(PACKET_KINDS);
    const { code, err } = await roce(['ladder', loss5, '-o', '-', '--kind', 'nak,nonsense']);
    expect(code).toBe(2);
    expect(err).toContain("argument 'nak,nonsense' is invalid. Expected some of request,response,");
  });
});

describe.each(['report', 'ladder'])('%s', (command) => {
  test('needs a place for its result', async () => {
    const { code, err } = await roce([command, loss5]);
    expect(code).toBe(2);
    expect(err).toContain('--output');
  });

  test('does not overwrite its input', async () => {
    const copy = join(folder, `${command}.pcap`);
    writeFileSync(copy, readFileSync(loss5));
    const { code, err } = await roce([command, copy, '-o', copy]);
    expect(code).toBe(2);
    expect(err).toContain('input and output are the same file');
    expect(readFileSync(copy).equals(readFileSync(loss5))).toBe(true);
  });

  test('has stdout for one thing only', async () => {
    expect((await roce([command, loss5, '-o', '-', '--json'])).code).toBe(2);
  });

  test('no such file, no such folder: exit code 1, nothing written', async () => {
    const output = join(folder, 'no-folder', 'x');
    expect(await roce([command, '/nonexistent.pcap', '-o', output])).toMatchObject({
      code: 1,
      err: expect.stringContaining('/nonexistent.pcap: no such file'),
    });
    expect(await roce([command, loss5, '-o', output])).toMatchObject({
      code: 1,
      err: expect.stringContaining(`${output}: no such file or directory`),
    });
    expect(existsSync(output)).toBe(false);
  });
});
