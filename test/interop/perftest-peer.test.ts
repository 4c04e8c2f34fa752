/** Perftest's peer of another hand (test/perf/perftest-peer), which judges perf, with the programs that the guest ships. */
import { describe, expect, inject, onTestFinished, test } from 'vitest';
// @ts-expect-error: plain JavaScript
import { playTest } from '../perf/perftest-peer/main.mjs';
import { GID_INDEX, Guest } from './harness/guest.ts';
import { eachValue } from './harness/pairwise.ts';
import { onRelease } from './harness/release.ts';
import { SAMPLE } from './harness/sample.ts';

const guest = new Guest(inject('guest9000'));
const { hostIp4, ip4 } = guest.address;
/** The version of this guest's programs. */
const version = onRelease({ debian12: '6.06', debian13: '6.24' });
const ITERS = 20;

/** The peer's test, and the program's options for it. */
interface Case {
  verb: 'send' | 'write' | 'read' | 'atomic';
  kind: 'bw' | 'lat';
  options?: string;
  more?: object;
}

const CASES: Case[] = [
  { verb: 'send', kind: 'bw' },
  { verb: 'send', kind: 'bw', options: '-b -q 2', more: { duplex: true, qps: 2 } },
  { verb: 'send', kind: 'lat', options: '-c UD', more: { connection: 'UD' } },
  { verb: 'write', kind: 'bw' },
  { verb: 'write', kind: 'lat' },
  { verb: 'read', kind: 'bw', options: '-q 2', more: { qps: 2 } },
  { verb: 'read', kind: 'lat' },
  { verb: 'atomic', kind: 'bw', options: '-A CMP_AND_SWAP', more: { atomic: 'CMP_AND_SWAP' } },
  { verb: 'atomic', kind: 'lat', options: '-A FETCH_AND_ADD' },
  { verb: 'write', kind: 'bw', options: '-R', more: { cm: true } },
  { verb: 'read', kind: 'lat', options: '-R', more: { cm: true } },
];

const all = CASES.flatMap((one) => (['server', 'client'] as const).map((role) => ({ ...one, role })));
const cases =
  process.env.ROCE_PERF_MATRIX === 'all' || SAMPLE === 'control'
    ? all
    : eachValue(all, SAMPLE || 'peer', ({ verb, kind, role }) => ({ verb, kind, role }));

let port = 18_700;

describe('the peer', () => {
  test.each(cases)(
    'as $role: $verb $kind $options',
    { retry: 2 },
    async ({ verb, kind, options = '', more, role }) => {
      port++;
      const size = verb === 'atomic' ? 8 : 200;
      const sized = verb === 'atomic' ? '' : `-s ${size}`;
      const gid = `-d rxe0 -x ${GID_INDEX[4]}`;
      const program = `ib_${verb}_${kind} ${gid} -F -p ${port} -n ${ITERS} ${sized} ${options}`;
      const given = {
        verb,
        kind,
        size,
        version,
        iters: ITERS,
        mtu: 4096,
        role,
        port,
        address: hostIp4,
        ...more,
      };
      let ready = () => {};
      const listening = new Promise<void>((resolve) => {
        ready = resolve;
      });
      const failed = new AbortController();
      const { signal } = failed;
      const played = playTest({
        ...given,
        signal,
        ...(role === 'client' ? { host: ip4 } : { onListening: ready }),
      });
      onTestFinished(async () => {
        failed.abort();
        await played.catch(() => {});
      });
      if (role === 'server') await Promise.race([listening, played]);
      const ended = await guest.exec(role === 'client' ? program : `${program} ${hostIp4}`, {
        timeout: 60_000,
      });
      // Before the peer's result: a program that has failed does not end the peer.
      expect(ended.code, `${ended.stdout}${ended.stderr}`).toBe(0);
      const { agreed, runs } = await played;
      expect(agreed).toMatchObject({ version, mtu: 4096 });
      for (const { iters } of runs) expect(iters).toBe(ITERS);
    },
  );
});
