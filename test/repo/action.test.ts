/** action.yml and docs/guide/ci.md: the action's last step puts `roce` into the PATH, and the page's job runs with it. */
import { execFile, spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, expect, test } from 'vitest';

const run = promisify(execFile);
const root = join(import.meta.dirname, '../..');
const place = mkdtempSync(join(tmpdir(), 'roce-action-'));
afterAll(() => rmSync(place, { recursive: true }));

/** The scripts of `run: |` in a YAML file or block. */
const scriptsOf = (yaml: string): string[] =>
  [...yaml.matchAll(/^( *)(?:- )?run: \|\n((?:\1 {2,}.*\n)+)/gm)].map(([, , script = '']) => script);
/** As GitHub runs a step: bash stops at the first command that fails. */
const step = (script: string, env: Record<string, string | undefined>) =>
  run('bash', ['-eo', 'pipefail', '-c', script], { cwd: place, env: { ...process.env, ...env } });

const hasPerftest = spawnSync('ib_write_bw', ['--version']).error === undefined;
const isBuilt = spawnSync(process.execPath, [join(root, 'packages/cli/bin/roce.js'), '-V']).status === 0;

test.skipIf(!(hasPerftest && isBuilt) && !process.env.CI)(
  'the action puts roce into the PATH, and the job of the page passes',
  { tags: ['slow'] },
  async () => {
    const path = join(place, 'path');
    const steps = scriptsOf(readFileSync(join(root, 'action.yml'), 'utf8'));
    expect(steps).toHaveLength(2);
    expect(steps[0]).toContain('npm run setup');
    const temp = join(place, 'temp');
    mkdirSync(temp);
    await step(steps[1] as string, { GITHUB_ACTION_PATH: root, RUNNER_TEMP: temp, GITHUB_PATH: path });
    const [yaml = ''] = /```yaml\n[\s\S]*?```/.exec(readFileSync(join(root, 'docs/guide/ci.md'), 'utf8'))!;
    const [job = ''] = scriptsOf(yaml);
    expect(job.split('\n').filter((line) => line.includes('roce run'))).toHaveLength(2);
    const PATH = [readFileSync(path, 'utf8').trim(), process.env.PATH].join(delimiter);
    const { stdout } = await step(job, { PATH });
    expect(stdout.match(/BW average/g)).toHaveLength(2);
  },
);
