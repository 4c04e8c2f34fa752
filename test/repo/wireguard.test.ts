/** The commands of docs/guide/securing.md that put RoCE into a tunnel of WireGuard, as they stand there. Need root. */
// @module-tag slow
import { execFile, spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';

const root = join(import.meta.dirname, '../..');
const page = readFileSync(join(root, 'docs/guide/securing.md'), 'utf8');
const section = page.slice(page.indexOf('\n## WireGuard'));
const [tunnel = '', transfer = ''] = [...section.matchAll(/```sh\n([\s\S]*?)```/g)].map(([, code]) => code);
const [listening, connecting] = transfer.trim().split('\n');

/** The kernel's module, or the program that stands in for it. */
const hasTunnels = () =>
  spawnSync('unshare', ['--net', 'ip', 'link', 'add', 'wg0', 'type', 'wireguard']).status === 0 ||
  (isThere('wireguard-go') && spawnSync('test', ['-c', '/dev/net/tun']).status === 0);
const isThere = (program: string) => spawnSync('sh', ['-c', `command -v ${program}`]).status === 0;

function whyNot(): string | undefined {
  if (process.getuid?.() !== 0) return 'needs root';
  const programs = ['ip', 'wg', 'tcpdump'].filter((program) => !isThere(program));
  if (programs.length > 0) return `not installed: ${programs.join(', ')}`;
  return hasTunnels() ? undefined : 'neither WireGuard in the kernel, nor wireguard-go and /dev/net/tun';
}

test('2 MB arrive through the tunnel, and the wire has packets of the tunnel alone', async (context) => {
  const reason = whyNot();
  if (reason !== undefined) return context.skip(reason);
  const folder = mkdtempSync(join(tmpdir(), 'roce-wg-'));
  const roce = `#!/bin/sh
[ "$1" != listen ] || exec "${process.execPath}" "${root}/packages/cli/bin/roce.js" "$@" -v 2> listen.log
exec "${process.execPath}" "${root}/packages/cli/bin/roce.js" "$@"
`;
  const onWire = (filter: string) => `tcpdump -n -r wire.pcap '${filter}' 2> /dev/null | wc -l`;
  // Namespaces and the sockets of wireguard-go are in /run.
  const script = `set -eu
trap 'tail -v *.log >&2' ERR
mount -t tmpfs none /run
PATH=$PWD:$PATH
${tunnel}
head -c 2000000 /dev/urandom > file
ip netns exec left tcpdump -i veth0 -U -w wire.pcap 2> tcpdump.log &
dump=$!
until grep -q 'listening on' tcpdump.log; do kill -0 $dump; sleep 0.1; done
${listening}
copying=$!
until grep -q listening listen.log; do kill -0 $copying; sleep 0.1; done
${connecting}
wait $copying
kill -INT $dump
wait $dump
cmp file copy
echo "tunnel $(${onWire('udp port 51820')}) bare $(${onWire('udp port 4791')})"
`;
  try {
    writeFileSync(join(folder, 'roce'), roce, { mode: 0o755 });
    writeFileSync(join(folder, 'script'), script);
    // All processes and namespaces end with the script.
    const apart = ['--mount', '--pid', '--fork', '--kill-child', '--mount-proc'];
    const { stdout } = await promisify(execFile)('unshare', [...apart, 'bash', 'script'], {
      cwd: folder,
      timeout: 280_000,
      killSignal: 'SIGKILL',
    });
    const [, encrypted, bare] = /tunnel (\d+) bare (\d+)/.exec(stdout)!.map(Number);
    expect(bare).toBe(0);
    // Of 1,420 bytes at most.
    expect(encrypted).toBeGreaterThan(2_000_000 / 1420);
  } finally {
    rmSync(folder, { recursive: true });
  }
});
