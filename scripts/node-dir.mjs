// Where Node's headers are, for builds of addons.
import { spawnSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';

/** A folder that has include/node/node_api.h of this Node, so that node-gyp need not fetch headers. */
export function nodeDir() {
  const npm = spawnSync('npm', ['config', 'get', 'nodedir'], { encoding: 'utf8' });
  const configured = npm.status === 0 ? npm.stdout.trim() : '';
  const candidates = [configured, process.env.npm_config_nodedir, resolve(dirname(process.execPath), '..')];
  return candidates.find((dir) => {
    if (!dir || dir === 'undefined') return false;
    const version = join(dir, 'include/node/node_version.h');
    if (!existsSync(version)) return false;
    const major = /define NODE_MAJOR_VERSION (\d+)/.exec(readFileSync(version, 'utf8'))?.[1];
    return major === process.versions.node.split('.')[0];
  });
}
