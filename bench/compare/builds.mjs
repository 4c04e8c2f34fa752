/** The two builds that are compared: the working tree's own, and another commit's. */
import { spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';

const HERE = fileURLToPath(new URL('../..', import.meta.url));
const BUILT = 'packages/verbs-api/dist/index.js';

function git(args, otherwise) {
  const { status, stdout, stderr, error } = spawnSync('git', ['-C', HERE, ...args], { encoding: 'utf8' });
  if (status !== 0) throw new Error(error?.message ?? otherwise ?? `git ${args[0]}: ${stderr.trim()}`);
  return stdout.trim();
}

/** The working tree: its commit, and whether files differ from it. */
export function workingTree() {
  const changed = git(['status', '--porcelain', '--untracked-files=no']) !== '';
  return { root: HERE, name: `${git(['rev-parse', '--short', 'HEAD'])}${changed ? ' with changes' : ''}` };
}

/**
 * Checks a revision out into a temporary directory, installs its own dependencies and builds it. `remove` takes
 * the directory away again; it is called on SIGINT and SIGTERM, too. A directory in place of a revision is a
 * checkout that stands built already, and stays.
 *
 * @throws Error if the revision is not known or its build fails
 */
export function otherBuild(revision, say) {
  if (existsSync(join(revision, BUILT))) {
    return { root: resolve(revision), name: revision, remove() {} };
  }
  const unknown = `${revision} is neither a commit nor a directory with a build`;
  const commit = git(['rev-parse', '--verify', '--quiet', `${revision}^{commit}`], unknown);
  const name = git(['rev-parse', '--short', commit]);
  const parent = mkdtempSync(join(tmpdir(), 'roce-compare-'));
  const root = join(parent, name);
  const remove = () => {
    process.removeListener('SIGINT', stop);
    process.removeListener('SIGTERM', stop);
    rmSync(parent, { recursive: true, force: true });
    git(['worktree', 'prune']);
  };
  const stop = () => {
    remove();
    process.exit(130);
  };
  process.once('SIGINT', stop);
  process.once('SIGTERM', stop);
  try {
    git(['worktree', 'add', '--detach', root, commit]);
    say(`building ${name} …`);
    const { status, stdout, stderr } = spawnSync('npm', ['run', '--silent', 'setup'], {
      cwd: root,
      encoding: 'utf8',
    });
    if (status !== 0) throw new Error(`${name} does not build:\n${stdout}${stderr}`);
    return { root, name, remove };
  } catch (error) {
    remove();
    throw error;
  }
}

/** The rows that the other commit's own comparison has; none if it has no comparison yet. */
export async function rowsOf(root) {
  const file = join(root, 'bench/compare/rows.mjs');
  return existsSync(file) ? (await import(file)).ROWS.map(({ name }) => name) : [];
}
