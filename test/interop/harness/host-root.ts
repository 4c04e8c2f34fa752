/** The file system of this machine in a guest under User-Mode Linux: its programs, with all that they need. */
import type { Guest } from './guest.ts';

/** Where it is in the guest, read-only. */
const ROOT = '/host';

/** What is the guest's own there. Programs may write to /run. */
const OWN = ['dev', 'proc', 'sys', 'run'];

const ENVIRONMENT = 'PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/run TMPDIR=/run LC_ALL=C';

/**
 * Mounts it in the guest.
 *
 * @param folder of this machine that programs in the guest may write to, too
 * @returns what a command line is in the guest: with the programs and paths of this machine
 */
export async function mountHost(guest: Guest, folder: string): Promise<(command: string) => string> {
  const mounts = [
    `mount -t hostfs -o ro,/ none ${ROOT}`,
    ...OWN.map((name) => `mount -o rbind /${name} ${ROOT}/${name}`),
    `mount -t hostfs -o ${folder} none ${ROOT}${folder}`,
  ];
  await guest.must(`mkdir -p ${ROOT} && ${mounts.join(' && ')}`);
  return (command) => `exec chroot ${ROOT} /usr/bin/env -i ${ENVIRONMENT} ${command}`;
}

export const unmountHost = (guest: Guest) => guest.must(`umount -l ${ROOT}`);
