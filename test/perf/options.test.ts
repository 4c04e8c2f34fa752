/**
 * The command lines that `roce perf` takes: those of the interop suite's matrix, and of each option the verbs and measures with which
 * perftest takes it. An interface that does not exist ends each of them as soon as its options are read.
 */
import { spawnSync } from 'node:child_process';
import { Readable } from 'node:stream';
import { run } from '@node-roce/cli';
import { describe, expect, test } from 'vitest';
import { perfCases } from '../interop/harness/perftest-cases.ts';

const NOWHERE = ['-d', 'nosuch0', '-x', '0'];
const words = (text: string) => text.split(' ').filter(Boolean);

async function perf(args: readonly string[]): Promise<{ code: number; err: string }> {
  let err = '';
  const code = await run(['perf', ...args], {
    stdin: Readable.from([]),
    stdout: { write: (_text, done) => done?.() },
    stderr: { write: (text) => (err += text) },
    env: {},
    signal: new AbortController().signal,
  });
  return { code, err };
}
const TAKEN = { code: 1, err: expect.stringContaining('no interface nosuch0') };

test('takes every command line of the interop matrix', { tags: ['slow'] }, async () => {
  // That of Debian 13 has all of Debian 12, and more.
  for (const { verb, measure, service = 'RC', rdmaCm, options = '', ours = '', role } of perfCases(
    'debian13',
  )) {
    const args = words(`${verb} ${measure} -c ${service} ${rdmaCm ? '-R' : ''} ${options} ${ours}`);
    const { code, err } = await perf([...args, ...NOWHERE, ...(role === 'client' ? ['127.0.0.1'] : [])]);
    expect({ code, err }, args.join(' ')).toEqual(TAKEN);
  }
});

const VERBS = ['send', 'write', 'read', 'atomic'] as const;
const PROGRAMS = VERBS.flatMap((verb) => (['bw', 'lat'] as const).map((measure) => [verb, measure] as const));
/** Options, each with the tests that refuse it. */
const OPTIONS: Record<string, RegExp | undefined> = {
  '-I 0': /read|atomic/,
  '-I 64': /read|atomic/,
  '-o 1': /send|write/,
  '-o 4': /send|write/,
  '-A FETCH_AND_ADD': /send|write|read/,
  '-r 1': undefined,
  '-r 100': /read|atomic/,
  '-N': /lat/,
  '-N -D 5': /lat/,
  '-b': /lat/,
  '-q 2': /lat/,
  '-s 16': /atomic/,
  '-a': /atomic/,
  '-c UD': /write|read|atomic/,
  '-c UC': /read|atomic/,
  '-R -c UC': /./,
  // Without an effect on what is measured.
  '-Q 10 -s 64': undefined,
  '-t 2': undefined,
  '--perform_warm_up': undefined,
  '--report-both': undefined,
  '-R -S 3': undefined,
  '-R -u 10': undefined,
  '-R --tclass=4': undefined,
  '-R -m 4096': undefined,
};
const sized = (verb: string, option: string) => (verb === 'atomic' ? option.replace(/-s 64/, '') : option);

describe.each(PROGRAMS)('%s %s', { tags: ['slow'] }, (verb, measure) => {
  test.each(Object.entries(OPTIONS))('%s', async (option, refused) => {
    const found = await perf([verb, measure, ...words(sized(verb, option)), ...NOWHERE]);
    const isRefused = refused?.test(`${verb} ${measure}`);
    expect(found).toEqual(isRefused ? { code: 2, err: expect.stringMatching(/^roce: --?\w+: /) } : TAKEN);
  });
});

// Of perftest 4.5 alone, whose WRITE has no receives.
const ONCE = new Set(['-r 100']);

const program = spawnSync('ib_send_bw', ['--version']);
describe.skipIf(program.error)('perftest of this machine', { tags: ['slow'] }, () => {
  test.each(PROGRAMS)('takes and refuses the same of %s %s', (verb, measure) => {
    for (const [option, refused] of Object.entries(OPTIONS)) {
      if (verb === 'write' && ONCE.has(option)) continue;
      const { stdout, stderr } = spawnSync(
        `ib_${verb}_${measure}`,
        ['-d', 'nosuch0', ...words(sized(verb, option))],
        { encoding: 'utf8', timeout: 240_000 },
      );
      const takes = /detect devices|IB device/.test(stdout + stderr);
      expect(takes, `ib_${verb}_${measure} ${option}: ${stdout}${stderr}`).toBe(
        !refused?.test(`${verb} ${measure}`),
      );
    }
  });
});

test.each([
  ['send bw --histogram', 'roce: --histogram: '],
  ['write bw -o 3', 'roce: -o: '],
  ['send bw --mac_fwd', '--mac_fwd of perftest is not supported'],
  ['send bw -P', '--client of perftest is not supported'],
  ['send lat --histogram -D 5', 'histogram'],
  ['write bw -x 0 --bind 127.0.0.1', '-d and -x would choose another one'],
  ['write bw -d lo -x 99', '-x 99: lo has no such GID (expected 0 (127.0.0.1)'],
  ['--local -q 4', '-q: send lat has one queue pair'],
  ['--local --histogram', 'histogram'],
  ['--local -p 5000', 'leave out -p'],
  ['--local --as 6.06', 'leave out --as'],
  ['send bw -X 1', '--vector of perftest is not supported'],
  ['send bw --aes_xts', '--aes_xts of perftest is not supported'],
  ['send bw --use_neuron 0', '--use_neuron of perftest is not supported'],
  ['write bw --as 6.06', '--as is for a client'],
  ['--local --out_json', 'name it'],
])('%s is wrong usage', async (line, message) => {
  expect(await perf(words(line))).toEqual({ code: 2, err: expect.stringContaining(message) });
});
