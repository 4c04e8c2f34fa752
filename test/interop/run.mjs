// `npm run test:interop`: everything against the real rdma_rxe, in a guest under User-Mode Linux or QEMU.
//
//   --guest debian12|debian13   The guest's release; ROCE_GUEST=… does the same (debian12)
//   --sample SEED               Of the large matrices, cases that cover all pairs of values, chosen by SEED; ROCE_SAMPLE=… (all cases)
//   --sample gate               Always the same of these cases, and no verdict that depends on how busy the machine is
//   --sample control            The same for one case of each kind (control.mjs)
//   --shell                     Give a prompt for the guests before the tests
//   --only-shell                The same, and play no test: two guests with a real rxe to try programs on
//   --prepare                   Install and build what a run needs, and play no test
//   --lanes N                   Deal the test files out to N runs of vitest side by side, each with guests of its own (1)
//
// Installs the Debian packages that are missing (root) or names them, builds the guest and its kernel if there are none of these sources in the
// user's cache folder, and runs the suite inside namespaces of its own. ROCE_GUEST_ACCEL=um|tcg|kvm decides how guests run (docs/interop.md). Other arguments go to vitest:
// `npm run test:interop -- pingpong -t IPv6`. Fails if a test failed or was skipped.
import { chmodSync, existsSync, mkdtempSync, rmSync } from 'node:fs';
import { constants, getPriority, setPriority, tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { sweep } from '../tiers/sweep.mjs';
import { controlCases } from './control.mjs';
import { installHostPrograms } from './host-programs.mjs';
import { buildGuest, installPackages } from './image.mjs';
import { FIXED, runLanes } from './lanes.mjs';
import { options } from './options.mjs';
import { fail } from './packages.mjs';
import { buildUmKernel, hasUmKernel } from './um/kernel.mjs';

const here = fileURLToPath(new URL('.', import.meta.url));
const chosen = options();
const { guest, sample, shell, prepare, filters } = chosen;
const logs = join(here, 'logs');

/** The guest's kernel for User-Mode Linux, or '' where QEMU is to run it. */
function umKernel() {
  const { ROCE_GUEST_ACCEL: wanted = '', ROCE_GUEST_UM: given } = process.env;
  if (wanted !== '' && wanted !== 'um') return '';
  if (given) return given;
  if (!hasUmKernel(guest)) {
    if (wanted === 'um')
      fail(`ROCE_GUEST_ACCEL=um: ${guest} has no kernel for User-Mode Linux on ${process.arch}`);
    return '';
  }
  try {
    return buildUmKernel(guest);
  } catch (error) {
    if (wanted === 'um') fail(error.message);
    console.error(
      `test:interop: no kernel for User-Mode Linux, so the guests are emulated: ${error.message}`,
    );
    return '';
  }
}

/** Cases of the sample `control` that the report does not have: a test was renamed, or not played. */
function missingCases({ testResults }) {
  const played = new Set(
    testResults.flatMap(({ name, assertionResults }) =>
      assertionResults
        .filter(({ status }) => status === 'passed' || status === 'failed')
        .map(({ fullName }) => `${basename(name)}: ${fullName}`),
    ),
  );
  return controlCases(guest).filter(({ file, name }) => !played.has(`${file}: ${name}`));
}

installPackages();
let image;
try {
  image = buildGuest(guest);
} catch (error) {
  fail(error.message);
}
const um = umKernel();
if (prepare) process.exit();
if (um && shell !== 'only' && !FIXED.includes(sample)) installHostPrograms(filters);
sweep('roce-interop-');
rmSync(logs, { recursive: true, force: true });
// rxe and we answer each other within tens of ms: other work of this machine may wait that long. Who started
// it under nice(1) wants it behind that of others all the same.
if (getPriority() <= 0) setPriority(constants.priority.PRIORITY_HIGH);
// For what the tests put into the temporary directory, an ordinary user's among it: gone with the run.
const scratch = mkdtempSync(join(tmpdir(), `roce-interop-${process.pid}-`));
chmodSync(scratch, 0o755);
const { code, counts, how } = await runLanes({ options: chosen, image, um, scratch, logs });
rmSync(scratch, { recursive: true, force: true });
if (shell === 'only') process.exit(code);
const { passed, failed, skipped } = counts;
const missing = sample === 'control' && passed > 0 ? missingCases(counts) : [];
for (const { file, name } of missing)
  console.error(`test:interop: control.mjs has no such case: ${file}: ${name}`);
// A filter skips by intent; the whole suite may not.
const complete = filters.length > 0 || (sample === 'control' ? missing.length === 0 : skipped === 0);
const good = code === 0 && counts.everyLaneRan && complete;
if (!good && existsSync(logs)) console.error(`test:interop: consoles, commands and captures are in ${logs}`);
console.log(`interop ${guest} (${how}): ${passed} passed, ${failed} failed, ${skipped} skipped`);
process.exit(good ? 0 : 1);
