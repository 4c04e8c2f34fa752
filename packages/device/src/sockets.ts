/** Where the sockets of a user's devices are, and whether a device answers at one. */
import { once } from 'node:events';
import { lstatSync, readlinkSync, statSync } from 'node:fs';
import { connect } from 'node:net';
import { makeFolder } from './make-folder.ts';

/**
 * The folder of a user's sockets: in `XDG_RUNTIME_DIR`, else in a folder of the user's own in `/tmp`. `su` and `sudo -E` keep the
 * variable of another user, whose folder is not taken.
 */
export function socketFolder(env: NodeJS.ProcessEnv = process.env): string {
  const { XDG_RUNTIME_DIR: runtime } = env;
  const uid = process.getuid?.() ?? 0;
  const isOwn = runtime && statSync(runtime, { throwIfNoEntry: false })?.uid === uid;
  return isOwn ? `${runtime}/roce` : `/tmp/roce-${uid}`;
}

/** The number of the network namespace of this process (its inode); 0 where /proc does not show it. */
export function networkNamespace(): bigint {
  try {
    return BigInt(/\d+/.exec(readlinkSync('/proc/self/ns/net'))?.[0] ?? 0);
  } catch {
    return 0n;
  }
}

/** The end of the names of sockets of this network namespace: others have the same addresses, and containers may share `/tmp`. */
export const socketSuffix = (): string => `-${networkNamespace()}.sock`;

/** The Unix socket of an address, or of an interface by its name, of this network namespace. */
export function socketPath(address: string, env: NodeJS.ProcessEnv = process.env): string {
  return `${socketFolder(env)}/${address.replaceAll(/[^0-9a-zA-Z.]/g, '_')}${socketSuffix()}`;
}

/** Whether a device answers at this path. */
export async function isListening(path: string): Promise<boolean> {
  const socket = connect(path);
  try {
    await once(socket, 'connect');
    return true;
  } catch {
    return false;
  } finally {
    socket.destroy();
  }
}

/** Whether the folder is this user's, and nobody else can enter it. */
export function isPrivate(folder: string): boolean {
  const { uid, mode } = lstatSync(folder);
  return uid === process.getuid?.() && (mode & 0o077) === 0;
}

/** Makes the folder that only its owner can enter, and refuses one that others could have prepared. */
export function prepareFolder(folder: string): void {
  makeFolder(folder, 0o700);
  if (isPrivate(folder)) return;
  throw Object.assign(new Error(`${folder}: the folder must belong to this user, mode 700`), {
    code: 'EACCES',
  });
}
