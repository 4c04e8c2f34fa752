/** Properties of a machine that decide whether an addon loads. */
export interface Machine {
  platform: string;
  arch: string;
  /** Of Node. */
  version: string;
  /** The C library is not glibc. */
  isMusl: boolean;
  /** Where the package is. */
  folder: string;
  /** A bundler took the package's code elsewhere. */
  isBundled?: boolean;
}

export interface AddonError extends Error {
  code: 'ERR_ROCE_NO_ADDON' | 'ERR_ROCE_ADDON_LOAD' | 'ERR_ROCE_STALE_ADDON';
}

export function thisMachine(): Machine;
export function buildCommand(machine: Pick<Machine, 'folder'>): string;
export function loadError(cause: Error & { code?: string }, machine: Machine): AddonError;
export function staleError(found: string | undefined, expected: string, machine: Machine): AddonError;
export function loadAddon(): typeof import('./index.js');
