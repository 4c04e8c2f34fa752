/** The guest's Debian release (`--guest` of run.mjs), where the behaviour of its rxe depends on it. */

export type Release = 'debian12' | 'debian13';

/** Kernel, rdma-core and perftest of each, as far as a security update leaves them. */
export const VERSIONS: Record<Release, { linux: string; rdmaCore: string; perftest: string }> = {
  debian12: { linux: '6.1', rdmaCore: '44', perftest: '4.5' },
  debian13: { linux: '6.12', rdmaCore: '56', perftest: '25.01' },
};

const release = (process.env.ROCE_GUEST ?? 'debian12') as Release;

/** Facts about the guest of this run. */
export const onRelease = <T>(choices: Record<Release, T>): T => choices[release];
