/** The tests that rdma-core has for its own library, in Python, on `roce run`. */
// @module-tag slow
// @module-tag gate
import { spawnSync } from 'node:child_process';
import { cpSync, existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { Devices, whyMissing } from './programs.ts';
import { notPassing, outcomes, uncompress } from './rdma-core.ts';

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
      const { output } = await devices.start(0, PYTHON, [runner, '-v', '--dev', 'roce0'], MINUTES).ended;
      const found = outcomes(output);
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
