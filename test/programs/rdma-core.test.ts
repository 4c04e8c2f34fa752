/** The tests that rdma-core has for its own library, in Python, on `roce run`. */
// @module-tag slow
// @module-tag gate
import { spawnSync } from 'node:child_process';
import { cpSync, existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { Devices, whyMissing } from './programs.ts';
import { lostRaces, notPassing, outcomes, uncompress } from './rdma-core.ts';

const SOURCES = '/usr/share/doc/rdma-core/tests';
const PYTHON = '/usr/bin/python3';
/** The list is of this release; another one has other tests. */
const RELEASE = '44.0';
/** Of a quiet machine, half a minute. */
const MINUTES = 600_000;

function missing(): string | undefined {
  const library = whyMissing();
  if (library) return library;
  // biome-ignore lint/suspicious/noTemplateCurlyInString: dpkg-query's own
  const query = ['-W', '-f', '${Version}', 'python3-pyverbs'];
  const { stdout } = spawnSync('dpkg-query', query, { encoding: 'utf8' });
  if (!stdout?.startsWith(RELEASE)) return `python3-pyverbs ${RELEASE} is not installed`;
  return existsSync(join(SOURCES, 'run_tests.py')) ? undefined : `${SOURCES} is not there`;
}

const why = missing();
if (why) console.log(`rdma-core's tests are not run: ${why}`);

test.skipIf(why !== undefined)(
  'rdma-core’s tests pass but for those of the list',
  { timeout: 700_000 },
  async () => {
    const folder = mkdtempSync(join(tmpdir(), 'roce-rdma-core-'));
    // The address of lo: tests of librdmacm take it from the interface.
    const devices = await Devices.open('127.0.0.1');
    try {
      cpSync(SOURCES, join(folder, 'tests'), { recursive: true });
      uncompress(join(folder, 'tests'));
      const runner = join(folder, 'tests/run_tests.py');
      const { found, output } = await outcomes(44, async (...names) => {
        const args = [runner, '-v', '--dev', 'roce0', ...names];
        return (await devices.start(0, PYTHON, args, MINUTES).ended).output;
      });
      expect(found.size, output).toBe(273);
      const notPassed = [...found].flatMap(([name, outcome]) => (outcome === 'ok' ? [] : [name]));
      expect(notPassed.sort(), output).toEqual(notPassing(44));
      const none = { programs: 0, objects: 0 };
      await expect.poll(() => devices.servers[0].status).toEqual(none);
    } finally {
      await devices.close();
      rmSync(folder, { recursive: true });
    }
  },
);

describe('a test with a race of its own', () => {
  const EXTERNAL_QP = 'tests.test_rdmacm.CMTestCase.test_rdmacm_async_traffic_external_qp';
  const RNR = 'Player passive got: Completion status is RNR retry exceeded\n';
  const TIMEOUT = 'Player active got: Got timeout on polling (1 CQEs remaining)\n';
  const ran = (name: string, text: string) => `${name.split('.').at(-1)} (${name}) ... ${text}\n`;
  const another = EXTERNAL_QP.replace('traffic_external_qp', 'read');
  const lost = ran(EXTERNAL_QP, `${RNR}${TIMEOUT}ERROR`);

  test.each([
    ['failed by it', lost, [EXTERNAL_QP]],
    ['passed', ran(EXTERNAL_QP, 'ok'), []],
    ['passed after its words', ran(EXTERNAL_QP, `${RNR}ok`), []],
    ['failed without words', ran(EXTERNAL_QP, 'ERROR'), []],
    ['failed by another error', ran(EXTERNAL_QP, `${RNR.replace('RNR', 'Transport')}ERROR`), []],
    ['failed on the other side', ran(EXTERNAL_QP, `${RNR.replace('passive', 'active')}ERROR`), []],
    ['failed while another has the words', ran(another, `${RNR}ERROR`) + ran(EXTERNAL_QP, 'ERROR'), []],
    ['did not run', ran(another, `${RNR}ERROR`), []],
  ])('that %s', (_, output, names) => {
    for (const release of [44, 56]) expect(lostRaces(output, release)).toEqual(names);
  });

  test.each([
    ['passes', ran(EXTERNAL_QP, 'ok'), 'ok'],
    ['fails by it again', lost, 'ERROR'],
    ['is not there', '', 'not played'],
  ])('is played once more, alone, and %s', async (_, again, outcome) => {
    const plays: string[][] = [];
    const { found } = await outcomes(44, async (...names) => {
      plays.push(names);
      return names.length === 0 ? ran(another, 'ok') + lost : again;
    });
    expect(plays).toEqual([[], [EXTERNAL_QP]]);
    expect([...found]).toEqual([
      [another, 'ok'],
      [EXTERNAL_QP, outcome],
    ]);
  });

  test('is no test that does not pass', () => {
    for (const release of [44, 56]) expect(notPassing(release)).not.toContain(EXTERNAL_QP);
  });
});
