/** Descriptors that a program hands to the device: one for each message, and none that stays open unseen. */
import { spawnSync } from 'node:child_process';
import { closeSync, mkdtempSync, readdirSync, readlinkSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { descriptorPair, ProcessMemory, receiveDescriptor } from '@node-roce/dgram-native';
import { afterAll, describe, expect, test } from 'vitest';

const folder = mkdtempSync(join(tmpdir(), 'roce-end-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));
const file = join(folder, 'file');
writeFileSync(file, '');

/** Sends messages with so many descriptors of the file each. */
const SEND = `
import array, os, socket, sys
end = socket.socket(fileno=3)
fd = os.open(sys.argv[1], os.O_RDWR)
for count in sys.argv[2:]:
  rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', [fd] * int(count)))]
  end.sendmsg([b'x'], rights if count != '0' else [])
`;

/** Descriptors of the file that are open here. */
function open(): number {
  const names = readdirSync('/proc/self/fd').map((fd) => {
    try {
      return readlinkSync(`/proc/self/fd/${fd}`);
    } catch {
      return undefined;
    }
  });
  return names.filter((name) => name === file).length;
}

describe('receiveDescriptor', () => {
  test.each([1, 2, 3, 200])('of a message with %i descriptors keeps one at most', (count) => {
    const [here, there] = descriptorPair();
    const { status } = spawnSync('python3', ['-c', SEND, file, `${count}`, '0'], {
      stdio: ['ignore', 'inherit', 'inherit', there],
    });
    expect(status).toBe(0);
    const fd = receiveDescriptor(here);
    expect(open()).toBe(fd < 0 ? 0 : 1);
    if (count === 1) expect(fd).toBeGreaterThanOrEqual(0);
    expect(() => new ProcessMemory(fd, 0)).toThrow(RangeError);
    if (fd >= 0) closeSync(fd);
    expect(receiveDescriptor(here)).toBe(-1);
    expect(receiveDescriptor(here)).toBe(-1);
    closeSync(here);
    closeSync(there);
  });
});

test.for(['file', 'mem'])(
  'a descriptor of %s whose file system does not answer is refused at once',
  (name, context) => {
    const path = join(folder, name);
    writeFileSync(path, '');
    const code = `import('@node-roce/dgram-native').then(({ ProcessMemory }) => {
    try { new ProcessMemory(3, 0); } catch (error) { console.log(error.name); }
  })`;
    const script = join(import.meta.dirname, 'blocked-descriptor.py');
    const args = [script, path, process.execPath, '-e', code];
    const options = { encoding: 'utf8', env: { ...process.env, PATIENCE: '120' } } as const;
    const { status, stdout } = spawnSync('python3', args, options);
    if (status === 77) return context.skip();
    expect(stdout).toBe('RangeError\n');
  },
);
